"""Who may talk to the machines of a stack. Nothing here is open to the world."""

from collections.abc import Mapping

import pulumi
from pulumi_gcp import compute

from cluster.config import ClusterConfig
from cluster.platforms.gcp.address_plan import Plan
from cluster.platforms.gcp.filesystems.registry import file_systems
from cluster.platforms.gcp.names import place

IAP = "35.235.240.0/20"
"""Where Identity-Aware Proxy's tunnels come from (cloud.google.com/iap/docs/using-tcp-forwarding)."""
LNET_PORT = 988
"""Lustre's own."""
EVERYTHING: Mapping[str, list[str] | None] = {"tcp": ["0-65535"], "udp": ["0-65535"], "icmp": None}
SSH: Mapping[str, list[str] | None] = {"tcp": ["22"]}


def firewalls(
    name: str, config: ClusterConfig, ranges: Plan, network: pulumi.Input[str], *, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """The rules of the system network.

    In an existing network every rule is for machines with the stack's tag alone.
    """
    tag, project = [config.name] if config.network.existing else None, host(config)

    def rule(
        part: str, sources: list[str], allows: Mapping[str, list[str] | None], tags: list[str] | None = tag
    ) -> compute.Firewall:
        called = f"{config.name}-{part}"
        return allow(f"{name}-{part}", called, network, sources, allows=allows, tags=tags, project=project, opts=opts)

    rules: list[pulumi.Resource] = [rule("internal", [ranges.system], EVERYTHING), rule("iap", [IAP], SSH)]
    if config.network.admin_cidrs:
        rules.append(rule("admin", list(config.network.admin_cidrs), SSH, [f"{config.name}-login"]))
    services = [cidr for cidr in (ranges.managed, ranges.filestore) if cidr]
    ports = callback_ports(config)
    if config.network.existing and config.network.services_cidr and ports != []:
        services = [config.network.services_cidr]
    if services:
        rules.append(rule("services", services, {"tcp": ports}))
    return rules


def host(config: ClusterConfig) -> str | None:
    """Project of a network that another project shares: its rules are made there (cloud.google.com/vpc/docs/shared-vpc,
    firewalls); None where it is the stack's."""
    given = config.network.existing.network if config.network.existing else ""
    project = given.split("/")[1] if "/" in given else None
    return project if project != place(config).project else None


def callback_ports(config: ClusterConfig) -> list[str] | None:
    """Ports of the machines that servers run by Google connect to; None for all of them."""
    wanted = [one.callback_ports for one in file_systems(config)]
    return None if None in wanted else sorted({port for ports in wanted for port in ports or ()})


def allow(
    name: str, called: str, network: pulumi.Input[str], sources: list[str], *, allows: Mapping[str, list[str] | None],
    tags: list[str] | None = None, project: str | None = None, opts: pulumi.ResourceOptions,
) -> compute.Firewall:  # fmt: skip
    """Protocols and their ports (all, if None) to machines with one of the `tags` (to all, if None)."""
    rules = [compute.FirewallAllowArgs(protocol=protocol, ports=ports) for protocol, ports in allows.items()]
    return compute.Firewall(
        name, name=called, project=project, network=network, direction="INGRESS", source_ranges=sources,
        target_tags=tags, allows=rules, opts=opts,
    )  # fmt: skip
