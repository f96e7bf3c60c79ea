"""Resources that a stack on Google Cloud creates and changes after an edit of its file."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from tests.cluster import stacks
from tests.contract.recorded import record
from tests.harness import Registered, deploy

NODE = "gcp:compute/instanceFromTemplate:InstanceFromTemplate"


@cache
def before() -> dict[str, Registered]:
    return {resource.urn: resource for resource in record("a3mega", "made").recording.resources}


def after(edit: Callable[[dict[str, Any]], Any]) -> dict[str, Registered]:
    settings = stacks.load("a3mega")
    edit(settings["hpc:cluster"])
    return {resource.urn: resource for resource in deploy(settings).resources}


def changed(found: dict[str, Registered]) -> list[Registered]:
    return [resource for urn, resource in found.items() if urn in before() and resource.inputs != before()[urn].inputs]


def test_two_more_nodes_are_two_instances_and_their_drains():
    found = after(lambda cluster: cluster["nodesets"]["a3mega"].update(count=4))
    new = [(resource.type, resource.name) for urn, resource in found.items() if urn not in before()]
    assert sorted(new) == [
        ("command:remote:Command", "a3mega-a3mega-2-leave"),
        ("command:remote:Command", "a3mega-a3mega-3-leave"),
        (NODE, "a3mega-a3mega-2"),
        (NODE, "a3mega-a3mega-3"),
    ]
    assert before().keys() <= found.keys()
    # Commands are updated in place: nothing that stands is touched on Google Cloud, and no trigger makes one anew.
    assert {resource.type for resource in changed(found)} == {"command:remote:Command"}
    for resource in changed(found):
        assert resource.inputs["triggers"] == before()[resource.urn].inputs["triggers"]


def test_one_more_user_changes_no_instance():
    found = after(lambda cluster: cluster["users"].append({"name": "bob", "uid": 2002, "account": "research"}))
    assert found.keys() == before().keys()
    assert changed(found)
    assert {resource.type for resource in changed(found)} == {"command:remote:Command"}


def test_another_snapshot_replaces_only_the_image_and_the_machines():
    found = after(lambda cluster: cluster["image"].update(snapshot="20261115T000000Z"))
    assert found.keys() == before().keys()
    anew = {(resource.type, resource.name) for resource in changed(found)}
    # Nodes are of their template: another one makes each anew, after it was emptied by its `leave`.
    assert anew == {
        ("pulumi-python:dynamic/gcp:BakedImage", "a3mega-image-bake"),
        ("gcp:compute/instance:Instance", "a3mega-controller"),
        ("gcp:compute/instance:Instance", "a3mega-login-0"),
        ("gcp:compute/instanceTemplate:InstanceTemplate", "a3mega-a3mega-template"),
        ("gcp:compute/instanceTemplate:InstanceTemplate", "a3mega-debug-template"),
    }
    nodes = {resource.name for resource in found.values() if resource.type == NODE}
    assert {f"{name}-leave" for name in nodes} <= {resource.name for resource in found.values()}


def test_dependencies_grow_with_the_servers_of_lustre_and_not_with_their_square():
    """The SDK resolves each dependency of each resource: 300 servers took a preview half a minute."""

    def with_servers(count: int) -> dict[str, Registered]:
        return after(lambda cluster: cluster["storage"]["lustre"]["oss"].update(count=count))

    # The stack has three.
    few, more, most = (
        sum(len(resource.request.dependencies) for resource in found.values())
        for found in (before(), with_servers(4), with_servers(5))
    )
    assert most - more == more - few


def test_slurm_gets_the_end_of_machines():
    """Of flex start by what Google says of each, of a calendar by the stack file; all others stay."""
    told: list[object] = []
    for capacity in ({"flex": {}}, {"calendar": {"name": "week", "ends": "20261201T080000Z"}}, {"calendar": "week"}):
        found = after(lambda cluster, way=capacity: cluster["nodesets"]["a3mega"].update(capacity=way))
        (ends,) = [resource for resource in found.values() if resource.name == "a3mega-ends"] or [None]
        told.append(ends and json.loads(ends.inputs["stdin"]))
        assert ends is None or ends.inputs["delete"].endswith("no-ends")
    nodes = ("a3mega-a3mega-0", "a3mega-a3mega-1")
    assert told == [{"ends": dict.fromkeys(nodes, 1796112000)}] * 2 + [None]
