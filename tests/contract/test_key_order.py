"""The order of keys in a stack file has no effect: the Pulumi CLI passes them sorted."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from cluster.load import parse
from cluster.platforms.local.address_plan import plan
from engine.project import Project
from tests.cluster import stacks
from tests.contract.recorded import record
from tests.harness import Recording, deploy

LOCAL: dict[str, Any] = {
    "platform": "local",
    "name": "lab",
    "nodesets": {"gpu": {"count": 2}, "cpu": {"count": 2}},
    "partitions": {"batch": {"nodesets": ["cpu", "gpu"], "default": True}},
}


def reverse(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: reverse(tree[key]) for key in reversed(tree)}
    return [reverse(item) for item in tree] if isinstance(tree, list) else tree


def registered(recording: Recording) -> list[tuple[Any, ...]]:
    return [(resource.urn, resource.inputs) for resource in recording.resources]


def addresses(recording: Recording) -> dict[str, str]:
    return {name: row["address"] for name, row in recording.outputs["machines"].items()}


@pytest.mark.parametrize("name", stacks.EVERY)
def test_reversed_keys_give_the_same_config(name: str):
    settings = stacks.load(name)
    assert [*reverse(settings)["hpc:cluster"]] != [*settings["hpc:cluster"]]
    assert parse(reverse(settings)).model_dump_json() == stacks.config(name).model_dump_json()


@pytest.mark.parametrize("name", ["example-full", "example-gcp", "nebius"])
def test_reversed_keys_give_the_same_resources(name: str):
    settings = stacks.load(name)
    before, after = record(name, "made").recording, deploy(reverse(settings))
    assert dict(registered(before)) == dict(registered(after))
    assert before.outputs == after.outputs


def test_the_embedded_engine_sorts_keys_as_the_cli_does(tmp_path):
    (tmp_path / "Pulumi.yaml").write_text("name: hpc\nruntime: python\n")
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text("config: {hpc:cluster: {b: {d: 1, c: [{z: 1, y: 2}]}, a: 1}}\n")
    values = Project.read(tmp_path).config(file, lambda: "").values
    assert values["hpc:cluster"] == json.dumps({"a": 1, "b": {"c": [{"y": 2, "z": 1}], "d": 1}})


class TestAddressesOfNodesets:
    """Machines of a cluster that is up keep their addresses."""

    def test_a_new_nodeset_gets_a_free_block_of_addresses(self):
        before = deploy({"hpc:cluster": LOCAL})
        grown = {**LOCAL, "nodesets": {"big": {"count": 1}, **LOCAL["nodesets"], "z": {"count": 1}}}
        after = deploy({"hpc:cluster": grown}, was=before.outputs)
        assert addresses(before).items() <= addresses(after).items()
        assert len(set(addresses(after).values())) == len(addresses(after))

    def test_a_removed_nodeset_moves_no_other_and_frees_its_block(self):
        first = deploy({"hpc:cluster": LOCAL})
        shrunk = {
            **LOCAL,
            "nodesets": {"gpu": {"count": 2}},
            "partitions": {"batch": {"nodesets": ["gpu"], "default": True}},
        }
        second = deploy({"hpc:cluster": shrunk}, was=first.outputs)
        assert addresses(second).items() <= addresses(first).items()
        third = deploy({"hpc:cluster": LOCAL}, was=second.outputs)
        assert addresses(third) == addresses(first)

    def test_a_written_block_is_given_to_no_other_nodeset(self):
        """The first free eighth goes to a nodeset without one, past those that others name."""
        written = {**LOCAL, "nodesets": {"a": {}, "b": {"addresses": "10.77.2.0/23"}}}
        written["partitions"] = {"batch": {"nodesets": ["a", "b"], "default": True}}
        of = plan(parse({"hpc:cluster": written})).of
        assert (of["lab-a-0"], of["lab-b-0"]) == ("10.77.4.1", "10.77.2.1")
