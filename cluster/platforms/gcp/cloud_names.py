"""Names that a new stack gives to its resources, and whether they are taken in the project."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cluster.cloud_checks import TAKEN, CloudCheck, Seen
from cluster.config.cluster import ClusterConfig
from cluster.findings import listing
from cluster.platforms.gcp.address_plan import NAT_ADDRESSES, fabric_of, plan, reserved, service_ranges
from cluster.platforms.gcp.cloud_request import Answer, AskedStack, CloudRequest, Query
from cluster.platforms.gcp.disks import state_zones
from cluster.platforms.gcp.filesystems.registry import file_systems, peered, servers
from cluster.platforms.gcp.names import ACCOUNTS, account_id, host_project, setup_bucket
from cluster.roster import controller_name, elastic_machines, machines


def firewall_rules(config: ClusterConfig, project: str = "") -> set[str]:
    """Return the names of the firewall rules in the stack's project, or in that of the network: those of the system
    network are with it (cloud.google.com/vpc/docs/shared-vpc, firewalls)."""
    system = {
        "internal": True,
        "iap": True,
        "admin": config.network.admin_cidrs,
        "services": service_ranges(config),
        "prometheus": config.monitoring and config.monitoring.web and config.monitoring.web.cidrs,
        "lnet": servers(config),
        "repo": servers(config),
    }
    # The profile of a network `gpu` accepts no rules.
    inside = _networks(config) - {f"{config.name}-system", f"{config.name}-gpu"}
    rules = set() if project else {f"{name}-internal" for name in inside}
    if project == (host_project(config) or ""):
        rules |= {f"{config.name}-{part}" for part, is_made in system.items() if is_made}
    return rules


def _addresses(config: ClusterConfig) -> set[str]:
    count = NAT_ADDRESSES if _has_router(config) else 0
    public = [row.name for row in machines(config) if config.login.public and "login" in row.roles]
    nat = (f"{config.name}-nat-{index}" for index in range(count))
    return {*(f"{name}-address" for name in reserved(config)), *(f"{name}-public" for name in public), *nat}


def _has_router(config: ClusterConfig) -> bool:
    return config.network.nat and config.network.existing is None


def _instances(config: ClusterConfig) -> set[str]:
    return {row.name for row in (*machines(config), *elastic_machines(config), *servers(config))}


def _disks(config: ClusterConfig) -> set[str]:
    """Return the disks that are in one zone, without boot disks that have their machine's name."""
    names = {name for server in servers(config) for name in (server.boot_disk, *(disk.name for disk in server.disks))}
    return names | _state_disks(config, zones=1)


def _state_disks(config: ClusterConfig, *, zones: int) -> set[str]:
    return {f"{controller_name(config)}-state"} if len(state_zones(config)) == zones else set()


def _networks(config: ClusterConfig) -> set[str]:
    ranges = plan(config)
    gpu = ["gpu"] if fabric_of(config).profile else [f"gpu-{index}" for index in range(len(ranges.gpu))]
    others = {"system": config.network.existing is None, "second": ranges.second is not None}
    return {f"{config.name}-{part}" for part in (*gpu, *(part for part, is_made in others.items() if is_made))}


def _secrets(config: ClusterConfig) -> set[str]:
    hosts = {f"{machine.name}-host-key" for machine in machines(config) if machine.roles != ("node",)}
    return {f"{config.name}-munge", f"{config.name}-database", *hosts}


@dataclass(frozen=True, kw_only=True)
class NamedKind:
    """A kind of resources with fixed names, and how those of a project are listed."""

    path: str
    """Service and path of the list."""
    permission: str
    query: Query
    key: str = "items"
    """The key of the list in an answer."""
    names: Callable[[ClusterConfig], set[str]]


def _compute(path: str, kind: str, names: Callable[[ClusterConfig], set[str]]) -> NamedKind:
    query = (("filter", "name eq {name}-.*"), ("maxResults", "500"))
    return NamedKind(
        path=f"compute/compute/v1/projects/{path}", permission=f"compute.{kind}.list", query=query, names=names
    )


