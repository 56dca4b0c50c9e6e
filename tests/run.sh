#!/bin/sh
# Runs the tests, from any directory, and prints a summary at the end. A failed
# step does not stop the ones after it, so one run reports everything that is
# wrong. It finds or installs the servers that it needs (server.sh).
#
#   sh tests/run.sh              everything that must pass before a change lands
#   sh tests/run.sh --quick      the minimum: format, lints, unit tests, the kernel
#                                under a scheduler, the contract on one Redis and
#                                in memory
#   sh tests/run.sh --all        what CI runs: also Rust 1.88, lints without features,
#                                and if it was touched Curator, other servers, and what
#                                only a release can break
#   sh tests/run.sh --release    the same, with all that a release can break: other
#                                platforms and versions, packages, a soak
#
#   LEASEHOLD_SERVER=path        the server of the main test run
#   LEASEHOLD_REDIS62=path       the servers of the further runs; looked for if
#   LEASEHOLD_VALKEY=path        not set
#   LEASEHOLD_NO_INSTALL=1       install and download no server and no command of cargo
#   LEASEHOLD_TOOLS=dir          where commands of cargo are installed
#   LEASEHOLD_MSRV_CARGO=path    the cargo of Rust 1.88, if rustup has none
#   LEASEHOLD_POSTGRES=dir       the directory of PostgreSQL's initdb and pg_ctl;
#                                0: skip PostgreSQL
#   LEASEHOLD_INTEROP=0          skip the tests against a live Redisson, which run
#                                if there is a JDK 17 and Maven; 1: fail without
#   LEASEHOLD_ZOOKEEPER=0        the same for ZooKeeper and a live Curator
#   LEASEHOLD_UNSTEADY=n         up to n tests may fail once if they then pass
#                                three times when run alone; default 0
#   LEASEHOLD_SINCE=commit       --all: what was changed since then was touched; default:
#                                the last commit that is twelve hours older than HEAD
#   RUST_TEST_THREADS=n          number of tests run in parallel; most of them wait,
#                                so the default is at least 10
#   CI=true                      a missing rustfmt or clippy is a failure; rustup
#                                installs Rust 1.88 and the platforms to check
set -u

cd "$(dirname "$0")/.." || exit 1

form=plain
case "$*" in
'') ;;
--quick) form=quick ;;
--all) form=all ;;
--release) form=release ;;
*)
    echo "usage: sh tests/run.sh [--quick|--all|--release]" >&2
    exit 2
    ;;
esac

msrv='1.88'
platforms='x86_64-pc-windows-gnu x86_64-pc-windows-msvc x86_64-unknown-linux-musl aarch64-apple-darwin'
# The features of the library that compile no C.
without_c='metrics,mysql,postgres,prometheus-client,redlock,serde,testing,tracing,zookeeper'
# Seconds for each test program: Maven may hang at a repository, and an election that never ends is
# a failure.
longest=900
work=$(mktemp -d "${TMPDIR:-/tmp}/leasehold-run.XXXXXX") || exit 1
lanes=
# Stops the other lanes, so that they start no further step.
trap '[ -z "$lanes" ] || kill $lanes 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
started=$(date +%s)
# Tests write here what this user has no right to do, see `cannot_run` in tests/rig.
export LEASEHOLD_SKIPPED="$work/skipped"
: >"$work/unsteady"

# ---- steps and the summary ---------------------------------------------------

# Steps run in lanes, each of which writes its own file: `tests` and `postgres`, which mostly
# wait, and in parallel `checks`, which compiles.
lane=tests

record() { # record NAME OUTCOME SECONDS [KIND]
    printf '%-34s %-8s %5ss  %s\n' "$1" "$2" "$3" "${4:-}" >>"$work/summary.$lane"
}

skip() { # skip NAME REASON
    printf '\n== %s: skipped: %s\n' "$1" "$2"
    printf '%-34s skipped: %s\n' "$1" "$2" >>"$work/summary.$lane"
}

step() { # step NAME COMMAND...
    name=$1
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    began=$(date +%s)
    # No step may wait for input.
    if "$@" </dev/null; then
        record "$name" ok $(($(date +%s) - began)) "${kind:-}"
    else
        printf '== %s: FAILED\n' "$name"
        record "$name" FAILED $(($(date +%s) - began)) "${kind:-}"
    fi
}

