#!/bin/sh
# Changes the library in small ways, one at a time (`>` for `>=`, a function that does nothing), and
# runs tests on each: a change that no test notices is code that no test judges. It takes a sample,
# because the whole takes days: with a seed, so that it can be drawn again.
#
#   sh tests/mutants.sh                 30 of each folder, by the seed 38
#   sh tests/mutants.sh --each 60 --seed 1 --jobs 4
#   sh tests/mutants.sh --again         judges once more, but not those that were caught before
#   sh tests/mutants.sh --in store/net  those of one folder, judged by the unit tests of it alone:
#                                       minutes, where the other tests take hours
#   sh tests/mutants.sh --in lease,wait --fully
#                                       those of some folders, judged by all tests
#
# What is changed, and what judges it: tests/mutants/plant.py and judge.py. Survivors that cannot
# matter are in tests/mutants/survivors.txt, each with its reason. Another survivor makes the exit
# status 1. It needs cargo-mutants (installed if missing), python3, and the servers of the tests.
set -eu

cd "$(dirname "$0")/.."
root=$PWD
each=30
seed=38
jobs=2
again=
only=
fully=
while [ $# -gt 0 ]; do
    case $1 in
    --each) each=$2; shift ;;
    --seed) seed=$2; shift ;;
    --jobs) jobs=$2; shift ;;
    --again) again=1 ;;
    --in) only=$2; shift ;;
    --fully) fully=1 ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    [ $# -eq 0 ] || shift
done

tools="${LEASEHOLD_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/leasehold/cargo}"
PATH=$PATH:$tools/bin
command -v cargo-mutants >/dev/null 2>&1 || cargo install --locked --quiet --root "$tools" cargo-mutants@27.1.0
# With `--in` the unit tests beside a mutant are enough, unless all are asked for.
beside=${only:+beside}
[ -z "$fully" ] || beside=
if [ -z "$beside" ]; then
    LEASEHOLD_SERVER=${LEASEHOLD_SERVER:-$(sh tests/server.sh | head -n 1)}
    export LEASEHOLD_SERVER
fi

# Its own target folder: to cargo the copy is the same crate as the original, and the next build of
# that would be taken for done. The copy is always at the same place, so that its builds are reused.
work=${CARGO_TARGET_DIR:-$root/target}/mutants
export CARGO_TARGET_DIR="$work/target"
tree=$work/tree
mkdir -p "$work"
rm -rf "$tree"
mkdir "$tree"
git ls-files -z | tar -cf - --null -T - | tar -xf - -C "$tree"

(cd "$tree" && cargo mutants --list --json --all-features) >"$work/list.json"
python3 tests/mutants/plant.py "$work/list.json" "$tree" "$seed" "$each" "$work/planted" "$work/unviable" "$only" "$beside"

cd "$tree"
it='--test it'
[ -z "$beside" ] || it=
programs=$(cargo test --all-features --no-run --lib $it 2>&1 | tee "$work/built" |
    sed -n 's:.*Executable .*(\(.*\))$:\1:p')
copy() { # PATTERN NAME: a copy, because the next build of the tree itself may replace it
    program=$(echo "$programs" | grep "$1") || { cat "$work/built" >&2; exit 1; }
    cp "$program" "$work/$2"
}
copy /leasehold- leasehold-unit
if [ -z "$beside" ]; then
    copy /it- it
    cp "$CARGO_TARGET_DIR/shuttle/scheduler/scheduler" "$work/scheduler"
fi

results=$work/results-$seed$(echo "${only:+-$only}" | tr /, --)
if [ -z "$again" ]; then
    rm -f "$results"
elif [ -e "$results" ]; then
    sed -i '/SURVIVED$/d' "$results"
fi
exec nice python3 "$root/tests/mutants/judge.py" "$work/planted" "$root/tests/mutants/survivors.txt" "$jobs" "$results" \
    "$beside" "$work/leasehold-unit" "$work/scheduler" "$work/it"
