#!/bin/sh
# Builds the command and the program of this folder for Windows, and runs the tests in tests/on_windows, which start
# them with Wine, against servers of this machine. LEASEHOLD_SERVER names the server.
#
#   sh tests/windows/run.sh lacks     prints what is missing to run it, if anything is
#   sh tests/windows/run.sh build     builds, and prints the folder with the programs, for LEASEHOLD_WINDOWS
#   sh tests/windows/run.sh [FILTER]  builds and runs the tests
set -eu
cd "$(dirname "$0")/../.."

platform=x86_64-pc-windows-gnu
target=${CARGO_TARGET_DIR:-target}
programs=$target/windows

lacks() {
    rustup target list --installed 2>/dev/null | grep -qx "$platform" || echo "rustup target add $platform"
    for tool in wine:'wine64 wine' x86_64-w64-mingw32-gcc:mingw-w64; do
        command -v "${tool%%:*}" >/dev/null 2>&1 || echo "apt-get install ${tool#*:}"
    done
}

build() {
    mkdir -p "$programs"
    cargo build --locked --quiet -p leasehold-cli --features tls --target "$platform"
    cargo build --locked --quiet --manifest-path tests/windows/Cargo.toml --target "$platform" --target-dir "$target/windows-program"
    # The debugging information is of no use there, and takes Wine time to load.
    cp "$target/$platform/debug/leasehold.exe" "$target/windows-program/$platform/debug/leasehold-windows.exe" "$programs"
    x86_64-w64-mingw32-strip "$programs/leasehold.exe" "$programs/leasehold-windows.exe"
    x86_64-w64-mingw32-gcc -shared -o "$programs/bcryptprimitives.dll" tests/windows/bcryptprimitives.c -ladvapi32
    # Tests run in the directory of their package.
    (cd "$programs" && pwd)
}

case ${1:-} in
lacks) lacks ;;
build) build ;;
*)
    missing=$(lacks)
    [ -z "$missing" ] || { echo "first: $missing" >&2; exit 1; }
    LEASEHOLD_WINDOWS=$(build)
    export LEASEHOLD_WINDOWS
    cargo test --locked --all-features --test on_windows -- "$@"
    ;;
esac
