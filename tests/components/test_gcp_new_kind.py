"""A new kind of file system is one class, one component and one line: all else follows, in every room."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import pulumi
import pytest
from pulumi_gcp import compute

from cluster.config import ClusterConfig
from cluster.findings import ConfigError, Finding, Level
from cluster.platforms.gcp.address_plan import plan
from cluster.platforms.gcp.filesystems import registry
from cluster.platforms.gcp.filesystems.base import FileSystem, Mount, Need, Place
from cluster.platforms.gcp.filesystems.registry import exports, targets
from cluster.platforms.gcp.links import console_links
from cluster.platforms.gcp.permissions import policies, roles, services
from cluster.platforms.gcp.request import describe_request
from cluster.platforms.registry import get
from cluster.roster import MachineSpec
from components.gcp.storage.filesystems import FileSystemComponent
from tests.clouds import google
from tests.components.test_gcp_storage import make
from tests.harness import deploy


class Volumes(FileSystem):
    """NetApp volumes of a stack that is called so: a file of the tests can't add a section to `storage`."""

    key = "volumes"
    component = f"{__name__}:VolumesComponent"
    needs: ClassVar[Mapping[str, Need]] = {
        "gcp:netapp/": Need(services=("netapp",), roles=("roles/netapp.admin",)),
    }
    callback_ports = ("111", "2049")
    peered = True

    @classmethod
    def used(cls, config: ClusterConfig) -> bool:
        return config.name.startswith("netapp")

    def places(self) -> Iterable[Place]:
        return [Place(at=("storage", "volumes"), path="/home", owner="the volumes'")]

    def mounts(self, spec: MachineSpec) -> Iterable[Mount]:
        return [Mount(kind=self.key, target="/home", fs_type="nfs", options=f"rsize={len(spec.name)}")]

    def summary(self) -> Iterable[str]:
        return ["volumes at /home: 1,024 GiB"]

    def pages(self) -> Mapping[str, str]:
        return {"volumes": "/netapp/volumes"}

    def find_errors(self) -> Iterable[Finding]:
        if self.config.name == "netapp-broken":
            yield Finding(
                id="volumes-name", at=("name",), given=self.config.name, allowed="a sound name", todo="rename it"
            )

    def find_warnings(self) -> Iterable[Finding]:
        return [
            Finding(
                id="volumes-price", level=Level.WARNING, at=("name",), what="volumes are dear", todo="take a bucket"
            )
        ]


class VolumesComponent(FileSystemComponent[Volumes]):
    TYPE = "test:gcp:Volumes"

    def make(self) -> None:
        disk = compute.Disk(f"{self.name}-disk", name="volumes", size=1024, opts=pulumi.ResourceOptions(parent=self))
        self.source, self.facts, self.ready = pulumi.Output.format("{0}:/all", disk.name), {"gib": 1024}, [disk]
        self.register_outputs({})


@pytest.fixture(autouse=True)
def one_line(monkeypatch):
    monkeypatch.setattr(registry, "KINDS", [*registry.KINDS, Volumes])


@pytest.fixture
def config() -> ClusterConfig:
    return google(name="netapp")


def test_addresses_and_mounts(config):
    assert plan(config).managed == "10.128.0.0/21"
    assert (exports(config), targets(config)) == (("/opt/apps",), ("/home", "/opt/apps"))


def test_services_roles_and_policies(config):
    assert {"netapp.googleapis.com", "servicenetworking.googleapis.com"} <= set(services(config))
    assert "roles/netapp.admin" in roles(config)
    assert "compute.restrictVpcPeering" in policies(config)


def test_summary_and_console(config):
    assert "volumes at /home: 1,024 GiB" in describe_request(config)
    assert console_links(config)["volumes"].startswith("https://console.cloud.google.com/netapp/volumes?project=")


def test_errors_and_warnings(config):
    assert "volumes are dear" in [finding.what for finding in get("gcp").warnings(config)]
    with pytest.raises(ConfigError, match="a sound name"):
        google(name="netapp-broken")
    with pytest.raises(ConfigError, match="/home is Filestore's"):
        google(name="netapp", storage={"filestore": {"mount": "/home"}})


def test_resources_and_firewall(config):
    recording = deploy(lambda: make(config))
    (own,) = recording.all("test:gcp:Volumes")
    assert own.name == "cloud-storage-volumes"
    assert recording.outputs["facts"] == {"volumes": {"gib": 1024}}
    home = {row["target"]: row for row in recording.outputs["mounts"]["netapp-cpu-0"]}["/home"]
    assert (home["source"].partition(":")[2], home["options"]) == ("/all", "rsize=12")
    (rule,) = [rule for rule in recording.all("gcp:compute/firewall:Firewall") if rule.name.endswith("-services")]
    assert rule.inputs["allows"] == [{"protocol": "tcp", "ports": ["111", "2049"]}]
    assert rule.inputs["sourceRanges"] == ["10.128.0.0/21"]


def test_a_stack_without_it_has_nothing_of_it():
    config = google()
    assert "netapp.googleapis.com" not in services(config)
    assert plan(config).managed is None