# A step that compiles what later steps run.
build() { # build NAME COMMAND...
    kind=build
    step "$@"
    kind=
}

# Runs steps in a lane of their own, in parallel with those that follow.
beside() { # beside LANE COMMAND...
    (
        lane=$1
        shift
        # The tests have priority: some of them must answer within a fraction of a second.
        [ "$lane" != checks ] || renice -n 19 -p "$(exec sh -c 'echo "$PPID"')" >/dev/null 2>&1
        "$@"
    ) >"$work/said.$1" 2>&1 &
    lanes="$lanes $!"
}

# A Rust without these components can run the tests, but CI must not pass because a check was
# skipped.
step_with_component() { # step_with_component CARGO_SUBCOMMAND NAME COMMAND...
    if cargo "$1" --version >/dev/null 2>&1; then
        shift
        step "$@"
    elif [ "${CI:-}" = true ]; then
        printf '\n== %s: cargo %s is missing\n' "$2" "$1"
        record "$2" FAILED 0
    else
        skip "$2" "no cargo $1 (rustup component add rustfmt clippy)"
    fi
}

# ---- what only a release can break -------------------------------------------

# It runs in `--release`, and in `--all` if one of its files was changed, committed or not. Without a history nobody
# knows, and all of it runs.
find_since() {
    [ -z "${LEASEHOLD_SINCE:-}" ] || { git rev-parse --verify "$LEASEHOLD_SINCE^{commit}"; return; }
    written=$(git log -1 --format=%ct 2>/dev/null) || return 0
    git rev-list -1 --before=$((written - 12 * 3600)) HEAD
}

touched() { # touched NAME FILE...
    name=$1
    shift
    [ "$form" = all ] && [ -n "$since" ] && git diff --quiet "$since" -- "$@" || return 0
    skip "$name" 'nothing of it was touched; --release runs it'
    return 1
}

manifests='Cargo.toml Cargo.lock cli/Cargo.toml'
# What depends on the platform.
of_platforms='src/os src/store/net cli/src/platform cli/src/run'

# ---- the steps that are more than a command --------------------------------

find_servers() {
    sh tests/server.sh --extra >"$work/servers" || return 1
    LEASEHOLD_SERVER=$(head -n 1 "$work/servers")
    export LEASEHOLD_SERVER
    # What the caller set takes precedence over what was found.
    [ -n "${LEASEHOLD_REDIS62:-}" ] || LEASEHOLD_REDIS62=$(sed -n 's/^LEASEHOLD_REDIS62=//p' "$work/servers")
    [ -n "${LEASEHOLD_VALKEY:-}" ] || LEASEHOLD_VALKEY=$(sed -n 's/^LEASEHOLD_VALKEY=//p' "$work/servers")
    # A program that reads the variable treats an empty value differently from an unset one.
    if [ -n "$LEASEHOLD_REDIS62" ]; then export LEASEHOLD_REDIS62; else unset LEASEHOLD_REDIS62; fi
    if [ -n "$LEASEHOLD_VALKEY" ]; then export LEASEHOLD_VALKEY; else unset LEASEHOLD_VALKEY; fi
    [ -n "${LEASEHOLD_POSTGRES:-}" ] || LEASEHOLD_POSTGRES=$(sed -n 's/^LEASEHOLD_POSTGRES=//p' "$work/servers")
    if [ -n "$LEASEHOLD_POSTGRES" ]; then export LEASEHOLD_POSTGRES; else unset LEASEHOLD_POSTGRES; fi
    [ -n "${LEASEHOLD_MYSQL:-}" ] || LEASEHOLD_MYSQL=$(sed -n 's/^LEASEHOLD_MYSQL=//p' "$work/servers")
    if [ -n "$LEASEHOLD_MYSQL" ]; then export LEASEHOLD_MYSQL; else unset LEASEHOLD_MYSQL; fi
}

# The test programs, built once for all steps. They are run without cargo, which would wait for any
# other build to finish.
build_tests() { # build_tests ARGUMENTS OF cargo test...
    cargo test --all-features --no-run "$@" 2>&1 | tee -a "$work/programs"
    # The exit status of a pipe is that of its last command.
    grep -q 'Executable' "$work/programs"
}

program() { # program it|cli|interop|curator
    sed -n "s:.*Executable tests/$1/main.rs (\(.*\))$:\1:p" "$work/programs"
}

