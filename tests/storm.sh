#!/bin/sh
# A storm: processes of several threads take locks on few names while faults are
# injected from outside; a checker judges what they believed.
#
#   sh tests/storm.sh --short                 one short run on each deployment
#   sh tests/storm.sh --minutes 30            runs on all of them in turns
#     --on redis                              only on this one
#     --seed 4711                             the faults and the choices of the workers
#                                             of this seed; each round has the next one
#     --until-caught                          end with the first run that failed
#
# A line a run, and a table at the end; exit status 1 if a run failed. Then the line
# names a time line (SVG), and verdict.txt and the histories are beside it.
#
#   LEASEHOLD_POSTGRES=0, LEASEHOLD_ZOOKEEPER=0   do without these
#   STORM_FAULTS=Kill,Stop                        only these faults
#   STORM_ONLY=plain,fair                         only these: plain, fair, read, write, permit, multi
#   STORM_PROGRAM=path                            built already: cargo is not asked
#   STORM_LOG=debug                               what the workers log
set -u

cd "$(dirname "$0")/.." || exit 1

short=no
minutes=10
while [ $# -gt 0 ]; do
    case $1 in
    --short) short=yes ;;
    --until-caught) export STORM_UNTIL_CAUGHT=1 ;;
    --minutes | --on | --seed)
        [ $# -gt 1 ] || { echo "storm.sh: $1 what?" >&2; exit 2; }
        case $1 in
        --minutes) minutes=$2 ;;
        --on) export STORM_ON="$2" ;;
        --seed) export STORM_SEED="$2" ;;
        esac
        shift
        ;;
    *)
        echo "storm.sh: unknown argument '$1'" >&2
        exit 2
        ;;
    esac
    shift
done

if [ -z "${LEASEHOLD_SERVER:-}" ]; then
    servers=$(sh tests/server.sh --extra) || exit 1
    LEASEHOLD_SERVER=$(printf '%s\n' "$servers" | head -n 1)
    export LEASEHOLD_SERVER
    if [ -z "${LEASEHOLD_POSTGRES:-}" ]; then
        LEASEHOLD_POSTGRES=$(printf '%s\n' "$servers" | sed -n 's/^LEASEHOLD_POSTGRES=//p')
        if [ -n "$LEASEHOLD_POSTGRES" ]; then export LEASEHOLD_POSTGRES; else unset LEASEHOLD_POSTGRES; fi
    fi
fi
# A missing ZooKeeper is a failure here, unless somebody wants to do without.
export LEASEHOLD_ZOOKEEPER="${LEASEHOLD_ZOOKEEPER:-1}"

work=$(mktemp -d "${TMPDIR:-/tmp}/leasehold-storm.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Not part of the time that a run has.
# shellcheck disable=SC2086  # here and below: options, in words
[ -n "${STORM_PROGRAM:-}" ] || cargo test --all-features --test storm --no-run || exit 1

storm() { # storm ARGUMENTS...
    # shellcheck disable=SC2086
    if [ -n "${STORM_PROGRAM:-}" ]; then "$STORM_PROGRAM" "$@"; else cargo test --all-features --test storm -- "$@"; fi
}

# The lines of the runs, as they come; the rest is shown if something failed.
show() {
    tee "$work/all" | sed -n 's/^.*@@storm //p'
}

if [ $short = yes ]; then
    { storm storm:: --nocapture --test-threads="${STORM_THREADS:-5}" 2>&1; echo $? >"$work/status"; } | show
else
    { STORM_MINUTES=$minutes storm runs::long --exact --ignored --nocapture 2>&1; echo $? >"$work/status"; } | show
fi
status=$(cat "$work/status")
[ "$status" -eq 0 ] || grep -v '@@storm' "$work/all" | tail -n 40
[ "$status" -eq 0 ]
