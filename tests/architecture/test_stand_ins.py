"""A stand-in carries the outside's own values, with their source. One that takes them from this program agrees with its
mistakes."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.test_sources import ROOT, nodes

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+")
STAND_IN = re.compile(r"fake|stand_?in|stub|imitat", re.IGNORECASE)
"""Names of classes and functions that stand in for something, in modules of tests and their conftest.py."""
SCRIPTS = ("node", "gcp", "nebius")
"""Folders of `scripts` whose modules tests import without the folder's name."""
STAND_INS = "components/local/compute_engine"
"""Stand-ins that rehearsals need too."""
PRODUCT = ("cluster", "components", "cli", "engine", "scripts")
OURS = {
    "cluster.monitoring.alerts.ALERTS": "this program's own alerts",
    "cluster.observe.reliability.DAY": "seconds of a day",
    "cli.commands.test.PLACE": "a variable of ./hpc test",
    "components.local.deploy.GPU_MAJOR": "the number that this program gives devices of machines on this host",
    "components.local.host.cloud.INSTANCE": "a file of machines on this host",
    "components.local.host.images.SUITES": "base images of machines on this host",
    "components.local.host.namespaces.AS_ROOT": "the environment of commands in machines on this host",
    "engine.state.crypter.ROUNDS": "set to less, so that tests are quick",
    "reconcile.service.BUSY_SECONDS": "the pace of this program's loop",
    "reconcile.service.IDLE_SECONDS": "the pace of this program's loop",
    "scripts.node.health.check_kinds.KINDS": "this program's own health checks",
    "scripts.node.judge.kinds.FINDING_ALERT": "this program's own alert of findings",
    "slurm.slurmctld.STATE": "the folder that this program gives slurmctld",
}
"""Constants that describe nothing outside, and what they are."""


@cache
def _is_product(module: str) -> bool:
    if module.startswith(f"{STAND_INS.replace('/', '.')}."):
        return False
    first = module.partition(".")[0]
    found = (ROOT / "scripts" / folder / name for folder in SCRIPTS for name in (first, f"{first}.py"))
    return first in PRODUCT or any(path.exists() for path in found)


def taken(module: Sequence[ast.AST], *, whole: bool) -> Iterator[str]:
    """Yield this program's constants that a module, given by its nodes, reads; unless it is a stand-in as a whole, only
    those that its stand-ins read."""
    constants, modules = dict[str, str](), dict[str, str]()
    for node in module:
        if isinstance(node, ast.ImportFrom) and node.module and _is_product(node.module):
            for alias in node.names:
                if CONSTANT.fullmatch(alias.name):
                    constants[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                elif alias.name.islower():
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names if _is_product(alias.name)}
    parts = [
        node
        for node in module
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and STAND_IN.search(node.name)
        if not node.name.startswith("test_")
    ]
    for part in [module] if whole else map(ast.walk, parts):
        for node in part:
            if isinstance(node, ast.Name) and node.id in constants:
                yield constants[node.id]
            elif isinstance(node, ast.Attribute) and CONSTANT.fullmatch(node.attr):
                name = modules.get(ast.unparse(node.value))
                yield from [f"{name}.{node.attr}"] if name else []


def _modules() -> Iterator[tuple[Path, bool]]:
    """Yield each stand-in of rehearsals and each module of tests, and whether it is a stand-in or a helper as a whole:
    those of tests that are neither tests nor outside checks."""
    yield from ((path, True) for path in sorted((ROOT / STAND_INS).rglob("*.py")))
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not path.name.startswith("check_"):
            yield path, not path.name.startswith(("test_", "conftest", "__init__"))


@cache
def _taken() -> list[tuple[Path, str]]:
    return [(path, name) for path, whole in _modules() for name in dict.fromkeys(taken(nodes(path), whole=whole))]


def test_no_stand_in_takes_a_constant_of_this_program() -> None:
    found = [f"{path.relative_to(ROOT)}: {name}" for path, name in _taken() if name not in OURS]
    assert found == [], "write the outside's own value there, with its source; or, if it is ours, say so in OURS"


def test_no_exception_is_left_over() -> None:
    assert OURS.keys() - {name for _, name in _taken()} == set()


NAMES = "cluster.platforms.nebius.names"


@pytest.mark.parametrize(
    ("text", "whole", "found"),
    [
        (f"from {NAMES} import JAIL_PATH\nwrite(JAIL_PATH)", True, [f"{NAMES}.JAIL_PATH"]),
        (f"from {NAMES} import JAIL_PATH as path\nwrite(path)", True, [f"{NAMES}.JAIL_PATH"]),
        ("from cluster.platforms.nebius import names\nwrite(names.JAIL_PATH)", True, [f"{NAMES}.JAIL_PATH"]),
        (f"import {NAMES}\nwrite({NAMES}.JAIL_PATH)", True, [f"{NAMES}.JAIL_PATH"]),
        ("from reconcile import service\nservice.BUSY_SECONDS", True, ["reconcile.service.BUSY_SECONDS"]),
        (f"from {NAMES} import GPU\nclass FakeNode:\n    gpu = GPU", False, [f"{NAMES}.GPU"]),
        (f"from {NAMES} import GPU\ndef test_a_stand_in():\n    assert GPU", False, []),
        (f"from {NAMES} import login_service\nlogin_service('c')", True, []),
        ("JAIL_PATH = '/mnt/jail'\nwrite(JAIL_PATH)", True, []),
    ],
)  # fmt: skip
def test_a_constant_is_found_however_it_is_imported(text: str, whole: bool, found: list[str]) -> None:
    assert list(taken([*ast.walk(ast.parse(text))], whole=whole)) == found
