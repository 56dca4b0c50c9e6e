#!/bin/sh
# Passes the tests: everything that CI runs, from any directory, with a summary
# at the end. A failed step does not stop the ones after it, so that one run
# tells all that is wrong. It finds or installs the servers it needs (server.sh).
#
#   LEASEHOLD_SERVER=path        the server of the main test run
#   LEASEHOLD_REDIS62=path       and of the further runs; looked for when not set
#   LEASEHOLD_VALKEY=path
#   LEASEHOLD_NO_INSTALL=1       install and download no server
#   LEASEHOLD_MSRV_CARGO=path    the cargo of a Rust 1.88, when rustup has none
#   LEASEHOLD_POSTGRES=dir       the directory of PostgreSQL's initdb and pg_ctl
#   LEASEHOLD_INTEROP=0          do not run against a live Redisson, which is done
#                                where a JDK 17 and Maven are; 1: fail if it can't
#   LEASEHOLD_ZOOKEEPER=0        the same for ZooKeeper and a live Curator
#   RUST_TEST_THREADS=n          tests beside each other; most of them wait, so
#                                at least 10 on a small machine
#   CI=true                      a missing rustfmt or clippy is a failure; rustup installs
#                                Rust 1.88 and the platforms that are checked
set -u

cd "$(dirname "$0")/.." || exit 1