# Parameters and fields: compute.v1, revision 20261106; iam.v1, 20261023; secretmanager.v1, 20261021; storage.v1,
# 20261009. Filter of secrets: cloud.google.com/secret-manager/docs/filtering.
NAMED: Mapping[str, NamedKind] = {
    "instances": _compute("{project}/zones/{zone}/instances", "instances", _instances),
    "disks": _compute("{project}/zones/{zone}/disks", "disks", _disks),
    "disks in two zones": _compute("{project}/regions/{region}/disks", "disks", partial(_state_disks, zones=2)),
    "networks": _compute("{project}/global/networks", "networks", _networks),
    "firewall rules": _compute(
        "{network_project}/global/firewalls",
        "firewalls",
        lambda config: firewall_rules(config, host_project(config) or ""),
    ),
    "addresses": _compute("{project}/regions/{region}/addresses", "addresses", _addresses),
    "ranges": _compute(
        "{project}/global/addresses",
        "globalAddresses",
        lambda config: {f"{config.name}-services"} if peered(config) and config.network.existing is None else set(),
    ),
    "routers": _compute(
        "{project}/regions/{region}/routers",
        "routers",
        lambda config: {f"{config.name}-router"} if _has_router(config) else set(),
    ),
    "service accounts": NamedKind(
        path="iam/v1/projects/{project}/serviceAccounts",
        permission="iam.serviceAccounts.list",
        query=(("pageSize", "100"),),
        key="accounts",
        names=lambda config: {account_id(config, role) for role in ACCOUNTS},
    ),
    "secrets": NamedKind(
        path="secretmanager/v1/projects/{project}/secrets",
        permission="secretmanager.secrets.list",
        query=(("filter", "name:{name}-"), ("pageSize", "500")),
        key="secrets",
        names=_secrets,
    ),
    "buckets": NamedKind(
        path="storage/storage/v1/b",
        permission="storage.buckets.list",
        query=(("project", "{project}"), ("prefix", "{project}-{name}-")),
        names=lambda config: {setup_bucket(config)},
    ),
}
"""Kinds whose names the tests compare with those that stacks register."""


def named(config: ClusterConfig) -> dict[str, NamedKind]:
    """Return the kinds, with the file systems that Google runs (Managed Lustre's method: googleapis/googleapis 6c345ac,
    google/cloud/lustre/v1/lustre.proto)."""
    run_by_google = {
        f"instances of {row.service}.googleapis.com": NamedKind(
            path=f"{row.service}/v1/projects/{{project}}/locations/{row.location}/instances",
            permission=f"{row.service}.instances.list",
            query=(("pageSize", "500"),),
            key="instances",
            names=lambda config, key=row.key: {f"{config.name}-{key}"},
        )
        for row in file_systems(config)
        if row.location
    }
    return {**NAMED, **run_by_google}


def names(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check for each kind of resources of a new stack: whether one of a name exists."""
    values = {"name": stack.config.name, "project": stack.project, "zone": stack.zone, "region": stack.region}
    values["network_project"] = host_project(stack.config) or stack.project
    for what, kind in named(stack.config).items():
        ours = kind.names(stack.config)
        if ours and not stack.before:
            service, _, path = kind.path.format_map(values).partition("/")
            query = tuple((key, text.format_map(values)) for key, text in kind.query)
            request = CloudRequest(service=service, path=path, query=query, permission=kind.permission)
            read = partial(_read, kind.key, ours, stack.config.name)
            yield CloudCheck(id="names", asks=f"names of {what}", requests=(request,), read=read)


def _read(key: str, ours: set[str], cluster: str, answer: Answer) -> Seen:
    rows = {row["name"].rpartition("/")[2].partition("@")[0]: row for row in (answer or {}).get(key, ())}
    taken = {name: _has_owner(rows[name], cluster) for name in sorted(ours & set(rows))}
    if not taken:
        # A later page may have one: then the list is for a person to compare.
        more = "compare the others with the preview" if (answer or {}).get("nextPageToken") else ""
        return Seen(text="free, among those listed" if more else "free", todo=more, unclear=bool(more))
    todo = "choose another hpc:cluster.name, or delete them if nobody needs them"
    if all(taken.values()):
        todo = f"nothing if an `up` of this stack stopped, which the next one continues; else {todo}"
    return Seen(text=f"{TAKEN}{listing(list(taken))}", todo=todo, unclear=all(taken.values()))


def _has_owner(row: Mapping[str, Any], cluster: str) -> bool:
    """Return whether a resource is of a cluster of that name: its label; of networks and service accounts, which have
    none, the last word of a text; of firewall rules and routers a tag or the network."""
    texts = (str(row.get(key, "")).rpartition(" ")[2] for key in ("description", "displayName"))
    names = (*row.get("targetTags", ()), str(row.get("network", "")).rpartition("/")[2])
    return cluster in (row.get("labels", {}).get("hpc-cluster"), *texts, *names) or any(
        name.startswith(f"{cluster}-") for name in names
    )
