"""Prints the command that a recipe runs, as a shell runs it, or checks recipes.

  commands.py FILE             the command
  commands.py --schema FILE    reads a manifest of Kubernetes as kubectl knows its types: fails if a field is unknown or of another type
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys

import yaml


def of_systemd(text):
    """systemd's own quoting is not used in the recipes, and `%H` is the only specifier."""
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert not re.search(r"[\"'\\$]|%(?!H)", line), f"systemd would read this in another way than a shell: {line}"
    return line.replace("%H", "this-host")


def of_cron(text):
    lines = [line for line in text.splitlines() if re.match(r"[0-9*]", line)]
    (line,) = lines
    assert "%" not in line, f"cron ends a command at %: {line}"
    return line.split(None, 6)[6]


def of_kubernetes(manifest):
    spec = manifest["spec"]
    pod = spec["jobTemplate"]["spec"]["template"]["spec"] if manifest["kind"] == "CronJob" else spec["template"]["spec"]
    (container,) = pod["containers"]
    names = {variable["name"] for variable in container["env"]}
    words = [re.sub(r"\$\((\w+)\)", lambda found: variable(found[1], names), word) for word in container["command"]]
    return shlex.join(words)


def variable(name, names):
    assert name in names, f"{name} is used and not set"
    return f"this-{name.lower().replace('_', '-')}"


def command_of(path):
    text = path.read_text()
    kind = path.parent.name
    if kind == "systemd":
        return of_systemd(text)
    if kind == "cron":
        return of_cron(text)
    recipe = yaml.safe_load(text)
    if kind == "kubernetes":
        return of_kubernetes(recipe)
    if kind == "compose":
        return shlex.join(recipe["services"]["importer"]["command"])
    if path.name == "gitlab-ci.yml":
        return "\n".join(recipe["deploy"]["script"])
    assert path.name == "github-actions.yml", path
    return "\n".join(step["run"] for step in recipe["jobs"]["deploy"]["steps"] if "run" in step)


def missing(given, known, where=""):
    """What is in `given` and not in what kubectl made of it, which drops the fields that it does not know."""
    if isinstance(given, dict):
        for key, value in given.items():
            if not isinstance(known, dict) or key not in known:
                yield f"{where}.{key}"
            else:
                yield from missing(value, known[key], f"{where}.{key}")
    elif isinstance(given, list):
        if not isinstance(known, list) or len(given) != len(known):
            yield where
        else:
            for number, (one, other) in enumerate(zip(given, known)):
                yield from missing(one, other, f"{where}[{number}]")
    elif given != known:
        yield f"{where}: {given!r} was read as {known!r}"


def schema(path):
    local = ["kubectl", "set", "serviceaccount", "--local", "--output=json", f"--filename={path}", "any"]
    known = json.loads(subprocess.run(local, check=True, stdout=subprocess.PIPE).stdout)
    unknown = list(missing(yaml.safe_load(path.read_text()), known))
    if unknown:
        sys.exit(f"{path}: kubectl does not know {', '.join(unknown)}")


if sys.argv[1] == "--schema":
    schema(pathlib.Path(sys.argv[2]))
else:
    print(command_of(pathlib.Path(sys.argv[1])).strip())