msrv='1.88'
platforms='x86_64-pc-windows-gnu x86_64-unknown-linux-musl aarch64-apple-darwin'
# The features of the library for which no C is compiled.
without_c='metrics,postgres,testing,zookeeper'
# Of each step with ZooKeeper.
zookeeper_seconds=600
work=$(mktemp -d "${TMPDIR:-/tmp}/leasehold-run.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

passed=0
failed=0
skipped=0

record() { # record NAME OUTCOME SECONDS
    printf '%-30s %-8s %5ss\n' "$1" "$2" "$3" >>"$work/summary"
}

skip() { # skip NAME REASON
    skipped=$((skipped + 1))
    printf '\n== %s: skipped: %s\n' "$1" "$2"
    printf '%-30s skipped: %s\n' "$1" "$2" >>"$work/summary"
}

fail() { # fail NAME SECONDS
    failed=$((failed + 1))
    printf '== %s: FAILED\n' "$1"
    record "$1" FAILED "$2"
}

step() { # step NAME COMMAND...
    name=$1
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    began=$(date +%s)
    # No step may wait for somebody to type.
    if "$@" </dev/null; then
        passed=$((passed + 1))
        record "$name" ok $(($(date +%s) - began))
    else
        fail "$name" $(($(date +%s) - began))
    fi
}

# A Rust without these is a fine one to run the tests with, but CI must not pass
# because a check was left out.
step_with_component() { # step_with_component CARGO_SUBCOMMAND NAME COMMAND...
    if cargo "$1" --version >/dev/null 2>&1; then
        shift
        step "$@"
    elif [ "${CI:-}" = true ]; then
        printf '\n== %s: cargo %s is missing\n' "$2" "$1"
        fail "$2" 0
    else
        skip "$2" "no cargo $1 (rustup component add rustfmt clippy)"
    fi
}

# ---- the steps that are more than a command --------------------------------

find_servers() {
    sh tests/server.sh --extra >"$work/servers" || return 1
    LEASEHOLD_SERVER=$(head -n 1 "$work/servers")
    export LEASEHOLD_SERVER
    # What the caller named wins over what was found.
    [ -n "${LEASEHOLD_REDIS62:-}" ] || LEASEHOLD_REDIS62=$(sed -n 's/^LEASEHOLD_REDIS62=//p' "$work/servers")
    [ -n "${LEASEHOLD_VALKEY:-}" ] || LEASEHOLD_VALKEY=$(sed -n 's/^LEASEHOLD_VALKEY=//p' "$work/servers")
    # Set and empty is not the same as unset to a program that asks for them.
    if [ -n "$LEASEHOLD_REDIS62" ]; then export LEASEHOLD_REDIS62; else unset LEASEHOLD_REDIS62; fi
    if [ -n "$LEASEHOLD_VALKEY" ]; then export LEASEHOLD_VALKEY; else unset LEASEHOLD_VALKEY; fi
    LEASEHOLD_POSTGRES=$(sed -n 's/^LEASEHOLD_POSTGRES=//p' "$work/servers")
    if [ -n "$LEASEHOLD_POSTGRES" ]; then export LEASEHOLD_POSTGRES; else unset LEASEHOLD_POSTGRES; fi
}

test_on() { # test_on NAME SERVER FILTER...
    name=$1
    server=$2
    shift 2
    if [ -n "$server" ]; then
        # Without the tests for which it makes no difference which server runs.
        step "$name" env LEASEHOLD_SERVER="$server" LEASEHOLD_POSTGRES=0 LEASEHOLD_ZOOKEEPER=0 cargo test --all-features --test it -- \
            --skip bad_input:: --skip cancelling:: --skip escaped_names:: --skip examples:: --skip fencing_sql:: \
            --skip loss_reasons:: --skip memory:: --skip owner:: --skip postgres --skip reading:: --skip rig_servers:: \
            --skip shared_reads:: --skip snapshot:: --skip stats:: --skip stopping:: --skip tidy:: --skip turns:: --skip zookeeper "$@"
    else
        skip "$name" 'no such server here'
    fi
}

# These tests start a PostgreSQL of their own, and say so when there is none: here it counts.
test_on_postgres() {
    step 'unit tests with PostgreSQL alone' cargo test --features postgres --lib
    if [ -n "${LEASEHOLD_POSTGRES:-}" ]; then
        step 'tests on PostgreSQL' cargo test --all-features --test it -- postgres
    else
        skip 'tests on PostgreSQL' 'no initdb and pg_ctl, and the wheel pgserver of PyPI could not be had'
    fi
}

# Says what is missing for ZooKeeper or a live Redisson, if anything is.
lacks_for_java() {
    for tool in java javac mvn; do
        command -v "$tool" >/dev/null 2>&1 || { echo "no $tool (a JDK 17 and Maven are needed)"; return; }
    done
    # 1.8 stands for 8.
    java=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
    [ "${java:-0}" -ge 17 ] || echo "javac is ${java:-unknown} and not 17 or newer"
}

# Against a live Redisson, of the newest version and of the newest before 4.
# Where it can run it must: a build by Maven that failed is no reason to skip.
test_against_redisson() {
    lacks=$(lacks_for_java)
    for version in 4.7.0 3.52.0; do
        if [ "${LEASEHOLD_INTEROP:-}" = 0 ]; then
            skip "tests with Redisson $version" 'LEASEHOLD_INTEROP=0'
        elif [ -z "${LEASEHOLD_SERVER:-}" ]; then
            skip "tests with Redisson $version" 'no server'
        elif [ -n "$lacks" ] && [ "${LEASEHOLD_INTEROP:-}" != 1 ]; then
            skip "tests with Redisson $version" "$lacks"
        else
            step "tests with Redisson $version" env LEASEHOLD_REQUIRE_INTEROP=1 LEASEHOLD_REDISSON="$version" \
                cargo test --all-features --test interop
        fi
    done
}

# On ZooKeepers, one and three, and in turns with a live Curator. Maven may hang at a repository, and an election that
# never ends is a failure: both within a limit, if this system has a command for it.
test_on_zookeeper() {
    lacks=$(lacks_for_java)
    limit=
    command -v timeout >/dev/null 2>&1 && limit="timeout $zookeeper_seconds"
    step 'unit tests with ZooKeeper alone' cargo test --features zookeeper --lib
    for name in 'tests on ZooKeeper' 'tests with Curator'; do
        if [ "${LEASEHOLD_ZOOKEEPER:-}" = 0 ]; then
            skip "$name" 'LEASEHOLD_ZOOKEEPER=0'
        elif [ -n "$lacks" ] && [ "${LEASEHOLD_ZOOKEEPER:-}" != 1 ]; then
            skip "$name" "$lacks"
        elif [ "$name" = 'tests on ZooKeeper' ]; then
            # A JVM for most tests: fewer beside each other.
            # shellcheck disable=SC2086  # a command and its argument, or nothing
            step "$name" $limit env RUST_TEST_THREADS=6 cargo test --all-features --test it -- zookeeper
        else
            # shellcheck disable=SC2086
            step "$name" $limit cargo test --all-features --test curator
        fi
    done
}

# Sets msrv_cargo, if there is a toolchain: nothing here may make rustup download
# one, which asking for `cargo +1.88` does.
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

check_msrv() {
    # Not rustup's rustc, which would be the default toolchain's: the one beside
    # this cargo. Its own target directory, or each run would rebuild everything
    # for the other compiler.
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
    RUSTC="$beside" "$msrv_cargo" check --all-targets --all-features --target-dir target/msrv
}

# What can be said about the MSRV without that toolchain: no dependency asks for
# more. (Clippy, which reads rust-version, refuses what std has only had since.)
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

# Licences, sources and known advisories of the dependencies, as deny.toml says. The advisories come from the network:
# without it that half is left out, and says so.
check_dependencies() {
    if ! cargo deny --version >/dev/null 2>&1; then
        skip 'licences and advisories' 'no cargo deny (cargo install cargo-deny)'
        return
    fi
    step 'licences and sources' cargo deny check licenses bans sources
    if cargo deny fetch db >"$work/advisories" 2>&1; then
        step 'advisories' cargo deny --offline check advisories
    else
        skip 'advisories' "the list of advisories cannot be had: $(grep . "$work/advisories" | tail -n 1)"
    fi
}

# What CI checks must not depend on what was installed there before. Elsewhere nothing is installed
# that was not asked for.
install_rust() {
    [ "${CI:-}" = true ] && command -v rustup >/dev/null 2>&1 || return 0
    if [ -z "${LEASEHOLD_MSRV_CARGO:-}" ]; then
        step "install Rust $msrv" rustup toolchain install "$msrv.0" --profile minimal --no-self-update
    fi
    # shellcheck disable=SC2086  # several platforms
    step 'install platforms' rustup target add $platforms
}

# Compiles for other platforms, as far as their standard library is installed. What needs a C
# compiler for the platform is a step of its own.
check_platforms() {
    installed=$(rustup target list --installed 2>/dev/null) || installed=
    for platform in $platforms; do
        if ! printf '%s\n' "$installed" | grep -qx "$platform"; then
            skip "check for $platform" "not installed (rustup target add $platform)"
            continue
        fi
        step "check for $platform" cargo check --lib --features "$without_c" --target "$platform"
        # The command passes signals on.
        case $platform in
        *windows*) ;;
        *) step "the command for $platform" cargo check --bins --features "cli,$without_c" --target "$platform" ;;
        esac
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
    # With Apple's headers, which only a Mac has.
    *apple*) [ "$(uname -s)" = Darwin ] && candidates='cc' || candidates='' ;;
    *) candidates='' ;;
    esac
    for candidate in $candidates; do
        command -v "$candidate" && return
    done
}

