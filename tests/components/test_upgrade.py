"""An upgrade of Slurm moves the controller, the nodes and the login machines one after the other, an `up` each."""

from dataclasses import replace
from typing import Any

import pulumi
import pytest

from cluster.catalog.recipes import RECIPES
from cluster.impact.upgrade import Boot, current_boots, is_complete
from tests.clouds import settings as google
from tests.harness import deploy

LOCAL: dict[str, Any] = {
    "platform": "local",
    "name": "dev",
    "image": {"base": "debian-13"},
    "nodesets": {"cpu": {"count": 2}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
    "users": [{"name": "alice", "uid": 2001}],
}


def local(version: str, *, packages: tuple[str, ...] = (), **more: object) -> dict[str, Any]:
    image = {"base": "debian-13", "packages": list(packages)}
    return {"hpc:cluster": {**LOCAL, "image": image, "slurm": {"version": version, "mpi_default": "pmi2"}, **more}}


def cloud(version: str, *, packages: tuple[str, ...] = ()) -> dict[str, Any]:
    return google(image={"base": "ubuntu-2204", "packages": list(packages)}, slurm={"version": version})


TYPES = (
    "pulumi-python:dynamic/local:Machine",
    "gcp:compute/instance:Instance",
    "gcp:compute/instanceFromTemplate:InstanceFromTemplate",
)


@pytest.mark.parametrize(("stack", "old"), [(local, "24.11"), (local, "26.05"), (cloud, "25.11"), (cloud, "26.05")])
def test_an_upgrade_takes_three_steps(stack: Any, old: str) -> None:
    """Of another release, and of another image with the same one."""
    made = deploy(stack(old))
    nodes = {resource.name for resource in made.resources if resource.type in TYPES} - {
        "cloud-controller",
        "dev-controller",
    }
    found: list[set[str]] = []
    texts: list[bool] = []
    for _ in range(4):
        made = deploy(stack("26.05", packages=("htop",)), was=made.outputs)
        found.append(
            {resource.name for resource in made.resources if resource.type in TYPES and resource.request.ignoreChanges}
        )
        files = next(
            resource.inputs["stdin"] for resource in made.resources if resource.name.endswith("-controller-configure")
        )
        texts.append("CgroupJobIdPaths" in files)
    logins = {name for name in nodes if "login" in name}
    assert found == [nodes, logins, set(), set()]
    # A key that only the new release knows comes when no node is of the old one.
    assert texts == [old == "26.05", old == "26.05", True, True]
    assert is_complete(current_boots(made.outputs, Boot("", "")))


def test_waiting_nodes_keep_their_image_and_elastic_templates_do_not() -> None:
    """Going back after a failed first step would recreate all nodes at once, if their template had been another."""
    elastic = google(
        image={"base": "ubuntu-2204"},
        slurm={"version": "25.11"},
        nodesets={"cpu": {"machine_type": "n2-standard-8", "count": {"min": 1, "max": 4}}},
    )
    made = deploy(elastic)
    elastic["hpc:cluster"]["slurm"]["version"] = "26.05"
    for held in ({"cloud-cpu-template"}, set[str]()):
        made = deploy(elastic, was=made.outputs)
        templates = [resource for resource in made.resources if resource.type.endswith(":InstanceTemplate")]
        assert {template.name for template in templates} == {"cloud-cpu-template", "cloud-cpu-on-demand"}
        assert {
            template.name for template in templates if list(template.request.ignoreChanges) == ["disks[0].sourceImage"]
        } == held


def test_another_edit_that_drains_nodes_is_refused_during_an_upgrade() -> None:
    made = deploy(local("24.11")).outputs
    with pytest.raises(pulumi.RunError, match=r"(?s)drains no nodes in the run .*: nodesets.cpu.count: 2 -> 1"):
        deploy(local("26.05", nodesets={"cpu": {"count": 1}}), was=made)
    assert deploy(local("26.05", nodesets={"cpu": {"count": 3}}), was=made).one("dev-cpu-2")


def test_the_next_upgrade_is_refused_until_the_last_machine_is_moved() -> None:
    made = deploy(cloud("25.11")).outputs
    made = {**made, "releases": {"controller": "25.11", "node": "24.05", "login": "24.05"}}
    with pytest.raises(pulumi.RunError, match=r"an upgrade has not come to its end: node machines run 24\.05"):
        deploy(cloud("26.05"), was=made)


def test_a_new_patch_of_the_same_release_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of this program with a later patch brings it by `up`, with no edit of the stack file."""
    made = deploy(cloud("26.05"))
    nodes = {resource.name for resource in made.resources if resource.type in TYPES} - {"cloud-controller"}
    for key, row in RECIPES.items():
        if row.slurm:
            slurm = {**row.slurm, "26.05": replace(row.slurm["26.05"], version="26.05.99", sha256="0" * 64)}
            monkeypatch.setitem(RECIPES, key, replace(row, slurm=slurm))
    held: list[set[str]] = []
    for _ in range(4):
        made = deploy(cloud("26.05"), was=made.outputs)
        held.append(
            {resource.name for resource in made.resources if resource.type in TYPES and resource.request.ignoreChanges}
        )
    assert held == [nodes, {name for name in nodes if "login" in name}, set(), set()]
    assert set(made.outputs["releases"].values()) == {"26.05"}
    assert len(set(made.outputs["images"].values())) == 1


def test_no_elastic_node_has_a_newer_slurm_than_the_controller() -> None:
    """In a rehearsal: the process that creates machines has their image when the controller has its own, and templates
    are others then, so that the loop replaces machines of the old image."""
    nodesets = {"cpu": {"count": {"min": 1, "max": 3}}}
    made = deploy(local("24.11", nodesets=nodesets))
    names = [set(made.one("dev-cloud").inputs["templates"])]
    made = deploy(local("26.05", nodesets=nodesets), was=made.outputs)
    cloud = made.one("dev-cloud")
    assert made.waits_for(cloud, made.one("dev-controller"))
    names.append(set(cloud.inputs["templates"]))
    assert not names[0] & names[1]
    assert "image" not in cloud.request.ignoreChanges
    files = next(resource.inputs["stdin"] for resource in made.resources if resource.name == "dev-controller-configure")
    assert all(name in files for name in names[1])
