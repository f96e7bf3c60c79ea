"""Stack files that tests read, and small configurations to vary."""

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cluster.capability import Capability
from cluster.config import ClusterConfig
from cluster.findings import ConfigError, Finding
from cluster.load import parse
from cluster.platforms import registry
from engine import yamlfile
from tests.clouds import settings

ROOT = Path(__file__).parents[2]
EXAMPLES = Path(__file__).parent / "examples"

EVERY: dict[str, Path] = {
    **{path.name.removeprefix("Pulumi.").removesuffix(".yaml"): path for path in sorted(ROOT.glob("Pulumi.*.yaml"))},
    **{f"example-{path.stem}": path for path in sorted(EXAMPLES.glob("*.yaml"))},
}
"""Every stack file of the project, and the tests' own, by name."""


def load(name: str) -> dict[str, Any]:
    """Settings of a stack."""
    return copy.deepcopy(_settings(name))


@cache
def _settings(name: str) -> dict[str, Any]:
    return yamlfile.parse(EVERY[name].read_text())["config"]


def _set_up_here(name: str) -> bool:
    return Capability.MEND in registry.get(load(name)["hpc:cluster"]["platform"]).capabilities


def places(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield every place of a tree below its root."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*at, key)
        yield from places(value, (*at, key))


STACKS: dict[str, Path] = {name: path for name, path in EVERY.items() if _set_up_here(name)}
"""Stacks whose machines this program sets up, with Slurm's files; for the others an operator does."""


@cache
def config(name: str) -> ClusterConfig:
    """A stack's cluster."""
    return parse(load(name))


def local(**changes: Any) -> dict[str, Any]:
    """The description of a small cluster, with some of its keys replaced."""
    return {
        "platform": "local",
        "name": "dev",
        "nodesets": {"cpu": {"count": 2}},
        "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
        **changes,
    }


def cluster(**changes: Any) -> ClusterConfig:
    """A small cluster, with some of its keys replaced."""
    return parse({"hpc:cluster": local(**changes)})


def findings(**changes: Any) -> dict[str, Finding]:
    """Return the findings about a small cluster with some of its keys replaced, by place."""
    return findings_of({"hpc:cluster": local(**changes)})


def cloud_findings(changes: dict[str, Any]) -> dict[str, Finding]:
    """Return the findings about a small cluster on Google Cloud. Keys such as `gcp:zone` are the stack's; None removes
    one."""
    given = settings(**{key: value for key, value in changes.items() if not key.startswith("gcp:")})
    given |= {key: value for key, value in changes.items() if key.startswith("gcp:")}
    return findings_of({key: value for key, value in given.items() if value is not None})


def findings_of(stack: dict[str, Any]) -> dict[str, Finding]:
    """Return the findings about a stack, by place below hpc:cluster."""
    try:
        parse(stack)
    except ConfigError as error:
        return {finding.where.removeprefix("hpc:cluster").removeprefix("."): finding for finding in error.findings}
    return {}


Changes = dict[str, Any]


@cache
def cases(name: str) -> dict[str, Changes]:
    """Return the cases of a file in tests/golden/refused: what is replaced in a small cluster, by the case's name."""
    return yaml.safe_load((ROOT / "tests/golden/refused" / f"{name}.yaml").read_text())


PARTITION = {"nodesets": ["cpu"], "default": True}
ALICE = {"name": "alice", "uid": 2001}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGNpTp8sZTrWHTKHIEY6xkYfOHfY5ufmf6QfgC/8UbOW alice@laptop"


def nodeset(**keys: Any) -> Changes:
    return {"nodesets": {"cpu": keys}}


def partition(**keys: Any) -> Changes:
    return {"partitions": {"cpu": PARTITION | keys}}


def extra(**keys: Any) -> Changes:
    return {"slurm": {"extra": keys}}