# Sets nightly, if there is a toolchain: `cargo +nightly` may download one.
find_nightly() {
    nightly=$(rustup toolchain list 2>/dev/null | sed -n 's/^\(nightly-[^ ]*\).*/\1/p' | head -n 1)
    [ -n "$nightly" ]
}

# A copy of the manifest with the oldest version of each dependency that it permits,
# fetched. Always in the same place, so that what was compiled is used again.
fetch_minimal_versions() {
    mkdir -p target/minimal || return 1
    for path in src tests benches examples README.md; do
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
    (cd target/minimal && rustup run "$nightly" cargo check --all-features --target-dir target)
}

test_minimal_versions() {
    name='check minimal versions'
    if ! find_nightly; then
        skip "$name" 'no nightly toolchain'
    elif fetch_minimal_versions >"$work/minimal" 2>&1; then
        step "$name" check_minimal_versions
    elif grep -q 'failed to select a version' "$work/minimal"; then
        cat "$work/minimal"
        fail "$name" 0
    else
        skip "$name" "$(tail -n 1 "$work/minimal")"
    fi
}

# ---- everything ------------------------------------------------------------

if ! command -v cargo >/dev/null 2>&1; then
    echo 'cargo is missing: install Rust first' >&2
    exit 1
fi

if [ -z "${RUST_TEST_THREADS:-}" ] && [ "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)" -lt 10 ]; then
    export RUST_TEST_THREADS=10
fi

# Where the tests with ZooKeeper can run they must.
if [ -z "${LEASEHOLD_ZOOKEEPER:-}" ] && [ -z "$(lacks_for_java)" ]; then
    export LEASEHOLD_ZOOKEEPER=1
fi

step 'find a server' find_servers
install_rust
step_with_component fmt 'format' cargo fmt --all --check
step_with_component clippy 'clippy' cargo clippy --workspace --all-targets --all-features -- -D warnings
step_with_component clippy 'clippy without features' cargo clippy --all-targets -- -D warnings
step 'docs' env RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --all-features
step 'docs of private items' env RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --all-features --document-private-items
# Three steps, because cargo stops at the first of them that fails.
step 'unit tests' cargo test --all-features --lib --bins
step 'unit tests with TLS alone' cargo test --features tls --lib
step 'metrics alone' cargo check --features metrics --lib
step 'the command alone' cargo check --features cli --bins
test_on_postgres
if [ -n "${LEASEHOLD_SERVER:-}" ]; then
    step 'tests' cargo test --all-features --test it -- --skip postgres --skip zookeeper
    step 'tests of the command' cargo test --all-features --test cli
    step 'doc tests' cargo test --all-features --doc
else
    for name in 'tests' 'tests of the command' 'doc tests'; do skip "$name" 'no server'; done
fi
test_on 'tests on Redis 6.2' "${LEASEHOLD_REDIS62:-}"
test_on 'tests on Valkey' "${LEASEHOLD_VALKEY:-}" --skip redlock::
test_against_redisson
test_on_zookeeper
step 'examples and benches' cargo build --all-features --examples --benches
check_dependencies
step "dependencies on Rust $msrv" check_msrv_of_dependencies
if find_msrv_cargo; then
    step "check on Rust $msrv" check_msrv
else
    skip "check on Rust $msrv" "no $msrv toolchain"
fi
check_platforms
test_minimal_versions
if [ -f examples/try.sh ]; then
    step 'see it work' sh examples/try.sh
else
    skip 'see it work' 'no examples/try.sh'
fi

printf '\n== summary\n'
cat "$work/summary"
printf 'steps: %s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