# With a time limit, if this system has `timeout`.
in_time() {
    if command -v timeout >/dev/null 2>&1; then timeout "$longest" "$@"; else "$@"; fi
}

run_tests() { # run_tests PROGRAM ARGUMENTS...
    program=$(program "$1")
    shift
    [ -n "$program" ] || { echo 'it was not built'; return 1; }
    output="$work/output.$lane"
    # The exit status of a pipe is that of its last command.
    { in_time "$program" "$@" 2>&1 && echo passed >"$output.passed"; } | tee "$output"
    [ ! -e "$output.passed" ] || { rm "$output.passed"; return 0; }
    # The output of each failed test is repeated at the end, where it is easy to find.
    awk '/^---- .* stdout ----$/ { said = 1 } /^failures:$/ { said = 0 } said' "$output" >>"$work/reasons.$lane"
    failed=$(sed -n '/^failures:$/,$ s/^    \([a-z0-9_:]*\)$/\1/p' "$output" | sort -u)
    # shellcheck disable=SC2086  # several tests
    unsteady "$program" $failed
}

# A shared machine can stall for seconds. A test that fails is run again by itself, three times; if
# it passes each time it is unsteady: a bug to find, which the summary names. LEASEHOLD_UNSTEADY
# says how many are tolerated.
unsteady() { # unsteady PROGRAM TEST...
    program=$1
    shift
    known=$(wc -l <"$work/unsteady")
    [ $# -gt 0 ] && [ $((known + $#)) -le "${LEASEHOLD_UNSTEADY:-0}" ] || return 1
    for test in "$@"; do
        for _ in 1 2 3; do
            in_time "$program" --exact "$test" || return 1
        done
        echo "$test" >>"$work/unsteady"
    done
}

with() ( # with NAME=VALUE COMMAND...
    # shellcheck disable=SC2163  # the assignment, and not a variable of that name
    export "$1"
    shift
    "$@"
)

run_unit_tests() {
    for program in $(sed -n 's:.*Executable unittests src/.*(\(.*\))$:\1:p' "$work/programs"); do
        "$program" --quiet || return 1
    done
}

# The tests for which another server or version can make a difference: what is stored and how,
# scripts, replicas and failovers, slots, users and their rights, what a server reports about itself
# and when it refuses. The promises of the kernel are tested on one server; the rest of `contract`
# depends on this library only. These servers are built without TLS.
differs_by_server='contract::redis:: bad_servers::acl bad_servers::foreign_data bad_servers::full_and_busy
    bad_servers::roles bad_servers::unsupported cluster:: credentials:: diagnosis::redis diagnosis::rights fair:: golden::
    late_releases:: latch:: listing::on_redis mixed_kinds:: model:: multi:: redlock::quarantine redlock::tokens
    replicas:: restarts:: rig_servers:: rwlock:: scripts:: scripts_twice:: semaphore:: sentinel::'

test_on() { # test_on NAME SERVER
    if [ -n "$2" ]; then
        # shellcheck disable=SC2086  # several filters
        step "$1" with LEASEHOLD_SERVER="$2" run_tests it $differs_by_server \
            --skip contract::cluster --skip contract::sentinel --skip tls --skip postgres --skip mysql --skip zookeeper --skip memory
    else
        skip "$1" 'no such server here'
    fi
}

# If the build options are unknown, TLS is assumed.
postgres_lacks_tls() {
    programs=$(dirname "$(readlink -f "$LEASEHOLD_POSTGRES/pg_ctl")")
    [ -x "$programs/pg_config" ] && ! "$programs/pg_config" --configure | grep -q ssl
}

test_on_postgres() {
    name='tests on PostgreSQL'
    if [ "${LEASEHOLD_POSTGRES:-}" = 0 ]; then
        skip "$name" 'LEASEHOLD_POSTGRES=0'
    elif [ -z "${LEASEHOLD_POSTGRES:-}" ]; then
        skip "$name" 'no initdb and pg_ctl, and the wheel pgserver could not be fetched from PyPI'
    elif postgres_lacks_tls; then
        skip 'TLS with PostgreSQL' 'it is built without'
        step "$name" with RUST_TEST_THREADS=6 run_tests it postgres --skip postgres::secure
    else
        step "$name" with RUST_TEST_THREADS=6 run_tests it postgres
    fi
}

test_on_mysql() {
    if [ "${LEASEHOLD_MYSQL:-}" = 0 ]; then
        skip 'tests on MySQL' 'LEASEHOLD_MYSQL=0'
    elif [ -z "${LEASEHOLD_MYSQL:-}" ]; then
        skip 'tests on MySQL' 'no mysqld, and no packages of MariaDB could be fetched'
    else
        step 'tests on MySQL' with RUST_TEST_THREADS=6 run_tests it mysql
    fi
}

# Prints what is missing for ZooKeeper or a live Redisson, if anything is.
lacks_for_java() {
    for tool in java javac mvn; do
        command -v "$tool" >/dev/null 2>&1 || { echo "no $tool (a JDK 17 and Maven are needed)"; return; }
    done
    # 1.8 means 8.
    java=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
    [ "${java:-0}" -ge 17 ] || echo "javac is ${java:-unknown} and not 17 or newer"
}

# If it can run it must: a failed Maven build is no reason to skip.
test_with_java() { # test_with_java NAME WISH COMMAND...
    name=$1
    wish=$2
    shift 2
    lacks=$(lacks_for_java)
    if [ "$wish" = 0 ]; then
        skip "$name" 'disabled by its variable'
    elif [ -n "$lacks" ] && [ "$wish" != 1 ]; then
        skip "$name" "$lacks"
    else
        step "$name" "$@"
    fi
}

# Against the newest version, or the newest before 4.
test_with_redisson() { # test_with_redisson VERSION
    test_with_java "tests with Redisson $1" "${LEASEHOLD_INTEROP:-}" \
        with LEASEHOLD_REDISSON="$1" run_tests interop
}

# On single ZooKeepers and ensembles of three.
test_on_zookeeper() {
    # Each of many tests runs a JVM, so fewer run in parallel.
    test_with_java 'tests on ZooKeeper' "${LEASEHOLD_ZOOKEEPER:-}" \
        with RUST_TEST_THREADS=6 run_tests it zookeeper
}

# Sets msrv_cargo, if that toolchain is installed. Nothing here may make rustup download one, which
# `cargo +1.88` would do.
find_msrv_cargo() {
    msrv_cargo=${LEASEHOLD_MSRV_CARGO:-}
    [ -z "$msrv_cargo" ] || return 0
    if command -v rustup >/dev/null 2>&1; then
        toolchain=$(rustup toolchain list 2>/dev/null | sed -n "s/^\(${msrv}[.-][^ ]*\).*/\1/p" | head -n 1)
        if [ -n "$toolchain" ]; then
            msrv_cargo=$(rustup which --toolchain "$toolchain" cargo 2>/dev/null) && return 0
        fi
    fi
    # Where Ubuntu's package of this version puts it.
    msrv_cargo="/usr/lib/rust-$msrv/bin/cargo"
    [ -x "$msrv_cargo" ]
}

# Compiles the library and the command. A release also compiles the tests, runs those of the units, and links the command.
check_msrv() (
    # Not rustup's rustc, which would be the default toolchain's, but the one beside this cargo. It
    # has its own target directory, or each run would rebuild everything for the other compiler.
    beside=$(dirname "$msrv_cargo")/rustc
    [ -x "$beside" ] || beside=rustc
    "$beside" --version
    case $("$beside" --version) in
    "rustc $msrv."*) ;;
    *)
        printf 'that is not Rust %s\n' "$msrv"
        return 1
        ;;
    esac
    export RUSTC="$beside"
    "$msrv_cargo" check -p leasehold -p leasehold-cli --all-features --target-dir target/msrv || return 1
    [ "$form" = release ] || return 0
    "$msrv_cargo" check -p leasehold -p leasehold-cli --all-targets --all-features --target-dir target/msrv &&
        "$msrv_cargo" test --quiet -p leasehold --lib --all-features --target-dir target/msrv &&
        "$msrv_cargo" build -p leasehold-cli --target-dir target/msrv
)

