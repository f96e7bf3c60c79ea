"""Two stacks of one cluster name in one project: both come up, and neither touches what the other has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.nebius.api import client
from tests.cluster.nebius.clusters import given, gpus
from tests.lab.nebius_api.server import NebiusServer
from tests.nebius.api.project import PROJECT_ID, Project

PROGRAM = """
import json, pathlib, pulumi
from cluster.load import parse
from cluster.platforms.nebius.stack_file_fields import settings_of
from components.nebius.backups import NebiusBackups
from components.nebius import infrastructure as parts
from components.nebius.resource import NebiusPlace

found = json.loads(pathlib.Path("given.json").read_text())
config = parse({"hpc:cluster": found["cluster"]})
owner = pulumi.Output.from_input(found["owner"])
cloud = NebiusPlace(config=config, settings=settings_of(config), owner=owner, after=())
subnet = parts.NebiusNetwork("network", cloud).subnet_id
parts.SharedFilesystems("fs", cloud)
parts.LoginAddress("login", cloud, subnet)
parts.GpuClusters("gpu", cloud)
NebiusBackups("backups", cloud)
pulumi.export("kubernetes", parts.KubernetesCluster("kubernetes", cloud, subnet).access)
"""
NAMES = {
    "Network": "soperator", "Subnet": "soperator", "Cluster": "soperator", "Allocation": "soperator-static-ip",
    "GpuCluster": "soperator-fabric-3", "ServiceAccount": "soperator-backup-sa", "Filesystem": "soperator-jail",
}  # fmt: skip
"""Names of a stack without a prefix, one of each kind whose names are unique in the project."""
ONE, OTHER = "0123456789abcdef", "fedcba9876543210"


class Stack(Project):
    """One of the stacks."""

    def __init__(self, root: Path, api: NebiusServer, owner: str) -> None:
        root.mkdir()
        super().__init__(root, api)
        self.owner = owner
        (root / "__main__.py").write_text(PROGRAM)

    def describe(self, **nebius: Any) -> None:
        """Write the cluster's description."""
        place = {"project": PROJECT_ID, "subnet": "create"}
        cluster = given(**gpus(nebius={**place, **nebius}), deletion_protection=False)
        (self.root / "given.json").write_text(json.dumps({"cluster": cluster, "owner": self.owner}))

    def objects(self) -> dict[str, tuple[str, str, str]]:
        """Kind, name and label of the stack's objects, by id."""
        return {
            id_: (row["kind"], row["metadata"].get("name", ""), row["metadata"]["labels"]["hpc-cluster"])
            for id_, row in self.api.store.objects.items()
            if row["metadata"].get("labels", {}).get("hpc-owner") == self.owner
            and row["state"] != "SCHEDULED_FOR_DELETION"
        }

    def context(self) -> dict[str, str]:
        """The context and the namespace of kubectl."""
        outputs = self.exported()["kubernetes"]
        return {key: outputs[key] for key in ("context", "namespace")}


@pytest.fixture
def stacks(tmp_path: Path) -> Iterator[tuple[Stack, Stack]]:
    with NebiusServer(seconds=0.01) as api:
        yield Stack(tmp_path / "one", api, ONE), Stack(tmp_path / "other", api, OTHER)
        client.close()


def test_with_a_prefix_two_stacks_come_up_side_by_side_and_go(stacks: tuple[Stack, Stack]) -> None:
    one, other = stacks
    one.describe()
    other.describe(prefix="team-a")
    for stack in stacks:
        stack.run("up")
    mine, its = ({(kind, name) for kind, name, _ in stack.objects().values()} for stack in stacks)
    assert mine >= {*NAMES.items(), ("Bucket", f"soperator-backups-{ONE[:8]}")}
    assert its == {(kind, name and f"team-a-{name.replace(ONE[:8], OTHER[:8])}") for kind, name in mine}
    assert {label for *_, label in other.objects().values()} == {"team-a-soperator"}
    assert one.context() == {"context": "nebius-soperator", "namespace": "soperator"}
    assert other.context() == {"context": "nebius-team-a-soperator", "namespace": "soperator"}
    before = other.objects()
    one.run("destroy")
    assert (one.objects(), other.objects()) == ({}, before)
    assert other.run("up") == {}
    other.run("destroy")
    assert other.objects() == {}


def test_without_one_the_second_names_the_field_and_touches_nothing(stacks: tuple[Stack, Stack]) -> None:
    one, other = stacks
    for stack in stacks:
        stack.describe()
    one.run("up")
    before = one.objects()
    other.run("up", ok=False)
    assert "it is not this stack's: the label hpc-owner names another state" in other.text()
    assert "write nebius.prefix, which all names of this stack then begin with" in other.text()
    other.describe(prefix="team-a")
    other.run("up")
    assert one.objects() == before
    assert all(name.startswith("team-a-") for _, name, _ in other.objects().values() if name)
    assert one.run("up") == {}
