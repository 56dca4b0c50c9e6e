#!/bin/sh
# Makes an OCI image from the binary, into target/packages/, without a container daemon: a tar archive in the OCI layout, which
# `docker load`, `podman load`, `skopeo copy oci-archive:FILE ...` and `crane push` read. Nothing is in it but the command, the
# certificate authorities of the machine that builds it, and licences.
#
#   sh packaging/image.sh [--target x86_64|aarch64]
#
# It needs GNU tar, gzip, sha256sum and the package ca-certificates.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
read_target "$@"
need gzip gzip
need sha256sum coreutils
need_binary
[ -f "$binary.notices.txt" ] || die "$binary.notices.txt is missing; run: sh packaging/inventory.sh --target $arch"
authorities=${LEASEHOLD_CA_FILE:-/etc/ssl/certs/ca-certificates.crt}
[ -s "$authorities" ] || die "$authorities is missing; on Debian: apt-get install ca-certificates"

work=$(mktemp -d "${TMPDIR:-/tmp}/leasehold-image.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
blobs=$work/layout/blobs/sha256
mkdir -p "$root/etc/ssl/certs" "$root/licences" "$blobs"
install -m 755 "$binary" "$root/leasehold"
install -m 644 "$authorities" "$root/etc/ssl/certs/ca-certificates.crt"
install -m 644 LICENSE-MIT LICENSE-APACHE "$root/licences"
install -m 644 "$binary.notices.txt" "$root/licences/notices.txt"
find "$root" -type d -exec chmod 755 {} +

digest() { sha256sum "$1" | cut -d ' ' -f 1; }

# blob FILE: moves it to where its digest says, and sets digest and size.
blob() {
    digest=$(digest "$1")
    size=$(wc -c <"$1" | tr -d ' ')
    chmod 644 "$1"
    mv "$1" "$blobs/$digest"
}

tar_of "$root" >"$work/layer.tar"
uncompressed=$(digest "$work/layer.tar")
gzip -9n "$work/layer.tar"
blob "$work/layer.tar.gz"
layer=$digest layer_size=$size

created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
# By number: the image has no list of users.
cat >"$work/config" <<END
{
  "created": "$created",
  "architecture": "$oci_arch",
  "os": "linux",
  "config": {
    "User": "65534:65534",
    "Env": ["PATH=/", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
    "Entrypoint": ["/leasehold"],
    "Cmd": ["--help"],
    "Labels": {
      "org.opencontainers.image.title": "leasehold",
      "org.opencontainers.image.description": "Runs commands under distributed locks, and shows who holds them",
      "org.opencontainers.image.version": "$version",
      "org.opencontainers.image.licenses": "MIT OR Apache-2.0"
    }
  },
  "rootfs": {"type": "layers", "diff_ids": ["sha256:$uncompressed"]},
  "history": [{"created": "$created", "created_by": "packaging/image.sh"}]
}
END
blob "$work/config"
config=$digest config_size=$size

cat >"$work/manifest" <<END
{
  "schemaVersion": 2,
  "mediaType": "application/vnd.oci.image.manifest.v1+json",
  "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:$config", "size": $config_size},
  "layers": [
    {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "sha256:$layer", "size": $layer_size}
  ]
}
END
blob "$work/manifest"
cat >"$work/layout/index.json" <<END
{
  "schemaVersion": 2,
  "mediaType": "application/vnd.oci.image.index.v1+json",
  "manifests": [
    {
      "mediaType": "application/vnd.oci.image.manifest.v1+json",
      "digest": "sha256:$digest",
      "size": $size,
      "platform": {"architecture": "$oci_arch", "os": "linux"},
      "annotations": {
        "org.opencontainers.image.ref.name": "$version",
        "io.containerd.image.name": "docker.io/library/leasehold:$version"
      }
    }
  ]
}
END
printf '{"imageLayoutVersion": "1.0.0"}\n' >"$work/layout/oci-layout"
# Docker reads this one unless its images are in containerd, and `docker save` writes it too.
cat >"$work/layout/manifest.json" <<END
[{"Config": "blobs/sha256/$config", "RepoTags": ["leasehold:$version"], "Layers": ["blobs/sha256/$layer"]}]
END

mkdir -p "$packages"
file=$packages/$package-$version-$arch.oci.tar
tar_of "$work/layout" >"$file"
echo "$file"
