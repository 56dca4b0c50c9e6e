#!/bin/sh
# Runs the library under a scheduler that chooses at each step which thread goes on
# (tests/scheduler), for a few seconds and with a fresh seed, which it prints. It needs no
# server. In a target directory of its own, because everything is built with --cfg shuttle.
#
#   sh tests/scheduler.sh                    for 10 seconds
#   sh tests/scheduler.sh --soak             for ten minutes, on all processors
#   sh tests/scheduler.sh --replay FILE      a schedule that failed, again
#   sh tests/scheduler.sh --only TEXT --seed N --seconds N --schedules N --list
set -eu

cd "$(dirname "$0")/.."

RUSTFLAGS="--cfg shuttle ${RUSTFLAGS:-}"
CARGO_TARGET_DIR="$PWD/target/shuttle"
export RUSTFLAGS CARGO_TARGET_DIR
cargo build --quiet --profile scheduler -p leasehold-scheduler

run() {
    target/shuttle/scheduler/scheduler "$@"
}

if [ "${1:-}" != --soak ]; then
    run "$@"
    exit
fi
shift
# A process for each processor: an execution takes place on one thread.
processors=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
pids=
while [ "$processors" -gt 0 ]; do
    run --seconds 600 "$@" &
    pids="$pids $!"
    processors=$((processors - 1))
done
outcome=0
for pid in $pids; do
    wait "$pid" || outcome=1
done
exit "$outcome"
