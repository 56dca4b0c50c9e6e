#!/bin/sh
# Says what is inside the binary, into target/packages/: an SBOM (CycloneDX 1.5, JSON) with version, licence and checksum
# of each crate, and a text with the notices that the licences of these crates ask for.
#
#   sh packaging/inventory.sh [--target x86_64|aarch64]
#
# It needs cargo and python3 (only its standard library). `cargo tree` says which crates are linked with the features and for the
# platform of the binary; crates that only run while it is built (proc macros, build scripts) are not in it.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
read_target "$@"
need python3 python3
command -v cargo >/dev/null 2>&1 || die 'cargo is missing; see https://rustup.rs'

work=$(mktemp -d "${TMPDIR:-/tmp}/leasehold-inventory.XXXXXX")
trap 'rm -rf "$work"' EXIT
cargo tree --locked --package leasehold-cli --features "$features" --target "$triple" --edges normal,no-proc-macro \
    --prefix depth --format ' {p}' >"$work/tree"
cargo metadata --locked --format-version 1 --filter-platform "$triple" --all-features >"$work/metadata"
mkdir -p "$packages"
python3 packaging/inventory.py --tree "$work/tree" --metadata "$work/metadata" --lock Cargo.lock \
    --triple "$triple" --rustc "$(rustc --version)" --epoch "$SOURCE_DATE_EPOCH" \
    --sbom "$binary.cdx.json" --notices "$binary.notices.txt"
python3 packaging/inventory.py --check "$binary.cdx.json"
printf '%s\n' "$binary.cdx.json" "$binary.notices.txt"
