"""What an edit is told to do to data and machines is what the provider does: it changes some inputs of a resource in
place, and replaces the resource for others.

`replacements.json` says which is which, as the source that it names does; here every change of a field is made, and the
two graphs of resources are compared by it.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from cluster.config import ClusterConfig
from cluster.config.impact_annotations import Effect
from cluster.impact.table import FieldChange, effects, worst_effect
from cluster.load import parse
from components.gcp.deploy import GcpPlatform
from components.gcp.identity import SETUP
from components.slurm.keys import ClusterKeys
from tests.cluster import stacks
from tests.cluster.samples import CLUSTERS, edited, edits_of
from tests.contract.recorded import record
from tests.harness import Registered, deploy

TABLE: dict[str, Any] = json.loads((Path(__file__).parent / "replacements.json").read_text())
TYPES: dict[str, dict[str, list[str]]] = TABLE["types"]
DISK, LUSTRE, FILESTORE = "gcp:compute/disk:Disk", "gcp:lustre/instance:Instance", "gcp:filestore/instance:Instance"
INSTANCE, NODE = "gcp:compute/instance:Instance", "gcp:compute/instanceFromTemplate:InstanceFromTemplate"
TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
DATA, MACHINES = {DISK, LUSTRE, FILESTORE}, {INSTANCE, NODE}
GCP = [name for name in stacks.STACKS if stacks.config(name).platform == "gcp"]
KEYED = {"labels", "metadata"}
"""Inputs whose keys are ours."""
SAMPLES = [
    (base, number)
    for base in ("cloud", "managed")
    for number, (pattern, *_) in enumerate(edits_of(base))
    # What holds data, and machines; four kinds of disks are told of by one rule.
    if pattern.startswith(("storage.lustre", "storage.filestore", "controller", "login", "nodesets", "image.name"))
    and not {"mgt", "mnt", "mdt"} & {*pattern.split(".")}
]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Inputs by their path, as the table has them: members of lists have no number."""
    if isinstance(value, dict) and path.rpartition(".")[2] not in KEYED:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for item in value:
            yield from leaves(item, path)
    elif value is not None:
        yield path, value


def differing(old: Registered, new: Registered) -> list[tuple[str, Any, Any]]:
    """Paths of inputs that differ, with what they were and are."""
    was, now = ({path: [] for resource in (old, new) for path, _ in leaves(resource.inputs)} for _ in "ab")
    for found, resource in ((was, old), (now, new)):
        for path, value in leaves(resource.inputs):
            found[path].append(value)
    return [(path, was[path], now[path]) for path in was if was[path] != now[path]]


def is_recreated(old: Registered, new: Registered) -> bool:
    """Return whether the provider makes another resource of it."""
    for path, was, now in differing(old, new):
        if path in old.request.ignoreChanges or path not in TYPES[old.type]["anew"]:
            if old.type == DISK and path == "size" and now[0] < was[0]:
                return True
            if old.type == DISK and path == "provisionedIops" and now and "hyperdisk" not in new.inputs["type"]:
                return True
            continue
        return True
    return False


IDENTITY = SimpleNamespace(
    email=lambda role: f"{role}@my-project.iam.gserviceaccount.com",
    ready=lambda _: [],
    versions=lambda _: {},
    host_key=lambda _: SimpleNamespace(public_key_openssh="ssh-ed25519 key"),
    project_number=None,
    objects={SETUP: SimpleNamespace(url="gs://b/setup.json", sha256="0" * 64)},
)
"""Stands for accounts, secrets and grants, none of which is in the table: they are half of a platform's resources."""


@cache
def graph(base: str, number: int | None) -> tuple[ClusterConfig, dict[str, Registered]]:
    cluster = edited(CLUSTERS[base], {} if number is None else edits_of(base)[number].changes)
    place = {f"gcp:{key}": value for key, value in cluster.pop("gcp").items()}
    config = parse({"hpc:cluster": {key: value for key, value in cluster.items() if value is not None}, **place})

    def program() -> None:
        GcpPlatform(config.name, config, ClusterKeys(config.name))

    with mock.patch.multiple(
        "components.gcp.deploy",
        Identity=lambda *_, **__: IDENTITY,
        Services=lambda *_, **__: SimpleNamespace(ready=[]),
    ):
        return config, {resource.urn: resource for resource in deploy(program).resources if resource.type in TYPES}


def told(base: str, number: int) -> list[FieldChange]:
    return effects(graph(base, None)[0], graph(base, number)[0], "s")


def outcome(base: str, number: int) -> tuple[list[str], list[str]]:
    """Names of what holds data, and of machines, that the edit removes or recreates, stopped machines among them."""
    (_, before), (_, after) = graph(base, None), graph(base, number)
    anew = {urn for urn, resource in before.items() if urn not in after or is_recreated(resource, after[urn])}
    templates = {resource.parent for urn, resource in before.items() if urn in anew and resource.type == TEMPLATE}
    anew |= {urn for urn, resource in before.items() if resource.type == NODE and resource.parent in templates}
    stopped = {
        urn
        for urn, resource in before.items()
        if resource.type == INSTANCE
        and urn in after
        and resource.inputs["machineType"] != after[urn].inputs["machineType"]
    }
    lost = [before[urn].name for urn in anew if before[urn].type in DATA]
    return lost, [before[urn].name for urn in anew | stopped if before[urn].type in MACHINES]


@pytest.mark.parametrize(("base", "number"), SAMPLES)
def test_predicted_replacements_are_the_providers(base: str, number: int):
    changes = told(base, number)
    harm, words = worst_effect(changes), " ".join(change.reason for change in changes)
    lost, machines = outcome(base, number)
    if lost:
        assert harm is Effect.REFUSED, f"{lost} would be lost"
    if machines:
        assert harm.harm >= Effect.DRAIN.harm, f"{machines} would stop or be recreated"
    if "deleted with every file" in words:
        assert lost, words
    if harm is Effect.REPLACE and not any(change.path.startswith(("image", "slurm")) for change in changes):
        assert machines, words


class TestTable:
    @pytest.mark.parametrize("stack", GCP)
    def test_the_table_has_every_input_of_the_stacks(self, stack: str):
        for resource in record(stack, "made").recording.resources:
            if resource.type in TYPES:
                known = {*TYPES[resource.type]["anew"], *TYPES[resource.type]["in_place"]}
                assert {path for path, _ in leaves(resource.inputs)} <= known, resource.name

    def test_the_table_is_of_the_installed_provider(self):
        assert TABLE["pulumi_gcp"] == version("pulumi-gcp"), (
            "look up in the new provider's source which inputs force a replacement"
        )
        assert re.search(r"terraform-provider-google [0-9a-f]{8} ", TABLE["source"])
