"""Makes the SBOM and the notices of a binary, or checks an SBOM. Called by inventory.sh."""

import argparse
import json
import pathlib
import re
import sys
import tomllib
import uuid
from datetime import datetime, timezone

LINE = re.compile(r"^(\d+) (\S+) v(\S+)")
NOTICE_FILES = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
# Of libraries that crates include, below the folder of the crate.
NOTICE_DEPTH = 3


def read_tree(path):
    """Each crate that is linked, and what each of them depends on. The first one is the command."""
    above, edges = [], {}
    for line in pathlib.Path(path).read_text().splitlines():
        match = LINE.match(line)
        if not match:
            sys.exit(f"inventory.py: cargo tree has a line of another form: {line!r}")
        depth, crate = int(match[1]), (match[2], match[3])
        del above[depth:]
        edges.setdefault(crate, set())
        if above:
            edges[above[-1]].add(crate)
        above.append(crate)
    return edges


def reference(crate):
    name, version = crate
    return f"pkg:cargo/{name}@{version}"


def component(crate, kind, package, checksum):
    one = {
        "type": kind,
        "bom-ref": reference(crate),
        "name": crate[0],
        "version": crate[1],
        "purl": reference(crate),
        # Some crates still write "MIT/Apache-2.0", which is no SPDX expression.
        "licenses": [{"expression": package["license"].replace("/", " OR ")}],
    }
    if package.get("description"):
        one["description"] = " ".join(package["description"].split())
    if checksum:
        one["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package.get("repository"):
        one["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return one


def make(arguments):
    edges = read_tree(arguments.tree)
    metadata = json.loads(pathlib.Path(arguments.metadata).read_text())
    packages = {(p["name"], p["version"]): p for p in metadata["packages"]}
    lock = tomllib.loads(pathlib.Path(arguments.lock).read_text())
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    without_licence = sorted(crate for crate in edges if not packages[crate]["license"])
    if without_licence:
        sys.exit(f"inventory.py: crates that do not name their licence: {without_licence}")

    command, *others = edges
    others.sort()
    runtime = [
        {
            "type": "library",
            "bom-ref": "rust-std",
            "name": "rust-std",
            "version": arguments.rustc.split()[1],
            "description": f"The standard library of {arguments.rustc} for {arguments.triple}",
            "licenses": [{"expression": "MIT OR Apache-2.0"}],
        },
        {
            "type": "library",
            "bom-ref": "musl",
            "name": "musl",
            "description": "The C library that comes with rust-std",
            "licenses": [{"license": {"id": "MIT"}}],
        },
    ]
    dependencies = [{"ref": reference(crate), "dependsOn": sorted(map(reference, edges[crate]))} for crate in [command, *others]]
    dependencies[0]["dependsOn"] += ["musl", "rust-std"]
    sbom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": "",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(arguments.epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": component(command, "application", packages[command], None),
            "properties": [{"name": "leasehold:target", "value": arguments.triple}],
        },
        "components": [component(crate, "library", packages[crate], checksums[crate]) for crate in others] + runtime,
        "dependencies": dependencies,
    }
    # The same contents have the same number.
    sbom["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(sbom, sort_keys=True)).urn
    pathlib.Path(arguments.sbom).write_text(json.dumps(sbom, indent=2) + "\n")
    pathlib.Path(arguments.notices).write_text(notices(others, packages))


def notices(crates, packages):
    """Each text once, under all crates that have it."""
    owners, bare = {}, []
    for crate in crates:
        folder = pathlib.Path(packages[crate]["manifest_path"]).parent
        files = [f for f in folder.rglob("*") if NOTICE_FILES.match(f.name) and len(f.relative_to(folder).parts) <= NOTICE_DEPTH]
        # Of this repository, whose licences lie beside the packages.
        if not packages[crate]["source"]:
            continue
        texts = {f.read_text(errors="replace").strip() for f in files if f.is_file() and f.suffix != ".rs"}
        for text in texts:
            owners.setdefault(text, []).append(crate)
        if not texts:
            bare.append(crate)
    said = ["The binary contains the crates below, under these licences. Rust's standard library and musl come with it as well:"]
    said.append("see https://www.rust-lang.org/policies/licenses and https://musl.libc.org.")
    for text, crates in sorted(owners.items(), key=lambda item: item[1]):
        said += ["", "=" * 100, *(f"{name} {version} ({packages[name, version]['license']})" for name, version in crates), "", text]
    if bare:
        said += ["", "=" * 100, "These crates come without a text of their licence:"]
        said += [f"{name} {version} ({packages[name, version]['license']})" for name, version in bare]
    return "\n".join(said) + "\n"


def check(path):
    """The fields that CycloneDX 1.5 requires, and what this project adds to them."""
    sbom = json.loads(pathlib.Path(path).read_text())
    wrong = []

    def must(holds, what):
        if not holds:
            wrong.append(what)

    must(sbom.get("bomFormat") == "CycloneDX", "bomFormat is not CycloneDX")
    must(sbom.get("specVersion") == "1.5", "specVersion is not 1.5")
    must(re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", sbom.get("serialNumber", "")), "serialNumber is no UUID")
    must(isinstance(sbom.get("version"), int) and sbom["version"] >= 1, "version is no number from 1")
    must(datetime.fromisoformat(sbom["metadata"]["timestamp"].replace("Z", "+00:00")), "the timestamp is none")
    command = sbom["metadata"]["component"]
    must(command.get("name") == "leasehold-cli" and command.get("type") == "application", "the component is not the command")
    components = [command, *sbom["components"]]
    must(len(components) > 20, f"there are {len(components)} components only")
    references = [one.get("bom-ref") for one in components]
    must(len(set(references)) == len(references), "a bom-ref is there twice")
    for one in components:
        name = one.get("name")
        must(name, f"a component has no name: {one}")
        must(one.get("type") in ("application", "library"), f"{name} has no type")
        must(one.get("licenses"), f"{name} has no licence")
        if one.get("purl", "").startswith("pkg:cargo/") and not name.startswith("leasehold"):
            content = one.get("hashes", [{}])[0].get("content", "")
            must(re.fullmatch("[0-9a-f]{64}", content), f"{name} has no SHA-256")
    for one in sbom["dependencies"]:
        for to in [one["ref"], *one["dependsOn"]]:
            must(to in references, f"the dependency {to} is no component")
    for what in wrong:
        print(f"inventory.py: {path}: {what}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    print(f"inventory.py: {len(components)} components, each with a licence", file=sys.stderr)


parser = argparse.ArgumentParser()
parser.add_argument("--check", metavar="SBOM")
for name in ("tree", "metadata", "lock", "triple", "rustc", "sbom", "notices"):
    parser.add_argument("--" + name)
parser.add_argument("--epoch", type=int)
given = parser.parse_args()
if given.check:
    check(given.check)
else:
    make(given)
