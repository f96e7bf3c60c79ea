"""Who may talk to the machines of a stack. Nothing here is open to the world."""

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


def firewalls(
    name: str, config: ClusterConfig, ranges: Plan, network: pulumi.Input[str], *, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """The rules of the system network.

    In a network that was there before the stack every rule is for machines with the stack's tag alone.
    """
    tag, project = [config.name] if config.network.existing else None, host(config)
    rules: list[pulumi.Resource] = [
        internal(
            f"{name}-internal", f"{config.name}-internal", network, ranges.system, tags=tag, project=project, opts=opts
        ),
        allow(f"{name}-iap", f"{config.name}-iap", network, [IAP], ports=["22"], tags=tag, project=project, opts=opts),
    ]
    if config.network.admin_cidrs:
        people = list(config.network.admin_cidrs)
        login = [f"{config.name}-login"]
        rules.append(
            allow(
                f"{name}-admin",
                f"{config.name}-admin",
                network,
                people,
                ports=["22"],
                tags=login,
                project=project,
                opts=opts,
            )
        )
    services = [cidr for cidr in (ranges.managed, ranges.filestore) if cidr]
    ports = callback_ports(config)
    if config.network.existing and config.network.services_cidr and ports != []:
        services = [config.network.services_cidr]
    if services:
        rules.append(
            allow(
                f"{name}-services",
                f"{config.name}-services",
                network,
                services,
                ports=ports,
                tags=tag,
                project=project,
                opts=opts,
            )
        )
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


def internal(
    name: str,
    called: str,
    network: pulumi.Input[str],
    cidr: str,
    *,
    tags: list[str] | None = None,
    project: str | None = None,
    opts: pulumi.ResourceOptions,
) -> compute.Firewall:
    """Everything between machines of one range."""
    return compute.Firewall(
        name,
        name=called,
        project=project,
        network=network,
        direction="INGRESS",
        source_ranges=[cidr],
        target_tags=tags,
        allows=[
            compute.FirewallAllowArgs(protocol="tcp", ports=["0-65535"]),
            compute.FirewallAllowArgs(protocol="udp", ports=["0-65535"]),
            compute.FirewallAllowArgs(protocol="icmp"),
        ],
        opts=opts,
    )


def allow(
    name: str,
    called: str,
    network: pulumi.Input[str],
    sources: list[str],
    *,
    ports: list[str] | None,
    tags: list[str] | None,
    project: str | None = None,
    opts: pulumi.ResourceOptions,
) -> compute.Firewall:
    """TCP to `ports` (all, if None) of machines with one of the `tags` (of all, if None)."""
    return compute.Firewall(
        name,
        name=called,
        project=project,
        network=network,
        direction="INGRESS",
        source_ranges=sources,
        target_tags=tags,
        allows=[compute.FirewallAllowArgs(protocol="tcp", ports=ports)],
        opts=opts,
    )
