"""Unpacks an OCI image as a container runtime does, and checks every digest, size and type on the way. Prints the entrypoint and
the user of the image."""

import gzip
import hashlib
import io
import json
import sys
import tarfile

image, root = sys.argv[1:]
layout = tarfile.open(image)
used = set()


def read(name):
    return layout.extractfile("./" + name).read()


def blob(descriptor, media_type):
    algorithm, digest = descriptor["digest"].split(":")
    assert algorithm == "sha256", descriptor
    assert descriptor["mediaType"] == media_type, descriptor
    content = read(f"blobs/sha256/{digest}")
    assert hashlib.sha256(content).hexdigest() == digest, f"{digest} has other contents"
    assert len(content) == descriptor["size"], f"{digest} has another size"
    used.add(f"./blobs/sha256/{digest}")
    return content


PREFIX = "application/vnd.oci.image."
assert json.loads(read("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
index = json.loads(read("index.json"))
assert index["schemaVersion"] == 2 and index["mediaType"] == PREFIX + "index.v1+json"
(entry,) = index["manifests"]
manifest = json.loads(blob(entry, PREFIX + "manifest.v1+json"))
assert manifest["schemaVersion"] == 2 and manifest["mediaType"] == PREFIX + "manifest.v1+json"
config = json.loads(blob(manifest["config"], PREFIX + "config.v1+json"))
assert entry["platform"] == {"architecture": config["architecture"], "os": config["os"]}
layers = [gzip.decompress(blob(layer, PREFIX + "layer.v1.tar+gzip")) for layer in manifest["layers"]]
assert config["rootfs"]["type"] == "layers"
assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]
blobs = {member.name for member in layout.getmembers() if member.isfile() and "/blobs/" in member.name}
assert blobs == used, f"blobs that nothing names: {blobs - used}"
for layer in layers:
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        assert all(member.uid == 0 and member.gid == 0 for member in archive.getmembers())
        archive.extractall(root, filter="tar")
# The same for Docker.
def place(descriptor):
    return "blobs/" + descriptor["digest"].replace(":", "/")


(docker,) = json.loads(read("manifest.json"))
assert docker["Config"] == place(manifest["config"]) and docker["Layers"] == [place(layer) for layer in manifest["layers"]]
(entrypoint,) = config["config"]["Entrypoint"]
print(entrypoint)
print(config["config"]["User"])
