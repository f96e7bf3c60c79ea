"""What a preview lists: quantities that cost money or count against a quota, as readable for many nodes as for few."""

from pathlib import Path

import pytest

from cluster.platforms.nebius import platform
from cluster.platforms.nebius.request import describe_request
from tests.cluster.nebius.clusters import FABRIC, gpus, nebius
from tests.cluster.stacks import config


def test_the_guides_cluster() -> None:
    assert describe_request(config("nebius")) == [
        "3 to 9 x cpu-d3/8vcpu-32gb: system; at most 72 CPUs",
        "1 x cpu-d3/16vcpu-64gb: controller; 16 CPUs",
        "2 x cpu-d3/32vcpu-128gb: login; 64 CPUs",
        "1 x cpu-d3/8vcpu-32gb: accounting; 8 CPUs",
        (
            "2 x gpu-h100-sxm/8gpu-128vcpu-1600gb: nodeset worker, on demand, or from a capacity block; 256 CPUs, 16 "
            "GPUs (nvidia_h100_80gb_hbm3)"
        ),
        (
            "file systems: 4.625 TiB (jail 2 TiB, controller_spool 128 GiB, accounting 512 GiB, mlperf-sd 2 TiB); kept "
            "by destroy"
        ),
        "disks: 3.438 TiB of network-ssd",
        (
            "quotas that must have room: 13 nodes of cpu-d3, 2 nodes of gpu-h100-sxm, 5 node groups, GPU clusters on "
            "fabric-3, 1 public address"
        ),
        "Soperator 4.1.7 (Slurm 25.11.3) on Kubernetes 1.35 in eu-north1; login by a public address",
    ]


def test_1000_nodes_take_no_more_lines_than_2() -> None:
    few, many = (describe_request(nebius(**gpus(count=count))) for count in (2, 1000))
    assert len(few) == len(many)
    assert any("in 10 node groups" in line and "8000 GPUs" in line for line in many)


def test_what_was_there_before_is_not_counted() -> None:
    section = {
        "filesystems": {"submounts": {"data": {"mount": "/data", "existing": "computefilesystem-e00abc"}}},
        "workers": {"worker": {**FABRIC, "image_disk": {"size_gib": 930}}},
        "login": {"exposure": "internal"},
    }
    lines = describe_request(nebius(**{**gpus(capacity={"spot": {}}), "nebius": section}))
    assert "file systems that exist, and stay as they are: data" in lines
    assert any("1.816 TiB of network-ssd-io-m3" in line for line in lines)
    assert any("preemptible" in line for line in lines)
    assert not any("public address" in line for line in lines)


class TestCredentials:
    @pytest.fixture(autouse=True)
    def _nothing(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in (platform.TOKEN, platform.SERVICE_ACCOUNT):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(Path, "home", lambda: tmp_path)

    def test_there_are_none(self) -> None:
        assert not platform.credentials({})

    def test_a_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(platform.TOKEN, "t")
        assert platform.credentials({})

    def test_a_service_accounts_file_that_is_there(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        file = tmp_path / "key.json"
        monkeypatch.setenv(platform.SERVICE_ACCOUNT, str(file))
        assert not platform.credentials({})
        file.write_text("{}")
        assert platform.credentials({})

    def test_a_profile_of_the_cli(self, tmp_path: Path) -> None:
        (tmp_path / platform.PROFILES.parent).mkdir()
        (tmp_path / platform.PROFILES).write_text("profiles: {}\n")
        assert platform.credentials({})
