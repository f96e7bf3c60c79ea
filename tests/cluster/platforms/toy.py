"""A platform outside the tree: pods in place of machines, with a section, a finding and an impact of its own."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from cluster.config.cluster import ClusterConfig
from cluster.config.impact_annotations import NoEffect, Replace
from cluster.config.section import Section
from cluster.findings import Finding, Level
from cluster.platforms.base import Capability, Limit, Platform

MODULE = __name__


class Pods(Section):
    """Pods that stand for machines."""

    project: str = Field(examples=["my-project"])
    """Project of the pods."""
    replicas: Annotated[int, NoEffect("pods come and go")] = 1
    """Copies of each pod."""


def _checks(config: ClusterConfig) -> Iterator[Finding]:
    pods = config.section(Pods)
    if pods and pods.replicas > 3:
        yield Finding(
            id="pods-replicas",
            at=("pods", "replicas"),
            given=str(pods.replicas),
            allowed="1 to 3",
            todo="lower it",
        )


def _warnings(config: ClusterConfig) -> Iterator[Finding]:
    if config.login.count > 1:
        yield Finding(id="pods-login", level=Level.INFO, at=("login",), what="one pod serves all", todo="lower count")


def _summary(config: ClusterConfig) -> Sequence[str]:
    pods = config.section(Pods)
    return [f"pods of {pods.project}"] if pods else []


PLATFORM = Platform(
    name="toy",
    title="Toy",
    defaults={
        "pods": {},
        "network": {"cidr": "10.90.0.0/20"},
        "storage": {},
        "image": {"base": "debian-12"},
        "deletion_protection": False,
    },
    machine_types={"controller": "local-1c", "login": "local-1c", "node": "local-2c"},
    images=("debian-12",),
    any_machine_type=True,
    limit=Limit(machines=100, of="a toy"),
    sections={"pods": f"{MODULE}:Pods"},
    capabilities=frozenset(Capability) - {Capability.SSH, Capability.DRIFT},
    checks=_checks,
    warnings=_warnings,
    impacts=lambda: {"pods.project": Replace("pods move to the other project")},
    summary=_summary,
    deploy="tests.cluster.platforms.toy_deploy",
)
