"""What the author of a stack file should know, though it works as it is written."""

from typing import Any

import pytest

from cluster.checks.run import find_warnings
from cluster.findings import Level
from tests.cluster.nebius.samples import FABRIC, gpus, nebius
from tests.cluster.stacks import config


def told(**changes: Any) -> dict[str, str]:
    return {one.id: one.what for one in find_warnings(nebius(**changes))}


def test_the_stack_that_is_here_to_start_from_has_no_warning() -> None:
    assert [one.id for one in find_warnings(config("nebius")) if one.level is not Level.INFO] == []


def test_a_fabric_of_another_region_or_platform() -> None:
    workers = {"worker": {"infiniband": {"fabric": "fabric-5"}}}
    what = told(**{**gpus(), "nebius": {"workers": workers}})["nebius-fabric"]
    assert "fabric-5 is of gpu-h200-sxm in eu-west1, and the nodes are gpu-h100-sxm in eu-north1" in what


def test_a_fabric_that_is_not_known_here() -> None:
    workers = {"worker": {"infiniband": {"fabric": "fabric-99"}}}
    assert "none of those that are known" in told(**{**gpus(), "nebius": {"workers": workers}})["nebius-fabric"]


def test_gpu_nodes_without_infiniband() -> None:
    assert "Ethernet in place of InfiniBand" in told(**{**gpus(), "nebius": {}})["nebius-no-gpu-cluster"]
    assert told(**gpus()) == {}


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("1.31", "creates no clusters of it any more, and ended it on 2026-09-01 (as of 2026-09-23)"),
        ("1.99", "none of those that are known here"),
    ],
)
def test_a_version_of_kubernetes_that_no_new_cluster_has(version: str, why: str) -> None:
    """One that is up with it stays up, so it is no error."""
    section = {"workers": {"worker": FABRIC}, "kubernetes": {"version": version}, "gpu": {"driver": "operator"}}
    assert why in told(**{**gpus(), "nebius": section})["nebius-kubernetes-version"]


def test_a_version_with_faults_that_are_not_fatal() -> None:
    section = {"workers": {"worker": FABRIC}, "soperator": {"version": "4.1.6"}}
    what = told(**{**gpus(), "nebius": section})["nebius-soperator-faults"]
    assert "node-undrained" in what


def test_an_unknown_version() -> None:
    assert (
        "without charts of that version" in told(nebius={"soperator": {"version": "4.9.0"}})["nebius-soperator-unknown"]
    )
    assert told(nebius={"soperator": {"version": "4.1.11"}}) == {}


def test_large_file_systems_need_a_request() -> None:
    section = {"filesystems": {"jail": {"spec": {"size_gib": 4096}}}}
    assert "jail (4096 GiB)" in told(nebius=section)["nebius-filesystem-large"]


def test_backups_of_a_large_jail() -> None:
    section = {"filesystems": {"jail": {"spec": {"size_gib": 20_000}}}, "backups": {"enabled": True}}
    assert "20000 GiB" in told(nebius=section)["nebius-backup-size"]


def test_a_number_that_users_of_checks_may_have() -> None:
    assert "1001 may be taken" in told(users=[{"name": "alice", "uid": 1001}])["nebius-user-uid"]
    assert told(users=[{"name": "alice", "uid": 2001}]) == {}
