"""Every number has bounds, every pattern is of ASCII, and reading takes bounded time for files of any size."""

import contextlib
import gc
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.catalog import bounds
from cluster.catalog.base_system import SYSTEM, missing_interpreter
from cluster.catalog.slurm_releases import CONF, NODE, PARTITION
from cluster.config.validators import NODE_SIZES
from cluster.findings import ConfigError
from cluster.load import parse
from cluster.stack_file_reference import json_schema
from tests.cluster.stacks import ALICE, KEY, ROOT, findings, local
from tests.cluster.stacks import PARTITION as QUEUE

SOURCES = sorted((ROOT / "cluster/config").rglob("*.py"))
SCHEMA = json_schema()


def integers(tree: Any, at: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every number in a part of the schema, with its place."""
    if isinstance(tree, dict):
        if tree.get("type") == "integer" and not {"enum", "anyOf"} & tree.keys():
            yield at, tree
        for key, value in tree.items():
            yield from integers(value, f"{at}.{key}")
    elif isinstance(tree, list):
        for value in tree:
            yield from integers(value, at)


@pytest.mark.parametrize(("place", "number"), [*integers(SCHEMA["$defs"], "")])
def test_every_number_has_a_minimum_and_a_maximum(place: str, number: dict[str, Any]) -> None:
    """Slurm, Google and JSON store a limited number of bits."""
    assert {"minimum", "maximum"} <= number.keys(), place
    assert -(2**53) < number["minimum"] <= number["maximum"] < 2**53


def test_parameters_with_a_largest_number_are_in_slurms_tables() -> None:
    known = {name for table in (CONF, NODE, PARTITION) for name in (*table.always, *table.some)}
    assert set(bounds.NUMBERS) <= known
    assert set(NODE_SIZES) <= set(bounds.NUMBERS)


@pytest.mark.parametrize("value", ["INFINITE", "unlimited", "0x10", 0, bounds.NUMBERS["MaxJobCount"], "10"])
def test_numbers_that_slurm_reads_are_accepted(value: object) -> None:
    assert findings(slurm={"extra": {"MaxJobCount": value}}) == {}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_patterns_have_explicit_character_sets(source: Path) -> None:
    r"""`\d` and `\w` match digits and letters of every script, which Slurm and others do not read."""
    found = re.findall(r'r[f]?"[^"\n]*\\[dwsDWSbB][^"\n]*"', source.read_text(encoding="utf-8"))
    assert not found


@pytest.mark.parametrize(
    "pattern", sorted({key["pattern"] for key in SCHEMA["$defs"]["User"]["properties"].values() if "pattern" in key})
)
def test_patterns_of_the_schema_have_explicit_character_sets(pattern: str) -> None:
    assert not re.search(r"\\[dwsDWSbB]", pattern)


DIGITS, NUMERALS = "0123456789", "".join(chr(0x660 + digit) for digit in range(10))
OTHER, BACK = str.maketrans(DIGITS, NUMERALS), str.maketrans(NUMERALS, DIGITS)
"""Numerals that Python's isdigit, int and patterns take for digits."""


@pytest.mark.parametrize(
    ("place", "changes"),
    {
        "name": {"name": "dev1"},
        "nodesets.cpu1": {"nodesets": {"cpu1": {}}},
        "partitions.cpu1": {"partitions": {"cpu": QUEUE, "cpu1": {"nodesets": ["cpu"]}}},
        "partitions.cpu.max_time": {"partitions": {"cpu": {**QUEUE, "max_time": "1-00:00:00"}}},
        "users[0].name": {"users": [{**ALICE, "name": "alice1"}]},
        "users[0].keys[0]": {"users": [{**ALICE, "keys": [KEY]}]},
        "groups.ml1": {"groups": {"ml1": 3001}},
        "network.cidr": {"network": {"cidr": "10.77.0.0/20"}},
        "storage.shared[0]": {"storage": {"shared": ["/data1"]}},
        "nodesets.cpu.features[0]": {"nodesets": {"cpu": {"features": ["h100"]}}},
        "accounting.accounts[0].name": {"accounting": {"accounts": [{"name": "lab1"}]}},
        "slurm.extra.MaxJobCount": {"slurm": {"extra": {"MaxJobCount": "100"}}},
        "slurm.version": {"slurm": {"version": "22.05"}},
    }.items(),
)
def test_numerals_of_other_scripts_are_refused(place: str, changes: dict[str, Any]) -> None:
    def written(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {written(key): written(value) for key, value in tree.items()}
        if isinstance(tree, list):
            return [written(item) for item in tree]
        return tree.translate(OTHER) if isinstance(tree, str) else tree

    assert place in {where.translate(BACK) for where in findings(**written(changes))}


@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/sbin/nologin", "/bin/false"])
def test_shells_of_every_image_are_accepted(shell: str) -> None:
    assert findings(users=[{**ALICE, "shell": shell}]) == {}


@pytest.mark.parametrize(
    ("line", "missing"),
    {
        "#!/bin/sh": None,
        "#! /bin/bash -eu": None,
        "#!/usr/bin/env python3": None,
        "#!/usr/bin/env -S FOO=1 bash -e": None,
        "#!/usr/bin/perl -w": None,
        "#!/usr/bin/env": "nothing",
        "#!/usr/local/bin/bash": "/usr/local/bin/bash",
        "#!/bin/bash\r": "/bin/bash\r",
        "#!/usr/bin/env\tzsh": "zsh",
        "#!": "nothing",
    }.items(),
)
def test_interpreters_that_images_lack_are_found(line: str, missing: str | None) -> None:
    assert missing_interpreter(f"{line}\ntrue\n") == missing


@pytest.mark.parametrize("name", sorted(SYSTEM))
def test_names_of_system_accounts_are_refused_for_users_and_groups(name: str) -> None:
    places = findings(users=[{**ALICE, "name": name}], groups={name: 3001})
    assert {"users[0].name", f"groups.{name}"} <= set(places)


MANY = 4000
SETS = {f"s{n}": {"count": 1, "addresses": f"10.{n // 256}.{n % 256}.0/24"} for n in range(MANY)}
LARGE: dict[str, dict[str, Any]] = {
    "nodes": {"nodesets": {"cpu": {"count": 65536}}, "network": {"cidr": "10.0.0.0/8"}},
    "nodesets of many nodes": {"nodesets": {f"s{n}": {"count": 65536} for n in range(MANY)}},
    "nodesets": {"nodesets": SETS, "network": {"cidr": "10.0.0.0/8"}},
    "partitions": {"partitions": {f"p{n}": {"nodesets": ["cpu"]} for n in range(MANY)}},
    "users": {"users": [{"name": f"u{n}", "uid": 2000 + n} for n in range(MANY)]},
    "accounts": {"accounting": {"accounts": [{"name": f"a{n}", "parent": f"a{n - 1}"} for n in range(1, MANY)]}},
    "a circle of accounts": {
        "accounting": {"accounts": [{"name": f"a{n}", "parent": f"a{(n + 1) % MANY}"} for n in range(MANY)]}
    },
    "QOS": {"accounting": {"qos": [{"name": f"q{n}", "preempt": [f"q{n + 1}"]} for n in range(1000)]}},
    "QOS that preempt all": {
        "accounting": {"qos": [{"name": f"q{n}", "preempt": [f"q{m}" for m in range(300)]} for n in range(300)]}
    },
    "nodesets as many as there may be": {
        "nodesets": {f"s{n}": {"addresses": f"10.{n // 256 + 1}.{n % 256}.0/24"} for n in range(500)},
        "network": {"cidr": "10.0.0.0/8"},
    },
    "names of one nodeset": {"partitions": {"cpu": {"nodesets": ["cpu"] * 50_000, "default": True}}},
    "members of groups": {
        "groups": {f"g{n}": 3000 + n for n in range(1000)},
        "users": [{"name": f"u{n}", "uid": 5000 + n, "groups": [f"g{m}" for m in range(50)]} for n in range(1000)],
    },
    "groups": {"groups": {f"g{n}": 3000 + n for n in range(MANY)}},
    "groups of a user": {"users": [{**ALICE, "groups": [f"g{n}" for n in range(MANY)]}]},
    "login machines": {"login": {"count": 1000}},
}  # fmt: skip


@pytest.mark.parametrize("much", LARGE)
def test_large_files_are_read_or_refused_in_two_seconds(much: str) -> None:
    # What other tests left on the heap is not collected meanwhile.
    gc.disable()
    try:
        began = time.process_time()
        with contextlib.suppress(ConfigError):
            parse({"hpc:cluster": local(**LARGE[much])})
        assert time.process_time() - began < 2
    finally:
        gc.enable()
