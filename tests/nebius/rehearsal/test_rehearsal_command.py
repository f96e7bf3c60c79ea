"""`./hpc rehearse` of a stack on Nebius, as far as it starts nothing."""

import shutil
from dataclasses import replace

import pytest
import yaml

from cluster.load import parse
from components.rehearsal import Request
from lab.nebius_rehearsal import rehearse
from tests.cli.conftest import hpc, root, tool  # noqa: F401 - fixtures
from tests.harness import ROOT


@pytest.fixture(autouse=True)
def stack(root):  # noqa: F811 - the fixture
    """The stack file as it is shipped, in a project of its own, whose program creates nothing."""
    shutil.copy(ROOT / "Pulumi.nebius.yaml", root / "Pulumi.neb.yaml")
    (root / "__main__.py").write_text("")


def test_a_preview_says_what_stands_in_and_writes_nothing(root, hpc):  # noqa: F811
    ended = hpc("rehearse", "neb", "--preview", "--nodes", "3")
    assert ended.code == 0, ended.err
    for said in (
        "Rehearses neb on this machine.",
        "nodeset worker: 3 nodes, where the stack has 2",
        "Nebius's API: a stand-in on this machine",
        "Soperator and its charts: stand-ins",
        "deletion protection: off",
        "3 x gpu-h100-sxm/8gpu-128vcpu-1600gb",
    ):
        assert said in ended.out
    assert not (root.parent / "home" / "rehearsals").exists()


def test_a_preview_beside_a_running_rehearsal_has_its_addresses(tmp_path):
    (tmp_path / "token").write_text("secret")
    (tmp_path / "ports.json").write_text('{"kubelet": 1, "nebius": 4711}')
    config = parse(yaml.safe_load((ROOT / "Pulumi.nebius.yaml").read_text())["config"])
    request = Request(stack="nebius", file=ROOT / "Pulumi.nebius.yaml", folder=tmp_path)
    for folder, endpoint in ((tmp_path, "secret@127.0.0.1:4711"), (tmp_path / "none", "127.0.0.1:1")):
        made = rehearse(config, replace(request, folder=folder))
        assert made.settings()["hpc:cluster"]["nebius"]["endpoint"] == endpoint
    assert not (tmp_path / "none").exists()


def test_elastic_nodes_stay_and_alerts_reach_nobody(tmp_path):
    given = yaml.safe_load((ROOT / "Pulumi.nebius.yaml").read_text())["config"]
    given["hpc:cluster"]["monitoring"] = {"disk_gb": 20, "receivers": {"slack": "#alerts"}}
    given["hpc:cluster"]["nodesets"]["worker"] |= {"count": {"min": 1, "max": 16}, "idle": "20m"}
    made = rehearse(parse(given), Request(stack="nebius", file=ROOT / "Pulumi.nebius.yaml", folder=tmp_path))
    (worker,) = made.settings()["hpc:cluster"]["nodesets"].values()
    assert (worker["count"], worker.get("idle")) == (4, None)
    # Their secrets are the stack's.
    assert made.settings()["hpc:cluster"]["monitoring"] == {"disk_gb": 20}
    assert "nodeset worker: 4 of 16 nodes" in made.stood_in
    assert any(line.startswith("elastic nodes of worker: all of them stay") for line in made.stood_in)


@pytest.mark.parametrize("option", [("--cidr", "10.9.0.0/20"), ("--real-prolog",), ("--elastic",)])
def test_options_of_stacks_of_machines_are_refused(hpc, option):  # noqa: F811
    ended = hpc("rehearse", "neb", "--preview", *option)
    assert ended.code != 0
    assert f"{option[0]} is for stacks of machines" in ended.err


def test_there_is_nothing_to_destroy_before(hpc):  # noqa: F811
    ended = hpc("rehearse", "neb", "--destroy")
    assert ended.code == 0
