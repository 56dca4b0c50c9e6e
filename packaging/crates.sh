#!/bin/sh
# Checks the crates as a registry would get them: each is packaged, and the packages are compiled by
# themselves, with their examples; all links of their READMEs work there; each feature and each pair of features
# compiles; the interface keeps its promise since the last release. Publishes nothing.
#
#   sh packaging/crates.sh package      package and compile, also with `cargo publish --dry-run`
#   sh packaging/crates.sh features     each feature
#   sh packaging/crates.sh pairs        each pair of features
#   sh packaging/crates.sh semver       the interface, beside that of the last tag v*
#   sh packaging/crates.sh docs         the pages as docs.rs builds them (needs a nightly toolchain)
#   sh packaging/crates.sh release      what only a release needs: the address, the date, a clean tree
#
# A commit with a tag v* is a release.
set -eu

cd "$(dirname "$0")/.."
# The tools that cargo installs; tests/run.sh puts them there.
PATH=$PATH:${LEASEHOLD_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/leasehold/cargo}/bin
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac

die() { printf 'crates.sh: %s\n' "$*" >&2; exit 1; }

# A registry refuses more than 10 MB; what is far larger than it was has files that nobody needs.
largest=1000000

package() {
    crates=$target/crates
    rm -rf "$crates/package"
    # Cargo compiles the command against the library that it has just packaged. As the version is the
    # same it would take one that it unpacked or compiled for an earlier commit.
    registry=${CARGO_HOME:-$HOME/.cargo}/registry
    rm -rf "$registry"/src/-*/leasehold-[0-9]* "$registry"/cache/-*/leasehold-[0-9]* "$crates"/debug/.fingerprint/leasehold-*
    # A change that is not committed is no reason to refuse a check.
    cargo package -p leasehold -p leasehold-cli --allow-dirty --target-dir "$crates"
    cargo publish --dry-run --no-verify --workspace --allow-dirty --target-dir "$crates"
    for crate in leasehold leasehold-cli; do
        file=$(ls "$crates/package/$crate"-[0-9]*.crate)
        size=$(wc -c <"$file")
        printf '%s: %s bytes, %s files\n' "$(basename "$file")" "$size" "$(tar -tzf "$file" | wc -l)"
        [ "$size" -le $largest ] || die "$crate is larger than $largest bytes: what has come in?"
        for licence in LICENSE-MIT LICENSE-APACHE README.md; do
            tar -tzf "$file" | grep -q "/$licence\$" || die "$crate has no $licence"
        done
    done
    # What a user gets can build what it shows.
    rm -rf "$crates/unpacked"
    mkdir -p "$crates/unpacked"
    tar -xzf "$crates/package/leasehold"-[0-9]*.crate -C "$crates/unpacked" --strip-components=1
    # Otherwise cargo takes it for a member of the workspace around it.
    printf '\n[workspace]\n' >>"$crates/unpacked/Cargo.toml"
    cargo check --quiet --manifest-path "$crates/unpacked/Cargo.toml" --target-dir "$target" --examples --all-features
}

features() {
    cargo hack clippy -p leasehold --lib --each-feature -- -D warnings
    # Links to what a feature brings lead to docs.rs where the feature is off (src/links).
    RUSTDOCFLAGS='-D warnings' cargo hack doc -p leasehold --lib --no-deps --each-feature
    cargo hack clippy -p leasehold-cli --each-feature -- -D warnings
}

pairs() {
    # Finds what one feature uses of another one.
    cargo hack check -p leasehold --lib --feature-powerset --depth 2
}

semver() {
    last=$(last_release)
    [ -n "$last" ] || die 'nothing is released yet: there is no tag v*'
    cargo semver-checks -p leasehold --all-features --baseline-rev "$last"
}

last_release() { git describe --tags --match 'v[0-9]*' --abbrev=0 2>/dev/null || true; }

docs() {
    nightly=$(rustup toolchain list 2>/dev/null | sed -n 's/^\(nightly-[^ ]*\).*/\1/p' | head -n 1)
    [ -n "$nightly" ] || die 'no nightly toolchain (rustup toolchain install nightly)'
    RUSTDOCFLAGS='--cfg docsrs -D warnings' rustup run "$nightly" \
        cargo doc -p leasehold --lib --no-deps --all-features --target-dir "$target/docsrs"
    # The badges that say which feature an item needs.
    grep -q 'crate feature <code>redlock</code>' "$target/docsrs/doc/leasehold/struct.Redlock.html" ||
        die 'the pages do not say which feature an item needs'
}

release() {
    [ -z "$(git status --porcelain)" ] || die 'there are changes that are not committed'
    for manifest in Cargo.toml cli/Cargo.toml; do
        grep -q '^repository = "https://' $manifest || die "$manifest has no line: repository = \"https://..\""
        version=$(sed -n 's/^version = "\(.*\)"$/\1/p' $manifest | head -n 1)
        grep -q "^## \[$version\] - 2[0-9]*-[0-9]*-[0-9]*\$" CHANGELOG.md ||
            die "CHANGELOG.md has no heading with a date for $version"
    done
    case ${LEASEHOLD_MAINTAINER:-} in
    *@*) ;;
    *) die 'LEASEHOLD_MAINTAINER is not set: the .deb would have no address to write to' ;;
    esac
}

case $* in
package | features | pairs | semver | docs | release) "$1" ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
