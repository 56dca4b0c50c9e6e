#!/bin/sh
# Builds everything that is shipped of the command, into target/packages/: the static binary, the inventory (SBOM and
# notices), the .deb, the OCI image, and the checksums of all of them.
#
#   sh packaging/build.sh [--target x86_64|aarch64]
#
# Each script that it calls says what it needs, and works alone.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
read_target "$@"
need sha256sum coreutils

for part in binary inventory deb image; do
    sh "packaging/$part.sh" --target "$arch"
done
# Of the other architecture too, if it was built before.
(cd "$packages" && find . -maxdepth 1 -type f -name "$package*" ! -name '*.new' | sed 's:^\./::' | sort | xargs sha256sum >SHA256SUMS)
echo "$packages/SHA256SUMS"
