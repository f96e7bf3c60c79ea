"""Pulumi.yaml declares exactly the keys that the program reads."""

import pulumi
import pytest
import yaml

from tests.contract.recorded import record
from tests.harness import ROOT, deploy, stack_config, stacks

PROJECT = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
SCHEMA = "docs/schema/cluster.schema.json"


@pytest.mark.parametrize("stack", list(stacks()))
def test_the_keys_that_are_read_are_the_keys_that_are_declared(stack):
    read = record(stack, "made").recording.read
    # Project and zone are declared by the provider that they belong to.
    assert {key for key in read if key.startswith("hpc:")} == set(PROJECT["config"])
    assert read - set(PROJECT["config"]) <= {"gcp:project", "gcp:zone", "gcp:region", "gcp:computeCustomEndpoint"}
    assert {key for key in stack_config(stack) if key.startswith("hpc:")} <= read


def test_every_key_is_described():
    for declared in PROJECT["config"].values():
        assert declared["type"] == "object"
        assert declared["description"].strip().endswith(".")
    assert SCHEMA in PROJECT["config"]["hpc:cluster"]["description"]


def test_the_project_runs_in_its_own_environment():
    assert PROJECT["name"] == "hpc"
    assert PROJECT["runtime"] == {"name": "python", "options": {"virtualenv": ".venv"}}


def test_a_stack_without_the_key_is_an_error():
    with pytest.raises(pulumi.RunError, match="hpc:cluster"):
        deploy({})