# What can be checked about the MSRV without that toolchain: no dependency requires a newer Rust.
# (Clippy, which reads rust-version, rejects what std has only had since.)
check_msrv_of_dependencies() {
    cargo metadata --format-version 1 --all-features >"$work/metadata" || return 1
    tr ',' '\n' <"$work/metadata" | awk -F '"' -v msrv="$msrv" '
        $2 == "id" { package = $4; sub(/.*[#\/]/, "", package) }
        $2 == "rust_version" && $4 != "" {
            seen++
            split($4, v, "."); split(msrv, m, ".")
            if (v[1] + 0 > m[1] + 0 || (v[1] + 0 == m[1] + 0 && v[2] + 0 > m[2] + 0)) {
                print package " needs Rust " $4 ", we promise " msrv
                bad = 1
            }
        }
        END {
            print seen + 0 " packages state the Rust they need"
            exit bad || !seen
        }'
}

# Commands of cargo that no Rust brings are installed once, into a folder of their own.
export LEASEHOLD_TOOLS="${LEASEHOLD_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/leasehold/cargo}"
PATH=$PATH:$LEASEHOLD_TOOLS/bin

have_tool() { # have_tool NAME VERSION
    command -v "$1" >/dev/null 2>&1 && return
    [ "${LEASEHOLD_NO_INSTALL:-}" != 1 ] || return 1
    build "install $1" cargo install --locked --quiet --root "$LEASEHOLD_TOOLS" "$1@$2"
    command -v "$1" >/dev/null 2>&1
}

# The crates as a registry gets them; for a commit with the tag of a release also what only that needs.
check_crates() {
    step 'packages of the registry' sh packaging/crates.sh package
    if have_tool cargo-hack 0.6.46; then
        step 'each feature' sh packaging/crates.sh features
        # They take minutes, and one breaks rarely alone.
        [ "$form" != release ] || step 'each pair of features' sh packaging/crates.sh pairs
    else
        skip 'each feature' 'no cargo-hack, and LEASEHOLD_NO_INSTALL is set'
    fi
    if ! git describe --tags --match 'v[0-9]*' >/dev/null 2>&1; then
        skip 'the interface since the last release' 'nothing is released yet: there is no tag v*'
    elif have_tool cargo-semver-checks 0.51.0; then
        step 'the interface since the last release' sh packaging/crates.sh semver
    else
        skip 'the interface since the last release' 'no cargo-semver-checks, and LEASEHOLD_NO_INSTALL is set'
    fi
    if find_nightly; then
        step 'docs as docs.rs builds them' sh packaging/crates.sh docs
    else
        skip 'docs as docs.rs builds them' 'no nightly toolchain'
    fi
    if git describe --exact-match --tags --match 'v[0-9]*' >/dev/null 2>&1; then
        step 'what a release needs' sh packaging/crates.sh release
    fi
}

# Licences, sources and known advisories of the dependencies, according to deny.toml. The advisories
# come from the network: without it that half is skipped, and the summary says so.
check_dependencies() {
    if ! have_tool cargo-deny 0.20.2; then
        skip 'licences and advisories' 'no cargo-deny, and LEASEHOLD_NO_INSTALL is set'
        return
    fi
    step 'licences and sources' cargo deny check licenses bans sources
    if cargo deny fetch db >"$work/advisories" 2>&1; then
        step 'advisories' cargo deny --offline check advisories
    else
        skip 'advisories' "the list of advisories could not be fetched: $(grep . "$work/advisories" | tail -n 1)"
    fi
}

# CI must not depend on what was installed before. Elsewhere nothing is installed that was not asked
# for.
install_rust() {
    [ "${CI:-}" = true ] && command -v rustup >/dev/null 2>&1 || return 0
    if [ -z "${LEASEHOLD_MSRV_CARGO:-}" ]; then
        step "install Rust $msrv" rustup toolchain install "$msrv.0" --profile minimal --no-self-update
    fi
    # shellcheck disable=SC2086  # several platforms
    step 'install platforms' rustup target add $platforms
}

# Compiles for other platforms whose standard library is installed. TLS, which needs a C compiler
# for the platform, is a step of its own.
check_platforms() {
    installed=$(rustup target list --installed 2>/dev/null) || installed=
    for platform in $platforms; do
        if ! printf '%s\n' "$installed" | grep -qx "$platform"; then
            skip "check for $platform" "not installed (rustup target add $platform)"
            continue
        fi
        step "check for $platform" cargo check --lib --features "$without_c" --target "$platform"
        step "the command for $platform" cargo check -p leasehold-cli --target "$platform"
        compiler=$(c_compiler_for "$platform")
        if [ -n "$compiler" ]; then
            step "TLS for $platform" cargo check --lib --features "tls,$without_c" --target "$platform"
        else
            skip "TLS for $platform" 'no C compiler for it, which ring needs'
        fi
    done
}

c_compiler_for() { # c_compiler_for PLATFORM
    case $1 in
    *windows-gnu) candidates='x86_64-w64-mingw32-gcc' ;;
    *musl) candidates='musl-gcc x86_64-linux-musl-gcc' ;;
    # It needs Apple's headers, which only a Mac has.
    *apple*) [ "$(uname -s)" = Darwin ] && candidates='cc' || candidates='' ;;
    *) candidates='' ;;
    esac
    for candidate in $candidates; do
        command -v "$candidate" && return
    done
}

