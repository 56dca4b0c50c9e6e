#!/bin/sh
# Proves the checker of the storm: builds a copy of the tree with each of the bugs in
# tests/storm/planted, and runs the storm on it until a check catches the bug.
#
#   sh tests/storm/planted.sh                     all of them
#   sh tests/storm/planted.sh wake-up-lost        these
#   MINUTES=6                                     the time limit for each (default 4)
#   PLANTED_TARGET=directory                      keeps what is built there for the next time
#
# Each patch names the deployment to run on, the check that must find it, and optionally the
# faults to inject or the kinds of locks to take.
# Exit status 1 if one was not caught.
#
# Results of 2026-11-29 on two cores shared with builds, at most 2 minutes for each bug: the number of
# runs, then each check that failed in the run that caught the bug, with the number of its failures:
#
#   bug                          looked for on     runs  caught by
#   a-pause-is-none              redis                1  jobs 1
#   a-request-outlives-its-term  redis                1  terms 17
#   a-success-wakes-nobody       redis                1  jobs 3
#   begin-trusts-the-look        redis                3  jobs 1
#   belief-ignores-time          redis                1  exclusion 12
#   callback-left-out            redis                1  loss told 2
#   connections-stay             redis                2  leaks 2
#   forget-forgets-the-newest    redis                7  NOT CAUGHT (caught after 2 runs at another time: jobs 1)
#   fork-believes                redis                1  forks 7
#   heartbeat-proves-nothing     zookeeper-three      2  exclusion 17
#   last-come-first-served       redis                1  order 9
#   latch-counts-twice           redis                1  latch 3
#   lease-from-the-answer        redis                7  NOT CAUGHT (it takes a late reply, a fixed lease used to its end, and a waiter
#                                                        just then; caught after 6 runs at another time: exclusion 5)
#   loss-not-believed            redis                4  exclusion 1
#   no-quarantine                redlock              1  exclusion 4
#   notify-lost                  postgres             3  waits 1
#   one-permit-too-many          redis                1  exclusion 1
#   permit-returned-twice        postgres             6  NOT CAUGHT (caught in the first run at another time: counted 1)
#   term-outlives-its-lease      redis                4  exclusion 5
#   token-not-raised             redis                1  jobs 26, tokens 151
#   turn-after-its-lease         redis                7  NOT CAUGHT (caught in the first run at another time: tokens 1, loss told 3; the
#                                                        scheduler finds a similar bug)
#   undo-left-out                zookeeper            1  leaks 5, waits 10
#   wake-up-lost                 redis                1  waits 4
#   who-resigns-leads-on         redis                3  terms 9
#   writer-beside-readers        redis                1  exclusion 24
#
set -u

cd "$(dirname "$0")/../.." || exit 1
root=$PWD
minutes=${MINUTES:-4}
work=$(mktemp -d "${TMPDIR:-/tmp}/leasehold-planted.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

if [ $# -eq 0 ]; then
    for patch in tests/storm/planted/*.patch; do set -- "$@" "$(basename "$patch" .patch)"; done
fi

# The working tree, and the builds of its dependencies. The crate itself is built again, because its
# path differs.
target=${PLANTED_TARGET:-$work/target}
# Always the same path, because the compiler distinguishes crates by their paths.
tree=$target/tree
rm -rf "$tree"
mkdir -p "$tree"
tar -c --exclude=./target --exclude=./.git . | tar -x -C "$tree"
if [ ! -d "$target/debug" ]; then
    mkdir -p "$target/debug" "$target/tmp"
    for part in build deps .fingerprint; do
        [ ! -d "target/debug/$part" ] || tar -c -C target/debug --exclude='*leasehold-*' --exclude="$part/it-*" \
            --exclude="$part/storm-*" --exclude="$part/interop-*" --exclude="$part/curator-*" \
            "$part" | tar -x -C "$target/debug"
    done
    # Maven built it once; the copy would build it again.
    [ ! -d target/tmp/curator ] || cp -a target/tmp/curator "$target/tmp/"
fi
export CARGO_TARGET_DIR="$target"
cd "$tree" || exit 1

field() { # field NAME PATCH
    sed -n "s/^$1: //p" "$2" | head -n 1
}

missed=0
for name in "$@"; do
    patch="$root/tests/storm/planted/$name.patch"
    on=$(field On "$patch")
    wanted=$(field Check "$patch")
    # Some bugs show rarely and under few faults; then only these faults are injected.
    faults=$(field Faults "$patch")
    if [ -n "$faults" ]; then export STORM_FAULTS="$faults"; else unset STORM_FAULTS; fi
    kinds=$(field Kinds "$patch")
    if [ -n "$kinds" ]; then export STORM_ONLY="$kinds"; else unset STORM_ONLY; fi
    git apply "$patch" || exit 1
    # Runs are short: a bug is found in a burst of faults or in the quiet time after it.
    STORM_BRIEF=1 sh tests/storm.sh --minutes "$minutes" --on "$on" --until-caught >"$work/out" 2>&1
    git apply -R "$patch" || exit 1
    runs=$(grep -c '^[a-z-]* *seed' "$work/out")
    caught=$(sed -n 's/.*: FAILED (\([^)]*\)).*/\1/p' "$work/out" | head -n 1)
    if [ "$runs" -eq 0 ]; then
        tail -n 20 "$work/out"
        caught='DID NOT RUN'
        missed=1
    elif ! printf '%s' "$caught" | grep -q "$wanted"; then
        caught="MISSED ${caught:-}"
        missed=1
    fi
    printf '%-28s %-16s %4s  %s\n' "$name" "$on" "$runs" "$caught"
done
exit $missed
