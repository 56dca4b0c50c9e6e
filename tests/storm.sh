#!/bin/sh
# A storm: processes with several threads each take locks on few names while
# faults are injected from outside; a checker judges what they believed.
#
#   sh tests/storm.sh --short                 one short run on each deployment
#   sh tests/storm.sh --minutes 30            runs on all of them in turn
#     --on redis                              only on this one
#     --seed 4711                             the seed of the faults and of the workers'
#                                             choices; each round uses the next one
#     --until-caught                          stop after the first run that fails
#
# Prints a line for each run, and a table at the end; exit status 1 if a run failed. The
# line of a failed run names a timeline (SVG), with verdict.txt and the histories beside it.
#
#   LEASEHOLD_POSTGRES=0, LEASEHOLD_MYSQL=0, LEASEHOLD_ZOOKEEPER=0   skip these
#   STORM_FAULTS=Kill,Stop                        only these faults
#   STORM_ONLY=plain,fair                         only these of plain, fair, read, write, permit, multi,
#                                                 job, leader, count
#   STORM_PROGRAM=path                            a built program: cargo is not called
#   STORM_LOG=debug                               the log level of the workers
set -u

cd "$(dirname "$0")/.." || exit 1

short=no
minutes=10
while [ $# -gt 0 ]; do
    case $1 in
    --short) short=yes ;;
    --until-caught) export STORM_UNTIL_CAUGHT=1 ;;
    --minutes | --on | --seed)
        [ $# -gt 1 ] || { echo "storm.sh: $1 needs a value" >&2; exit 2; }
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
    if [ -z "${LEASEHOLD_MYSQL:-}" ]; then
        LEASEHOLD_MYSQL=$(printf '%s\n' "$servers" | sed -n 's/^LEASEHOLD_MYSQL=//p')
        if [ -n "$LEASEHOLD_MYSQL" ]; then export LEASEHOLD_MYSQL; else unset LEASEHOLD_MYSQL; fi
    fi
fi
# A missing ZooKeeper is a failure here, unless it is disabled.
export LEASEHOLD_ZOOKEEPER="${LEASEHOLD_ZOOKEEPER:-1}"

work=$(mktemp -d "${TMPDIR:-/tmp}/leasehold-storm.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Built first, so that it does not count as part of a run's time.
# shellcheck disable=SC2086  # here and below: options, in words
[ -n "${STORM_PROGRAM:-}" ] || cargo test --all-features --test storm --no-run || exit 1

storm() { # storm ARGUMENTS...
    # shellcheck disable=SC2086
    if [ -n "${STORM_PROGRAM:-}" ]; then "$STORM_PROGRAM" "$@"; else cargo test --all-features --test storm -- "$@"; fi
}

# Prints the lines of the runs as they arrive; the rest is shown if something failed.
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
