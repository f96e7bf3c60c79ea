"""The steps of scripts/image as one bash program that needs nothing beside it."""

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cluster.config.cluster import ClusterConfig
from cluster.findings import ConfigError, Finding
from cluster.slurm.script_tree import read_script

FOLDER = Path(__file__).parents[3] / "scripts" / "image"
LARGEST = 256 * 1024
"""Bytes of a value in an instance's metadata, which is how the builder gets the program."""
ROOT = "/var/lib/hpc/install"
"""On the machine: what was done, and `state`: `running NAME`, `done` or `failed NAME`."""
LOG = "/var/log/hpc-install.log"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of the program."""

    name: str
    """Such as 30-slurm; progress and failures name it."""
    text: str
    hash: str
    """A hash of its text, the library, and the parameters that either names: a change in these runs it again."""


def step(name: str, parameters: Mapping[str, str]) -> Step:
    """The step of that name in scripts/image."""
    text = _read(_files()[name])
    return _step(name, text, without_comments(text), parameters)


def step_of_text(name: str, text: str, parameters: Mapping[str, str]) -> Step:
    """A step with this text, which begins with #!. Its hash is of every character: its language is unknown."""
    return _step(name, text, text, parameters)


@cache
def without_comments(text: str) -> str:
    """A script of ours without its comments and blank lines, which change nothing that it does.

    Lines of comment in the files that it writes go as well: they are comments there too.
    """
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not re.match(r"\s*#(?!!)", line)) + "\n"


def _step(name: str, text: str, counts: str, parameters: Mapping[str, str]) -> Step:
    whole = hashlib.sha256()
    library = _read("library.sh")
    for part in (counts, without_comments(library)):
        whole.update(part.encode() + b"\0")
    for key in sorted((_names(text) | _names(library)) & set(parameters)):
        whole.update(f"{key}={parameters[key]}\0".encode())
    return Step(name=name, text=text, hash=whole.hexdigest()[:16])


@cache
def _names(text: str) -> frozenset[str]:
    """The words of a text that may be parameters."""
    return frozenset(re.findall(r"\b[A-Z][A-Z0-9_]+\b", text))


def own_steps(config: ClusterConfig, folder: Path, parameters: Mapping[str, str]) -> list[Step]:
    """The stack's own steps, `image.provision`; files are read from `folder`.

    Raises ConfigError with every file that is missing or is no script.
    """
    findings: list[Finding] = []
    found: list[Step] = []
    for index, provision in enumerate(config.image.provision):
        if provision.url:
            text = _download_script(provision.url, provision.sha256 or "")
        elif provision.text is not None:
            text = provision.text
        else:
            text = read_script(str(provision.file), ("image", "provision", index, "file"), folder, findings)
        found.append(step_of_text(f"70.{index:02d}-{provision.name}", text, parameters))
    if findings:
        raise ConfigError(findings)
    return found


def program(cluster: str, steps: list[Step], parameters: Mapping[str, str], root: str = ROOT) -> str:
    """The whole program: parameters, steps, and what runs them. What was done is kept in `root`."""
    lines = [
        "#!/bin/bash",
        f"# Makes a machine of the cluster {cluster} ready for its set-up. Made from the stack: changes here are lost.",
        "# It may be killed, and run again at any time: what was done well is not done again.",
        "set -uo pipefail",
        f"ROOT={root} HPC_LOG={LOG}",
        "export HPC_LOG",
        *(f"export {name}={shlex.quote(value)}" for name, value in parameters.items()),
        "PLAN=(",
        *(f"    '{step.name} {step.hash}'" for step in steps),
        ")",
        "",
        "unpack() {",
        *_write_file_lines("library.sh", _read("library.sh"), "0600"),
        *(line for step in steps for line in _write_file_lines(step.name, step.text, "0700")),
        "}",
        "",
    ]
    return "\n".join(lines) + "\n" + _read("runner.sh")


def check_size(text: str) -> None:
    """Raises ConfigError for a program that is more than an instance's metadata can carry."""
    size = len(text.encode())
    if size > LARGEST:
        finding = Finding(
            id="image-provision-size",
            at=("image", "provision"),
            given=f"steps that make a program of {size // 1024} KiB",
            allowed=f"at most {LARGEST // 1024} KiB in all, ours included",
            todo="give the large ones by url and sha256, or let them fetch what is so large",
        )
        raise ConfigError([finding])


def _download_script(url: str, sha256: str) -> str:
    """Return a script that downloads another one, and runs it only if its SHA-256 is the given one."""
    return "\n".join(
        (
            "#!/bin/bash",
            '. "$HPC_LIBRARY"',
            f'fetch {shlex.quote(url)} {shlex.quote(sha256)} "$BUILD/own/{sha256}"',
            f'chmod 0700 "$BUILD/own/{sha256}"',
            f'exec "$BUILD/own/{sha256}"',
            "",
        )
    )


def _write_file_lines(name: str, text: str, mode: str) -> list[str]:
    """Lines of bash that write a file of the program's as a whole; its end is marked by a word that is not in it."""
    end = f"END-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path = f'"$ROOT/steps/{name}"'
    return [f"cat >{path} <<'{end}'", *text.rstrip("\n").split("\n"), end, f"chmod {mode} {path}"]


@cache
def _files() -> dict[str, str]:
    """The file of each step by its name, whichever folder it is in."""
    return {path.stem: str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*.sh")}


@cache
def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
