#!/bin/sh
# Builds the command as one static file, with all stores and TLS, into target/packages/.
#
#   sh packaging/binary.sh [--target x86_64|aarch64]
#
# It needs Rust by rustup, with the platform (rustup target add x86_64-unknown-linux-musl), and a C compiler
# for ring, which TLS needs: musl-gcc on the same architecture, aarch64-linux-gnu-gcc or
# x86_64-linux-gnu-gcc for the other one. The linker and the C library are those that come with Rust.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
read_target "$@"

command -v cargo >/dev/null 2>&1 || die 'cargo is missing; see https://rustup.rs'
[ -d "$(rustc --print sysroot)/lib/rustlib/$triple" ] ||
    die "Rust's standard library for $triple is missing; run: rustup target add $triple"

# A folder's name in the binary would make it differ from one machine to the next. The separator is
# the one that cargo documents; names may have spaces.
separator=$(printf '\037')
cargo_home=${CARGO_HOME:-$HOME/.cargo}
flags="--remap-path-prefix=$PWD=/leasehold$separator--remap-path-prefix=$cargo_home=/cargo"
compiler=musl-gcc
if [ "$arch" = "$(uname -m)" ]; then
    need musl-gcc musl-tools
else
    # The one for glibc will do: of what ring compiles, nothing calls the C library but for memcpy and its like.
    compiler=$arch-linux-gnu-gcc
    need "$compiler" "gcc-$(echo "$arch" | tr _ -)-linux-gnu"
    flags="$flags${separator}-Clinker=rust-lld${separator}-Clinker-flavor=ld.lld${separator}-Clink-self-contained=yes"
fi
upper=$(echo "$triple" | tr '[:lower:]-' '[:upper:]_')
lower=$(echo "$triple" | tr - _)
unset RUSTFLAGS "CARGO_TARGET_${upper}_RUSTFLAGS"
export CARGO_ENCODED_RUSTFLAGS="$flags"
export "CC_$lower=$compiler"
export "CFLAGS_$lower=-ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$PWD=/leasehold -U_FORTIFY_SOURCE"
# Without the time of the last commit, which build scripts watch: each commit would compile much of it anew, to the same result.
env -u SOURCE_DATE_EPOCH cargo build --locked --package leasehold-cli --profile dist --features "$features" --target "$triple" \
    --target-dir "$target_dir" >&2

mkdir -p "$packages"
# Under another name first: the file of an earlier build may be running.
cp "$target_dir/$triple/dist/leasehold" "$binary.new"
touch -d "@$SOURCE_DATE_EPOCH" "$binary.new"
mv "$binary.new" "$binary"
echo "$binary"