# TLS with the provider of a program that does not want ring. The one that is validated for FIPS takes minutes to
# build.
check_providers() {
    name='TLS with aws-lc-rs'
    if [ -z "${LEASEHOLD_SERVER:-}" ]; then
        skip "$name" 'no server'
        return
    fi
    step "$name" provider
    if [ "${LEASEHOLD_FIPS:-}" = 1 ]; then
        step "$name and FIPS" provider --features fips
    else
        skip "$name and FIPS" 'LEASEHOLD_FIPS=1 asks for it; it takes minutes to build'
    fi
}

provider() { # provider ARGS...
    # Not `cargo tree -i ring`: that succeeds also if ring is only in Cargo.lock, as an option of rustls.
    cargo tree --locked --manifest-path tests/providers/Cargo.toml --prefix none >"$work/providers" || return 1
    if grep '^ring ' "$work/providers"; then
        echo 'ring has come back'
        return 1
    fi
    cargo run --quiet --locked --manifest-path tests/providers/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/providers" "$@"
}

# Sets nightly, if that toolchain is installed: `cargo +nightly` may download one.
find_nightly() {
    nightly=$(rustup toolchain list 2>/dev/null | sed -n 's/^\(nightly-[^ ]*\).*/\1/p' | head -n 1)
    [ -n "$nightly" ]
}

