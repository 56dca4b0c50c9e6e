#!/bin/sh
# Tests what packaging/build.sh makes for this architecture, and builds it first: installs the .deb in a fresh root, runs it
# there against a private server, and removes it; unpacks the OCI image and runs it; checks that the binary is static, that
# two builds give the same files, and the checksums. It changes nothing outside of target/ and a temporary folder.
#
#   sh packaging/test.sh
#
# `sh packaging/needs.sh build test` says what is missing here. LEASEHOLD_SERVER is the redis-server to use.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=packaging/common.sh
. packaging/common.sh
# shellcheck source=packaging/server.sh
. packaging/server.sh
PATH=$PATH:/usr/sbin:/sbin
read_target --target "$(uname -m)"
missing=$(sh packaging/needs.sh build test)
[ -z "$missing" ] || die "these are missing here:
$missing"

# A short name: the path of a socket has at most 107 bytes.
work=$(mktemp -d /tmp/lh-pack.XXXXXX)
server_pid=
tls_pid=
clean_up() {
    stop_server
    [ -z "$tls_pid" ] || kill "$tls_pid" 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Only root may chroot, or give files to root.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else unshare --user --map-root-user "$@"; fi
}
inside() { # inside ROOT COMMAND...
    as_root chroot "$@"
}
all_files() { # all_files ROOT: without dpkg's own.
    (cd "$1" && find . ! -path './var/lib/dpkg*' ! -path './run/*' ! -path './var/log*' | sort)
}
is_rendered() { # is_rendered PAGE: without a warning.
    ! gzip -dc "$1" | man --warnings -l - 2>&1 >/dev/null | grep .
}
says() { # says TEXT COMMAND...
    text=$1
    shift
    "$@" >"$work/said" 2>&1
    grep -qF -e "$text" "$work/said" || { cat "$work/said"; return 1; }
}
status_is() { # status_is N COMMAND...
    expected=$1
    shift
    status=0
    "$@" >"$work/said" 2>&1 || status=$?
    [ "$status" = "$expected" ] || { echo "status $status"; cat "$work/said"; return 1; }
}

sh packaging/build.sh --target "$arch"
deb=$packages/${package}_$version-1_$deb_arch.deb
image=$packages/$package-$version-$arch.oci.tar

# ---- the files ---------------------------------------------------------------

# shellcheck disable=SC2317,SC2329
checksums_hold() { (cd "$packages" && sha256sum --check --quiet SHA256SUMS); }
ok 'the checksums are those of the files' checksums_hold
for file in "$binary" "$deb" "$image" "$binary.cdx.json"; do
    ok "$(basename "$file") has a checksum" grep -q " $(basename "$file")\$" "$packages/SHA256SUMS"
done
# shellcheck disable=SC2317,SC2329
is_static() {
    ! readelf --program-headers "$binary" | grep INTERP && ! readelf --dynamic "$binary" | grep NEEDED &&
        ! ldd "$binary" 2>/dev/null | grep '=>'
}
ok 'the binary is static' is_static
ok 'the binary names no folder of this machine' not grep -qaF -e "$PWD/" -e "${CARGO_HOME:-$HOME/.cargo}/" "$binary"

# As another user on another machine would build them.
mkdir "$work/again"
cp "$binary" "$binary.notices.txt" "$binary.cdx.json" "$work/again/"
for part in deb image; do
    (umask 077 && LC_ALL=C.UTF-8 TZ=Asia/Tokyo LEASEHOLD_PACKAGES="$work/again" sh "packaging/$part.sh" >"$work/said" 2>&1) ||
        { cat "$work/said"; exit 1; }
done
ok 'a second build gives the same .deb' cmp "$deb" "$work/again/$(basename "$deb")"
ok 'a second build gives the same image' cmp "$image" "$work/again/$(basename "$image")"

if command -v lintian >/dev/null 2>&1; then
    # shellcheck disable=SC2317,SC2329
    lintian_agrees() {
        lintian --allow-root --fail-on error,warning "$deb" >"$work/said" 2>&1 || { cat "$work/said"; return 1; }
    }
    ok 'lintian has no objection to the .deb' lintian_agrees
else
    not_run 'what lintian says of the .deb' 'lintian is missing (apt-get install lintian)'
fi

# ---- the .deb ----------------------------------------------------------------

root=$work/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/run"
: >"$root/var/lib/dpkg/status"
start_server "$root/run/redis.sock"
all_files "$root" >"$work/before"
in_root_dpkg() { as_root dpkg --root="$root" --log=/dev/null --force-not-root --force-architecture "$@" >"$work/dpkg" 2>&1 || { cat "$work/dpkg"; return 1; }; }
ok 'the .deb is installed in a fresh root' in_root_dpkg --install "$deb"
# shellcheck disable=SC2317,SC2329
is_installed() { as_root dpkg --root="$root" --status leasehold | grep -q 'Status: install ok installed'; }
ok 'dpkg says so' is_installed

