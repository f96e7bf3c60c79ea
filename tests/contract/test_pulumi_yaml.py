"""Pulumi.yaml and the stack files say what the program reads, no more and no less."""

import pulumi
import pytest
import yaml

from cluster.load import parse
from cluster.reference import schema_text
from tests.contract.seen import record
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


def test_the_project_is_ours_and_runs_in_its_own_environment():
    assert PROJECT["name"] == "hpc"
    assert PROJECT["runtime"] == {"name": "python", "options": {"virtualenv": ".venv"}}


@pytest.mark.parametrize("stack", list(stacks()))
def test_a_stack_file_is_valid_and_leads_editors_to_the_schema(stack):
    path = ROOT / f"Pulumi.{stack}.yaml"
    first, *_ = path.read_text().splitlines()
    schema = path.parent / first.removeprefix("# yaml-language-server: $schema=")
    assert schema == ROOT / SCHEMA
    assert schema.read_text() == schema_text()
    assert SCHEMA in PROJECT["config"]["hpc:cluster"]["description"]
    # Raises with every finding.
    assert parse(yaml.safe_load(path.read_text())["config"]).name


def test_a_stack_without_the_key_is_told_so():
    with pytest.raises(pulumi.RunError, match="hpc:cluster"):
        deploy({})
