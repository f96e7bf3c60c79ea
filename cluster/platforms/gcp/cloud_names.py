"""Names that a new stack gives to its resources, and whether they are taken in the project."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.cloud_checks import CloudCheck, Seen
from cluster.config.cluster import ClusterConfig
from cluster.findings import listing
from cluster.platforms.gcp.address_plan import fabric_of, plan
from cluster.platforms.gcp.cloud_request import Answer, AskedStack, CloudRequest, Query
from cluster.platforms.gcp.disks import state_zones
from cluster.platforms.gcp.filesystems.registry import servers
from cluster.platforms.gcp.names import ACCOUNTS, account_id, setup_bucket
from cluster.roster import controller_name, elastic_machines, machines


def _instances(config: ClusterConfig) -> set[str]:
    return {row.name for row in (*machines(config), *elastic_machines(config), *servers(config))}


def _disks(config: ClusterConfig) -> set[str]:
    """Return the disks that are in one zone, without boot disks that have their machine's name."""
    names = {name for server in servers(config) for name in (server.boot_disk, *(disk.name for disk in server.disks))}
    return names | ({f"{controller_name(config)}-state"} if len(state_zones(config)) == 1 else set())


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


_COMPUTE = "compute/compute/v1/projects/{project}/"
_STARTS = (("filter", "name eq {name}-.*"), ("maxResults", "500"))
# Parameters and fields: compute.v1, revision 20261106; iam.v1, 20261023; secretmanager.v1, 20261021; storage.v1,
# 20261009. Filter of secrets: cloud.google.com/secret-manager/docs/filtering.
NAMED: Mapping[str, NamedKind] = {
    "instances": NamedKind(
        path=f"{_COMPUTE}zones/{{zone}}/instances", permission="compute.instances.list", query=_STARTS, names=_instances
    ),
    "disks": NamedKind(
        path=f"{_COMPUTE}zones/{{zone}}/disks", permission="compute.disks.list", query=_STARTS, names=_disks
    ),
    "networks": NamedKind(
        path=f"{_COMPUTE}global/networks", permission="compute.networks.list", query=_STARTS, names=_networks
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


def names(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check for each kind of resources of a new stack: whether one of a name exists."""
    values = {"name": stack.config.name, "project": stack.project, "zone": stack.zone}
    for what, kind in NAMED.items():
        ours = kind.names(stack.config)

        def read(answer: Answer, key: str = kind.key, ours: set[str] = ours) -> Seen:
            rows = {row["name"].rpartition("/")[2].partition("@")[0]: row for row in (answer or {}).get(key, ())}
            taken = {name: _has_owner(rows[name], stack.config.name) for name in sorted(ours & set(rows))}
            if not taken:
                # A later page may have one: then the list is for a person to compare.
                more = "compare the others with the preview" if (answer or {}).get("nextPageToken") else ""
                return Seen(text="free, among those listed" if more else "free", todo=more, unclear=bool(more))
            todo = "choose another hpc:cluster.name, or delete them if nobody needs them"
            if all(taken.values()):
                todo = f"nothing if an `up` of this stack stopped, which the next one continues; else {todo}"
            return Seen(text=f"taken: {listing(list(taken))}", todo=todo, unclear=all(taken.values()))

        if ours and not stack.before:
            service, _, path = kind.path.format_map(values).partition("/")
            query = tuple((key, text.format_map(values)) for key, text in kind.query)
            request = CloudRequest(service=service, path=path, query=query, permission=kind.permission)
            yield CloudCheck(id="names", asks=f"names of {what}", requests=(request,), read=read)


def _has_owner(row: Mapping[str, Any], cluster: str) -> bool:
    """Return whether a resource is of a cluster of that name: its label, or, of networks and service accounts, which
    have none, the last word of a text."""
    texts = (str(row.get(key, "")).rpartition(" ")[2] for key in ("description", "displayName"))
    return cluster in (row.get("labels", {}).get("hpc-cluster"), *texts)
