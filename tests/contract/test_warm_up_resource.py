"""The warm-up is one resource after `ready`, only where the stack asks for it; it runs again where nodes need it."""

import json
from typing import Any

import pytest

from tests.contract.test_edits import LAB, Difference, between, edited, program

IMAGE = "nvcr.io/nvidia/pytorch:24.04-py3"


def lab(**warm_up: Any) -> dict[str, Any]:
    return edited(lambda c: c.update(slurm={"warm_up": warm_up}))


@pytest.fixture(scope="module")
def warm():
    return program(lab(containers=[IMAGE]))


def test_nothing_else_changes(warm):
    assert between(program(LAB), warm) == Difference(added={"lab-warm-up"}, removed=set(), changed=set())


def test_it_is_the_last_and_nothing_waits_for_it(warm):
    step = warm.one("lab-warm-up")
    assert warm.waits_for(step, warm.one("lab-ready"))
    assert not [one.name for one in warm.resources if one is not step and warm.waits_for(one, step)]
    asked = json.loads(step.inputs["stdin"])
    assert asked["images"] == [IMAGE]
    assert {part["name"] for part in asked["partitions"]} == {"cpu", "gpu"}
    assert not any(part["rxdm"] for part in asked["partitions"])


def test_other_images_change_nothing_else(warm):
    found = between(warm, program(lab(containers=["alpine:3.20"])))
    assert found == Difference(added=set(), removed=set(), changed={"lab-warm-up"})


def test_a_new_node_is_warmed(warm):
    after = edited(lambda c: c["nodesets"]["cpu"].update(count=3), lab(containers=[IMAGE]))
    found = between(warm, program(after))
    assert "lab-warm-up" in found.changed
    assert "lab-cpu-2" in json.loads(program(after).one("lab-warm-up").inputs["stdin"])["after"]["boots"]


def test_nodes_of_other_partitions_do_not_matter():
    before = lab(containers=[IMAGE], partitions=["gpu"])
    after = edited(lambda c: c["nodesets"]["cpu"].update(count=3), before)
    assert "lab-warm-up" not in between(program(before), program(after)).changed


def test_another_prolog_is_warmed_where_it_runs():
    def rxdm(text: str) -> dict[str, Any]:
        scripts = [{"name": "check", "text": text}]
        section = {"partitions": ["gpu"], "file": "lab/slurm/rxdm.sh"}
        return edited(lambda c: c.update(slurm={"warm_up": {}, "rxdm": section, "scripts": scripts}))

    found = between(program(rxdm("#!/bin/sh\n")), program(rxdm("#!/bin/sh\ntrue\n")))
    assert "lab-warm-up" in found.changed
