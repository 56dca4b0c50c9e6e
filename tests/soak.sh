#!/bin/sh
# A long run: a storm of low intensity on all stores at once, in which two processes of each store live from the
# start to the end. It samples their memory, threads and sockets, and what the servers keep, and says at the end
# what grew. It needs a few percent of a core, about 2 GB of memory, and some disk for the histories.
#
#   sh tests/soak.sh --hours 8
#     --minutes 65                instead of hours
#     --every 60                  seconds between two samples
#     --on redis,postgres         only these stores
#     --seed 4711                 the seed of the faults and of the workers' choices
#     --into DIR                  the results: samples.csv, soak.svg and verdict.txt;
#                                 default: target/soak/TIME
#
# Ctrl-C or SIGTERM ends it early, with the results so far. Exit status 1 if a check of the storm failed, if
# something was left behind, or if a series grew. What grows is judged from 20 minutes on.
#
#   LEASEHOLD_POSTGRES=0, LEASEHOLD_MYSQL=0, LEASEHOLD_ZOOKEEPER=0   skip these
#   STORM_PROGRAM=path                            a built program: cargo is not called
set -u

cd "$(dirname "$0")/.." || exit 1

seconds=3600
into=
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || usage
    case $1 in
    --hours) seconds=$(($2 * 3600)) ;;
    --minutes) seconds=$(($2 * 60)) ;;
    --every) export SOAK_EVERY="$2" ;;
    --on) export STORM_ON="$2" ;;
    --seed) export STORM_SEED="$2" ;;
    --into) into=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[ "$seconds" -gt 0 ] || usage

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
export LEASEHOLD_ZOOKEEPER="${LEASEHOLD_ZOOKEEPER:-1}"

# Before the clock starts.
if [ -z "${STORM_PROGRAM:-}" ]; then
    cargo test --all-features --test storm --no-run || exit 1
fi

into=${into:-${CARGO_TARGET_DIR:-target}/soak/$(date +%Y%m%d-%H%M%S)}
mkdir -p "$into" && into=$(cd "$into" && pwd) || exit 1
rm -f "$into/stop" "$into/samples.csv"
export SOAK_SECONDS="$seconds" SOAK_INTO="$into"
echo "soak.sh: $((seconds / 60)) minutes; results in $into"

# The program, its workers and its servers ignore an interrupt of the terminal, which goes to all of them; the
# file tells it to end.
trap 'echo "soak.sh: ending"; touch "$into/stop"' HUP INT TERM
(
    trap '' HUP INT
    if [ -n "${STORM_PROGRAM:-}" ]; then
        exec "$STORM_PROGRAM" soak::soak --exact --ignored --nocapture
    fi
    exec cargo test --all-features --test storm -- soak::soak --exact --ignored --nocapture
) >"$into/output" 2>&1 &
program=$!
# A signal ends `wait`, and not the program.
while kill -0 "$program" 2>/dev/null; do
    wait "$program"
    status=$?
done
rm -f "$into/stop"
sed -n 's/^.*@@soak //p' "$into/output"
[ "$status" -eq 0 ] || grep -v '@@' "$into/output" | tail -n 40
[ "$status" -eq 0 ]
