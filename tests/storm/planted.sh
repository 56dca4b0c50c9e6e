#!/bin/sh
# Proves the checker of the storm: builds a copy of the tree with each of the bugs in
# tests/storm/planted, and runs the storm on it until a check catches the bug.
#
#   sh tests/storm/planted.sh                     all of them
#   sh tests/storm/planted.sh wake-up-lost        these
#   MINUTES=6                                     so long at most for each (4)
#   PLANTED_TARGET=directory                      keeps what is built there for the next time
#
# Each patch says on which deployment it is looked for, which check is to find it, and
# whether only some faults are injected, or only some kinds of locks taken.
# Exit status 1 if one was not caught.
#
# What came of it on two cores that other tests used too, 3 minutes at most for each. The first
# numbers are those of the patch, then each check with how often it failed in the run that
# caught it:
#
#   bug                          looked for on     runs  caught by
#   belief-ignores-time          redis                1  exclusion 15
#   callback-left-out            redis                1  loss told 2
#   connections-stay             redis                1  leaks 3, left-overs 1
#   fork-believes                redis                1  forks 7
#   heartbeat-proves-nothing     zookeeper-three      7  exclusion 43
#   last-come-first-served       redis                1  order 8
#   lease-from-the-answer        redis                6  exclusion 5 (another time not in 40 runs: it takes a late answer, a
#                                                        fixed lease used to its end, and somebody who waits just then)
#   loss-not-believed            redis                5  exclusion 1
#   no-quarantine                redlock              1  exclusion 1
#   notify-lost                  postgres             4  waits 2
#   one-permit-too-many          redis                1  exclusion 2
#   token-not-raised             redis                1  tokens 115
#   turn-after-its-lease         redis               11  NOT CAUGHT (another time in the first run: tokens 1, loss told 3; the
#                                                        scheduler finds a bug like it)
#   undo-left-out                zookeeper            1  waits 9, leaks 1
#   wake-up-lost                 redis                6  waits 3
#   writer-beside-readers        redis                1  exclusion 64
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

# The tree as it is, and what was built of its dependencies. The crate itself is built anew, because it has
# another path there.
target=${PLANTED_TARGET:-$work/target}
# Where it was the last time, because the compiler tells crates apart by their paths.
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
    # Made once by Maven; the copy would make it again.
    [ ! -d target/tmp/zookeeper ] || cp -a target/tmp/zookeeper "$target/tmp/"
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
    # Some show under a few faults only, and rarely: then these come one after the other.
    faults=$(field Faults "$patch")
    if [ -n "$faults" ]; then export STORM_FAULTS="$faults"; else unset STORM_FAULTS; fi
    kinds=$(field Kinds "$patch")
    if [ -n "$kinds" ]; then export STORM_ONLY="$kinds"; else unset STORM_ONLY; fi
    git apply "$patch" || exit 1
    # With short runs: a bug is found in a burst of faults or in the rest after it.
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
