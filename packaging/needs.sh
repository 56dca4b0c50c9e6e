#!/bin/sh
# Prints what is missing on this machine, a line for each thing with its remedy, and nothing if all is there.
#
#   sh packaging/needs.sh build      to build the packages for this architecture
#   sh packaging/needs.sh test       to test them
#   sh packaging/needs.sh recipes    to test the recipes
#   sh packaging/needs.sh watching   to test the dashboard and the alerts
set -u

lacks() { # lacks TOOL PACKAGE...
    tool=$1
    shift
    command -v "$tool" >/dev/null 2>&1 || echo "$tool (apt-get install $*)"
}

for what in "$@"; do
    case $what in
    build)
        triple=$(uname -m)-unknown-linux-musl
        command -v cargo >/dev/null 2>&1 || echo 'cargo (https://rustup.rs)'
        [ -d "$(rustc --print sysroot 2>/dev/null)/lib/rustlib/$triple" ] || echo "Rust for $triple (rustup target add $triple)"
        lacks musl-gcc musl-tools
        lacks dpkg-deb dpkg
        tar --version 2>/dev/null | grep -q 'GNU tar' || echo 'GNU tar (apt-get install tar)'
        python3 -c 'import tomllib' 2>/dev/null || echo 'python3 3.11 or later (apt-get install python3)'
        [ -s "${LEASEHOLD_CA_FILE:-/etc/ssl/certs/ca-certificates.crt}" ] ||
            echo 'certificate authorities (apt-get install ca-certificates)'
        ;;
    test)
        lacks dpkg dpkg
        lacks readelf binutils
        # Another user than root gets a namespace in which it is root.
        [ "$(id -u)" = 0 ] || unshare --user --map-root-user true 2>/dev/null ||
            echo 'the right to chroot (run it as root, or permit user namespaces: sysctl kernel.unprivileged_userns_clone=1)'
        ;;
    recipes)
        python3 -c 'import yaml' 2>/dev/null || echo 'python3 with yaml (apt-get install python3-yaml)'
        ;;
    watching)
        python3 -c 'import yaml' 2>/dev/null || echo 'python3 with yaml (apt-get install python3-yaml)'
        lacks prometheus prometheus
        lacks promtool prometheus
        ;;
    *)
        echo "usage: sh packaging/needs.sh build|test|recipes|watching..." >&2
        exit 2
        ;;
    esac
done
