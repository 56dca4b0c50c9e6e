#!/bin/sh
# Runs the library under a scheduler that chooses at each step which thread runs next
# (tests/scheduler), for a few seconds and with a fresh seed, which it prints. It needs no
# server. It has its own target directory, because everything is built with --cfg shuttle.
#
#   sh tests/scheduler.sh                    for 10 seconds
#   sh tests/scheduler.sh --soak             for ten minutes, on all processors
#   sh tests/scheduler.sh --replay FILE      repeats a schedule that failed
#   sh tests/scheduler.sh --generated        only generated programs
#   sh tests/scheduler.sh --program FILE     many schedules of one program
#   sh tests/scheduler.sh --planted [TEXT]   runs with each planted bug (tests/scheduler/planted)
#                                            until it is found; one that is not is a failure
#   sh tests/scheduler.sh --planted --generated [TEXT]
#                                            the same with generated programs alone
#   sh tests/scheduler.sh --only TEXT --seed N --seconds N --schedules N --list
set -eu

cd "$(dirname "$0")/.."

RUSTFLAGS="--cfg shuttle ${RUSTFLAGS:-}"
CARGO_TARGET_DIR="$PWD/target/shuttle"
export RUSTFLAGS CARGO_TARGET_DIR

# What each run said stays in target/shuttle/planted, with the program that failed: a bug that its
# program cannot see was found by another one, which is in the library.
# Prints for each planted bug how many schedules it took, or that it was not found within a minute
# (ten minutes with generated programs alone). The first argument is for the scheduler.
planted() {
    how=${1:-}
    seconds=60
    [ -z "$how" ] || seconds=600
    copy="$PWD/target/shuttle/planted"
    patches="$PWD/tests/scheduler/planted"
    CARGO_TARGET_DIR="$copy/target"
    outcome=0
    for patch in "$patches"/*"${2:-}"*.patch; do
        rm -rf "$copy/tree"
        mkdir -p "$copy/tree"
        git ls-files -z | tar -cf - --null -T - | tar -xf - -C "$copy/tree"
        name=$(basename "$patch" .patch)
        if ! (cd "$copy/tree" && patch -s -p1 <"$patch" && cargo build --quiet --profile scheduler -p leasehold-scheduler 2>"$copy/build"); then
            printf '%-42s does not apply or build\n' "$name"
            outcome=1
            continue
        fi
        if (cd "$copy/tree" && "$copy/target/scheduler/scheduler" --seconds "${PLANTED_SECONDS:-$seconds}" --first $how) >"$copy/$name.said" 2>&1; then
            printf '%-42s NOT FOUND %s\n' "$name" "$(sed -n 's/^scheduler: .*\<\([0-9]* schedules\) in.*/in \1/p' "$copy/$name.said" | paste -sd ' ' -)"
            outcome=1
        else
            found=$(sed -n 's/^scheduler: a program FAILED \(.* schedules\):.*/\1/p; s/^scheduler: \(.*::.*\) FAILED after.*/by \1/p; s/^scheduler: after \(.*\) in all/after \1/p' "$copy/$name.said" | paste -sd ' ' -)
            printf '%-42s %s\n' "$name" "${found:-it ended the process}"
        fi
    done
    exit "$outcome"
}

if [ "${1:-}" = --planted ]; then
    shift
    how=
    if [ "${1:-}" = --generated ]; then
        how=--generated
        shift
    fi
    planted "$how" "${1:-}"
fi

cargo build --quiet --profile scheduler -p leasehold-scheduler

run() {
    target/shuttle/scheduler/scheduler "$@"
}

if [ "${1:-}" != --soak ]; then
    run "$@"
    exit
fi
shift
# One process for each processor: an execution runs on one thread.
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