# Copies the manifest, lowers each dependency to the oldest version that it permits, and fetches
# them. The copy is always in the same place, so that compiled dependencies are reused.
fetch_minimal_versions() {
    mkdir -p target/minimal || return 1
    for path in cli src tests benches examples README.md; do
        ln -sfn "$PWD/$path" "target/minimal/$path" || return 1
    done
    cp Cargo.toml Cargo.lock target/minimal/ || return 1
    (
        cd target/minimal || exit 1
        rustup run "$nightly" cargo update -Z direct-minimal-versions || exit 1
        rustup run "$nightly" cargo fetch --target "$(rustc -vV | sed -n 's/^host: //p')"
    )
}

check_minimal_versions() {
    (cd target/minimal && rustup run "$nightly" cargo check -p leasehold -p leasehold-cli --all-features --target-dir target)
}

test_minimal_versions() {
    name='check minimal versions'
    if ! find_nightly; then
        skip "$name" 'no nightly toolchain'
    elif fetch_minimal_versions >"$work/minimal" 2>&1; then
        step "$name" check_minimal_versions
    elif grep -q 'failed to select a version' "$work/minimal"; then
        cat "$work/minimal"
        record "$name" FAILED 0
    else
        skip "$name" "$(tail -n 1 "$work/minimal")"
    fi
}

# Programs for Windows, which Wine starts, against servers of this machine.
test_on_windows() {
    on_windows='Windows, under Wine'
    missing=$(sh tests/windows/run.sh lacks | paste -sd ',' -)
    if [ -n "$missing" ]; then
        skip "$on_windows" "it needs: $missing"
    elif [ -z "${LEASEHOLD_SERVER:-}" ]; then
        skip "$on_windows" 'no server'
    else
        build 'build for Windows' build_for_windows
        # Each of these tests runs several programs under Wine, which takes the processor to start.
        # shellcheck disable=SC2086  # several arguments
        step "$on_windows" with LEASEHOLD_WINDOWS="$(cat "$work/windows")" with RUST_TEST_THREADS=4 \
            run_tests on_windows $without_postgres $without_zookeeper
    fi
}

build_for_windows() {
    sh tests/windows/run.sh build >"$work/windows"
}

