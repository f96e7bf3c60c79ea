"""A platform outside the tree: pods in place of machines, with a section, a finding and an impact of its own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from cluster.config.cluster import ClusterConfig
from cluster.config.impact_annotations import Impact, NoEffect, Replace
from cluster.config.section import Section
from cluster.edits import ImpactRule
from cluster.findings import Finding, Level
from cluster.platform_interface import Capability, MachineLimit, Platform


class Pods(Section):
    """Pods that stand for machines."""

    project: str = Field(examples=["my-project"])
    """Project of the pods."""
    replicas: Annotated[int, NoEffect("pods come and go")] = 1
    """Copies of each pod."""


class ToyPlatform(Platform):
    """Pods in place of machines."""

    name = "toy"
    title = "Toy"
    defaults: ClassVar[Mapping[str, Any]] = {
        "toy": {},
        "network": {"cidr": "10.90.0.0/20"},
        "storage": {},
        "image": {"base": "debian-12"},
        "deletion_protection": False,
    }
    machine_types: ClassVar[Mapping[str, str]] = {"controller": "local-1c", "login": "local-1c", "node": "local-2c"}
    images = ("debian-12",)
    on_this_host = True
    installs_slurm = False
    limit = MachineLimit(machines=100, of="a toy")
    capabilities = frozenset(Capability) - {Capability.SSH, Capability.DRIFT}

    def section(self) -> type[Section]:
        return Pods

    def find_errors(self, config: ClusterConfig) -> Iterator[Finding]:
        pods = config.section(Pods)
        if pods and pods.replicas > 3:
            yield Finding(
                id="pods-replicas",
                at=("toy", "replicas"),
                given=str(pods.replicas),
                allowed="1 to 3",
                todo="lower it",
            )

    def find_warnings(self, config: ClusterConfig) -> Iterator[Finding]:
        if config.login.count > 1:
            yield Finding(
                id="pods-login", level=Level.INFO, at=("login",), what="one pod serves all", todo="lower count"
            )

    def impacts(self) -> Mapping[str, Impact | ImpactRule]:
        return {"toy.project": Replace("pods move to the other project")}

    def describe_request(self, config: ClusterConfig) -> Sequence[str]:
        pods = config.section(Pods)
        return [f"pods of {pods.project}"] if pods else []
