#!/bin/sh
# Makes the Debian package from the binary and the inventory, into target/packages/.
#
#   sh packaging/deb.sh [--target x86_64|aarch64]
#
# It needs dpkg-deb, GNU tar, gzip and, for the man page of a binary of the other architecture, qemu-user-static.
# LEASEHOLD_MAINTAINER is who publishes the package: "name <address>".
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
read_target "$@"
need dpkg-deb dpkg
need gzip gzip
need_binary
[ -f "$binary.notices.txt" ] || die "$binary.notices.txt is missing; run: sh packaging/inventory.sh --target $arch"

revision=1
work=$(mktemp -d "${TMPDIR:-/tmp}/leasehold-deb.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
doc=$root/usr/share/doc/$package
date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")

mkdir -p "$root/DEBIAN" "$root/usr/bin" "$doc/examples" "$root/usr/share/man/man1" "$root/usr/share/lintian/overrides" \
    "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
    "$root/usr/share/fish/vendor_completions.d"
install -m 755 "$binary" "$root/usr/bin/leasehold"
run_binary man | gzip -9n >"$root/usr/share/man/man1/leasehold.1.gz"
run_binary completions bash >"$root/usr/share/bash-completion/completions/leasehold"
run_binary completions zsh >"$root/usr/share/zsh/vendor-completions/_leasehold"
run_binary completions fish >"$root/usr/share/fish/vendor_completions.d/leasehold.fish"
gzip -9n <CHANGELOG.md >"$doc/changelog.gz"
gzip -9n <"$binary.notices.txt" >"$doc/notices.txt.gz"
gzip -9n <"$binary.cdx.json" >"$doc/sbom.cdx.json.gz"
cp -R packaging/recipes/systemd packaging/recipes/cron "$doc/examples/"
gzip -9n >"$doc/changelog.Debian.gz" <<END
$package ($version-$revision) unstable; urgency=medium

  * The package of version $version. The file changelog.gz says what has changed.

 -- $maintainer  $date
END
{
    cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: leasehold
Comment: The program is linked with other libraries. Their licences and
 notices are in notices.txt.gz, and their versions in sbom.cdx.json.gz.

Files: *
Copyright: $(sed -n 's/^Copyright (c) //p' LICENSE-MIT)
License: MIT or Apache-2.0

License: MIT
END
    sed -n '/^Permission/,$ { s/^$/./; s/^/ /; p; }' LICENSE-MIT
    cat <<END

License: Apache-2.0
 On Debian systems, the text of this licence is in
 /usr/share/common-licenses/Apache-2.0.
END
} >"$doc/copyright"
# A static program that can be loaded at any address (as that for x86-64) looks like a library.
tag=statically-linked-binary
[ "$arch" != x86_64 ] || tag=shared-library-lacks-prerequisites
cat >"$root/usr/share/lintian/overrides/$package" <<END
# It is linked statically, so that it runs on every distribution, and in an image without any other file.
$package: $tag [usr/bin/leasehold]
# It is not uploaded to Debian.
$package: initial-upload-closes-no-bugs [usr/share/doc/$package/changelog.Debian.gz:1]
END
# Modes as a package has them, whatever those of the clone are.
find "$root" -type d -exec chmod 755 {} +
find "$root" -type f ! -path "$root/usr/bin/*" -exec chmod 644 {} +
cat >"$root/DEBIAN/control" <<END
Package: $package
Version: $version-$revision
Architecture: $deb_arch
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f 1)
Recommends: ca-certificates
Section: admin
Priority: optional
Description: run commands under distributed locks
 The command leasehold runs another command while it holds a lock in Redis,
 Valkey, PostgreSQL, MySQL or ZooKeeper, so that only one machine of many runs
 it at a time. It renews the lock, and ends the command when the lock is lost. Other
 commands can wait for it, share it as readers, or take one of several permits.
 .
 It also shows who holds which lock and who waits for it, frees locks by force,
 and examines the servers. The locks are those of the Rust crate leasehold, of
 Redisson and of Apache Curator.
END
(cd "$root" && find usr -type f | sort | xargs md5sum) >"$root/DEBIAN/md5sums"
chmod 644 "$root/DEBIAN/control" "$root/DEBIAN/md5sums"

mkdir -p "$packages"
file=$packages/${package}_$version-${revision}_$deb_arch.deb
# dpkg-deb takes no file to be newer than SOURCE_DATE_EPOCH, and none may be older.
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --build "$root" "$file" >&2
echo "$file"