# The command as a file: a static binary, a .deb and an image, installed and run; what the recipes run; and the
# queries of the dashboard and of the alerts.
test_packages() {
    missing=$(sh packaging/needs.sh build test | paste -sd ',' -)
    if [ -n "$missing" ]; then
        skip 'packages' "missing: $missing"
    elif [ -z "${LEASEHOLD_SERVER:-}" ]; then
        skip 'packages' 'no server'
    else
        build 'build the packages' sh packaging/build.sh
        step 'packages' sh packaging/test.sh
    fi
    missing=$(sh packaging/needs.sh recipes | paste -sd ',' -)
    if [ -n "$missing" ]; then
        skip 'recipes' "missing: $missing"
    elif [ -z "${LEASEHOLD_SERVER:-}" ]; then
        skip 'recipes' 'no server'
    else
        # What the tests of the command run.
        step 'recipes' sh packaging/recipes/test.sh "${CARGO_TARGET_DIR:-target}/debug/leasehold"
    fi
    missing=$(sh packaging/needs.sh watching | paste -sd ',' -)
    if [ -n "$missing" ]; then
        skip 'dashboard and alerts' "missing: $missing"
    elif [ -z "${LEASEHOLD_SERVER:-}" ]; then
        skip 'dashboard and alerts' 'no server'
    else
        build 'build the example metrics' cargo build --all-features --example metrics
        built=${CARGO_TARGET_DIR:-target}/debug
        step 'dashboard and alerts' sh packaging/watching/test.sh "$built/leasehold" "$built/examples/metrics"
    fi
}

# ---- what is run -----------------------------------------------------------

lints() {
    kind=build
    step_with_component clippy 'lints' cargo clippy --workspace --all-targets --all-features -- -D warnings
    kind=
}

# It builds in its own target directory, so it waits for no other build.
scheduler() { # scheduler SECONDS
    step 'the kernel under a scheduler' sh tests/scheduler.sh --seconds "$1"
}

quick() {
    beside checks scheduler 10
    step_with_component fmt 'format' cargo fmt --all --check
    lints
    build 'build' build_tests --lib --test it
    build 'build the command' build_tests -p leasehold-cli --bins
    step 'unit tests' run_unit_tests
    step 'the contract' run_tests it contract::redis contract::memory tidy
}

# Mostly waits for servers.
tests() {
    step 'unit tests' run_unit_tests
    if [ -n "${LEASEHOLD_SERVER:-}" ]; then
        step 'tests on Redis' run_tests it --skip postgres --skip mysql --skip zookeeper
        step 'tests of the command' run_tests cli $without_postgres $without_mysql $without_zookeeper
        test_with_redisson 4.7.0
    else
        for name in 'tests on Redis' 'tests of the command' 'tests with Redisson'; do skip "$name" 'no server'; done
    fi
    test_on_zookeeper
    # The same as `tests/storm.sh --short`.
    step 'a short storm' with LEASEHOLD_ZOOKEEPER="${LEASEHOLD_ZOOKEEPER:-1}" \
        with LEASEHOLD_MYSQL="${LEASEHOLD_MYSQL:-0}" run_tests storm storm:: --test-threads="${STORM_THREADS:-5}"
    [ "$form" != plain ] || return 0
    if touched 'tests with Curator' src/store/zookeeper tests/curator tests/java tests/support/java; then
        test_with_java 'tests with Curator' "${LEASEHOLD_ZOOKEEPER:-}" with RUST_TEST_THREADS=6 run_tests curator
    fi
    if touched 'tests on Redis 6.2 and Valkey' src/store/redis src/store/redlock tests/it/scripts; then
        test_on 'tests on Redis 6.2' "${LEASEHOLD_REDIS62:-}"
        test_on 'tests on Valkey' "${LEASEHOLD_VALKEY:-}"
    fi
    if touched 'a minute of the soak' tests/soak.sh tests/storm; then
        step 'a minute of the soak' with LEASEHOLD_ZOOKEEPER="${LEASEHOLD_ZOOKEEPER:-1}" \
            with STORM_PROGRAM="$(program storm)" sh tests/soak.sh --minutes 1 --every 5
    fi
    if touched 'tests with Redisson 3.52.0' tests/interop tests/java tests/support/java src/store/redis/lua; then test_with_redisson 3.52.0; fi
    # shellcheck disable=SC2086  # here and below: several paths
    if touched 'Windows, under Wine' $of_platforms tests/windows tests/on_windows; then test_on_windows; fi
}

