# What the scripts of this folder share. It is sourced, with the script's name in $0, from the top of the repository.
# shellcheck shell=sh

# One umask, language and time zone, whoever builds: all of them would show in the packages.
umask 022
LC_ALL=C
TZ=UTC
export LC_ALL TZ

say() { printf '%s\n' "$(basename "$0"): $*" >&2; }
die() { say "$*"; exit 1; }

# need TOOL PACKAGE: PACKAGE is that of Debian and Ubuntu.
need() {
    command -v "$1" >/dev/null 2>&1 || die "$1 is missing; on Debian: apt-get install $2"
}

package=leasehold
# shellcheck disable=SC2034  # for the scripts that source this
{
    version=$(sed -n 's/^version = "\(.*\)"$/\1/p' cli/Cargo.toml | head -n 1)
    features=tls
    maintainer=${LEASEHOLD_MAINTAINER:-'The leasehold authors <leasehold@packages.invalid>'}
    target_dir=${CARGO_TARGET_DIR:-$PWD/target}
    case $target_dir in /*) ;; *) target_dir=$PWD/$target_dir ;; esac
    packages=${LEASEHOLD_PACKAGES:-$target_dir/packages}
}

# The time of all files in the packages: that of the last commit.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) ||
        die 'this is no git clone, so the time of the last change is unknown; set SOURCE_DATE_EPOCH to seconds since 1970'
fi
export SOURCE_DATE_EPOCH

# read_target ARGUMENTS: sets the names of the architecture that --target asks for.
read_target() {
    arch=$(uname -m)
    case "$#$*" in
    0) ;;
    '2--target x86_64') arch=x86_64 ;;
    '2--target aarch64' | '2--target arm64') arch=aarch64 ;;
    *)
        echo "usage: sh $0 [--target x86_64|aarch64]" >&2
        exit 2
        ;;
    esac
    # shellcheck disable=SC2034
    case $arch in
    x86_64) deb_arch=amd64 oci_arch=amd64 ;;
    aarch64 | arm64) arch=aarch64 deb_arch=arm64 oci_arch=arm64 ;;
    *) die "there are packages for x86_64 and aarch64, and not for $arch" ;;
    esac
    # shellcheck disable=SC2034
    triple=$arch-unknown-linux-musl
    binary=$packages/$package-$version-$arch
}

# A tar archive that depends on names, modes and contents only.
tar_of() { # tar_of FOLDER
    tar --create --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$1" .
}

need_binary() {
    [ -x "$binary" ] || die "$binary is missing; run: sh packaging/binary.sh --target $arch"
}

# Runs the binary of the packages, also one of another architecture.
run_binary() {
    if [ "$arch" = "$(uname -m)" ]; then
        "$binary" "$@"
    else
        need "qemu-$arch-static" qemu-user-static
        "qemu-$arch-static" "$binary" "$@"
    fi
}