LEASEHOLD_URL=redis+unix:///run/redis.sock
export LEASEHOLD_URL
ok 'it says its version there' says "leasehold $version" inside "$root" leasehold --version
# There is no other program than the command itself.
ok 'it runs a command under a lock over a unix socket' \
    says 'held by  leasehold' inside "$root" leasehold run x -- leasehold show x
ok 'and over TCP' status_is 0 inside "$root" leasehold run x --url "redis://127.0.0.1:$server_port/" -- leasehold --version
ok 'the status is that of the command' status_is 64 inside "$root" leasehold run x -- leasehold --no-such-option
ok 'afterwards the lock is free' status_is 1 inside "$root" leasehold show x

ok 'the man page is where man looks' test -s "$root/usr/share/man/man1/leasehold.1.gz"
if command -v man >/dev/null 2>&1; then
    ok 'man renders it without a warning' is_rendered "$root/usr/share/man/man1/leasehold.1.gz"
fi
bash_file=$root/usr/share/bash-completion/completions/leasehold
zsh_file=$root/usr/share/zsh/vendor-completions/_leasehold
fish_file=$root/usr/share/fish/vendor_completions.d/leasehold.fish
if command -v bash >/dev/null 2>&1; then
    # shellcheck disable=SC2016  # for bash
    ok 'bash completes with it' says '_leasehold' bash -c '. "$1" && complete -p leasehold' bash "$bash_file"
fi
ok 'zsh finds it' grep -q '^#compdef leasehold' "$zsh_file"
if command -v zsh >/dev/null 2>&1; then ok 'zsh reads it' zsh -n "$zsh_file"; fi
ok 'fish finds it' grep -q '^complete -c leasehold' "$fish_file"
if command -v fish >/dev/null 2>&1; then ok 'fish reads it' fish -n "$fish_file"; fi
for file in copyright changelog.gz changelog.Debian.gz notices.txt.gz sbom.cdx.json.gz; do
    ok "$file is there" test -s "$root/usr/share/doc/leasehold/$file"
done
ok 'the .deb is removed' in_root_dpkg --purge leasehold
all_files "$root" >"$work/after"
ok 'nothing is left of it' diff "$work/before" "$work/after"

# ---- the image ---------------------------------------------------------------

image_root=$work/image
python3 packaging/unpack.py "$image" "$image_root" >"$work/entrypoint" || exit 1
ok 'the digests, sizes and types of the image hold' test -s "$work/entrypoint"
if command -v skopeo >/dev/null 2>&1; then
    for format in oci-archive docker-archive; do
        ok "skopeo reads and copies it as $format" says 'Writing manifest' skopeo copy --insecure-policy "$format:$image" "dir:$work/$format"
    done
else
    not_run 'what skopeo says of the image' 'it is missing (apt-get install skopeo)'
fi
entrypoint=$(sed -n 1p "$work/entrypoint")
user=$(sed -n 2p "$work/entrypoint")
mkdir -m 755 "$image_root/run"
# A link would end at the root.
stop_server
start_server "$image_root/run/redis.sock"
# As the user that the image names, if this one may become another.
as_user=
[ "$(id -u)" != 0 ] || as_user=--userspec=$user
# shellcheck disable=SC2317,SC2329
contained() { inside ${as_user:+"$as_user"} "$image_root" "$entrypoint" "$@"; }
chmod 755 "$work"
ok 'the entrypoint says its version' says "leasehold $version" contained --version
ok 'the entrypoint runs a command under a lock' says 'held by  leasehold' contained run x -- "$entrypoint" show x
ok 'the image has certificate authorities' grep -q 'BEGIN CERTIFICATE' "$image_root/etc/ssl/certs/ca-certificates.crt"
ok 'the image has the licences' test -s "$image_root/licences/LICENSE-MIT"
if command -v openssl >/dev/null 2>&1; then
    # A server whose certificate nobody has signed, and one whose authority is named.
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
        -addext basicConstraints=critical,CA:FALSE -keyout "$work/key" -out "$work/certificate" 2>/dev/null
    tls_port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    openssl s_server -accept "127.0.0.1:$tls_port" -key "$work/key" -cert "$work/certificate" -quiet </dev/null >/dev/null 2>&1 &
    tls_pid=$!
    # shellcheck disable=SC2317,SC2329
    listens() { python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])))' "$tls_port" 2>/dev/null; }
    until_true 10 listens || die 'openssl s_server does not start'
    ok 'TLS is in it, and refuses a certificate of a stranger' \
        status_is 77 contained ls --url "rediss://127.0.0.1:$tls_port/"
else
    not_run 'TLS of the image' 'openssl is missing (apt-get install openssl)'
fi
echo "packaging: $checks checks passed"