# Mostly compiles.
checks() {
    lints
    step 'docs' env RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --all-features
    # As a user makes them, who has chosen no feature.
    step 'docs with default features' env RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --lib
    # Links to items of another feature break only here.
    step 'docs without features' env RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --lib --no-default-features
    step 'doc tests' cargo test --all-features --doc
    step "dependencies on Rust $msrv" check_msrv_of_dependencies
    seconds=30
    [ "$form" != release ] || seconds=120
    scheduler "$seconds"
    [ "$form" != plain ] || return 0
    step_with_component clippy 'all targets without features' cargo clippy --all-targets -- -D warnings
    step_with_component clippy 'lints of the scheduler' env RUSTFLAGS='--cfg shuttle' CARGO_TARGET_DIR=target/shuttle \
        cargo clippy -p leasehold-scheduler -- -D warnings
    step 'docs of private items' env RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --all-features --document-private-items
    check_dependencies
    if find_msrv_cargo; then
        step "Rust $msrv" check_msrv
    else
        skip "Rust $msrv" "no $msrv toolchain"
    fi
    check_for_a_release
}

# shellcheck disable=SC2086
check_for_a_release() {
    if touched 'the crates of the registry' $manifests packaging/crates.sh src/lib.rs; then check_crates; fi
    if touched 'other platforms' $manifests $of_platforms; then check_platforms; fi
    if touched 'TLS with aws-lc-rs' Cargo.lock src/store/tls tests/providers; then check_providers; fi
    if touched 'check minimal versions' $manifests; then test_minimal_versions; fi
    if touched 'packages' cli/Cargo.toml packaging; then test_packages; fi
}

if ! command -v cargo >/dev/null 2>&1; then
    echo 'cargo is missing: install Rust first' >&2
    exit 1
fi

if [ -z "${RUST_TEST_THREADS:-}" ] && [ "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)" -lt 10 ]; then
    export RUST_TEST_THREADS=10
fi

step 'find a server' find_servers
if [ "$form" = quick ]; then
    quick
else
    without_postgres=
    [ -n "${LEASEHOLD_POSTGRES:-0}" ] && [ "${LEASEHOLD_POSTGRES:-0}" != 0 ] || without_postgres='--skip postgres'
    without_mysql=
    [ -n "${LEASEHOLD_MYSQL:-}" ] && [ "$LEASEHOLD_MYSQL" != 0 ] || without_mysql='--skip mysql'
    without_zookeeper=
    [ "${LEASEHOLD_ZOOKEEPER:-}" != 0 ] && [ -z "$(lacks_for_java)" ] || without_zookeeper='--skip zookeeper'
    if [ "$form" = all ]; then since=$(find_since) || exit 2; fi
    # Each command that a user needs is taken away, and not only a few.
    [ "$form" = plain ] || export LEASEHOLD_ALL=1
    [ "$form" = plain ] || install_rust
    step_with_component fmt 'format' cargo fmt --all --check
    build 'build' build_tests -p leasehold -p leasehold-cli
    beside checks checks
    beside postgres test_on_postgres
    beside mysql test_on_mysql
    tests
fi
for other in $lanes; do wait "$other"; done
lanes=
cat "$work"/said.*

cat "$work"/summary.* >"$work/all"
count() { grep -c "$1" "$work/all"; }
for reasons in "$work"/reasons.*; do [ ! -s "$reasons" ] || { printf '\n== what failed\n'; cat "$reasons"; }; done
printf '\n== summary\n'
cat "$work/all"
[ ! -s "$work/unsteady" ] || sed 's/^/unsteady, a bug to find: /' "$work/unsteady"
[ ! -s "$work/skipped" ] || sed 's/^/not run: /' "$work/skipped"
built=$(awk '$NF == "build" { sum += $(NF - 1) } END { print sum + 0 }' "$work/all")
printf 'steps: %s passed, %s failed, %s skipped; %s s, of which %s s to build\n' \
    "$(count ' ok ')" "$(count ' FAILED ')" "$(count ' skipped: ')" $(($(date +%s) - started)) "$built"
[ "$(count ' FAILED ')" -eq 0 ]
