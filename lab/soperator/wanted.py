"""What a SlurmCluster and its NodeSets ask for, and what brings machines up for it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cluster.platforms.nebius.names import CLUSTER_ANNOTATION, LOGIN_NODE_PORT
from lab.soperator.kube import Object


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Pods of one nodeset."""

    name: str
    count: int
    active: tuple[int, ...] | None = None
    """Numbers of an elastic nodeset's nodes that are powered up."""
    gpus: int = 0
    """GPUs that each pod asks Kubernetes for."""
    settings: str = ""
    """Words of its NodeName line."""
    features: tuple[str, ...] = ()
    memory: str = ""
    """Of the container, as a quantity of Kubernetes."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A Slurm cluster."""

    name: str
    login: int
    accounting: bool
    rest: bool
    workers: tuple[Workers, ...]
    partitions: tuple[tuple[str, str], ...]
    """Name and parameters of each, as on a PartitionName line, with nodesets under Nodes."""
    custom: str
    """Lines for slurm.conf."""
    root_keys: tuple[str, ...]
    service_type: str = "LoadBalancer"
    node_port: int = LOGIN_NODE_PORT
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the login Service."""
    stopped: bool = False
    """True if `maintenance` scales it down."""
    mounts: tuple[str, ...] = ()
    """Mount points of the jail's submounts."""


def wanted(cluster: Object, nodesets: Sequence[Object], powered: Mapping[str, Sequence[int]] | None = None) -> Wanted:
    """Return what these objects ask for. `powered`: of elastic nodesets, the numbers of nodes that are up."""
    spec = cluster["spec"]
    roles = spec["slurmNodes"]
    login = roles.get("login", {})
    own = [nodeset for nodeset in nodesets if _parent(nodeset) in (None, cluster["metadata"]["name"])]
    return Wanted(
        name=cluster["metadata"]["name"],
        login=login.get("size", 2),
        accounting=bool(roles.get("accounting", {}).get("enabled")),
        rest=bool(roles.get("rest", {}).get("enabled")),
        workers=tuple(_nodeset(nodeset, (powered or {}).get(nodeset["metadata"]["name"])) for nodeset in own),
        partitions=tuple(_partitions(spec.get("partitionConfiguration", {}))),
        custom=spec.get("customSlurmConfig") or "",
        root_keys=tuple(login.get("sshRootPublicKeys") or ()),
        service_type=login.get("sshdServiceType", "LoadBalancer"),
        node_port=int(login.get("sshdServiceNodePort", LOGIN_NODE_PORT)),
        annotations=login.get("sshdServiceAnnotations") or {},
        stopped=str(spec.get("maintenance", "none")).startswith("downscale"),
        mounts=tuple(
            dict.fromkeys(
                submount["mountPath"]
                for part in (login, *(nodeset["spec"].get("slurmd", {}) for nodeset in own))
                for submount in (part.get("volumes") or {}).get("jailSubMounts") or ()
            )
        ),
    )


def _parent(nodeset: Object) -> str | None:
    return nodeset["spec"].get("clusterName") or nodeset["metadata"].get("annotations", {}).get(CLUSTER_ANNOTATION)


def _nodeset(nodeset: Object, active: Sequence[int] | None) -> Workers:
    spec = nodeset["spec"]
    config, resources = spec.get("nodeConfig", {}), spec.get("slurmd", {}).get("resources", {})
    return Workers(
        name=nodeset["metadata"]["name"],
        count=spec.get("replicas", 1),
        active=None if active is None else tuple(active),
        gpus=int(resources.get("gpu") or 0),
        settings=config.get("static") or "",
        features=tuple(config.get("features") or ()),
        memory=str(resources.get("memory", "")),
    )


def _partitions(section: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if section.get("configType") == "structured":
        for partition in section.get("partitions") or ():
            nodes = "ALL" if partition.get("isAll") else ",".join(partition.get("nodeSetRefs") or ())
            yield partition["name"], f"Nodes={nodes} {partition.get('config', '')}"
    else:
        # Soperator's own default.
        yield "main", "Nodes=ALL Default=YES PriorityTier=10 MaxTime=INFINITE State=UP"


NO_ADDRESS = "192.0.2.10"
"""Of the network that is set aside for examples (RFC 5737)."""


@dataclass(frozen=True, kw_only=True)
class State:
    """The objects that there are of a Slurm cluster."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    """Of each machine that runs, by the name of its pod."""
    busy: str = ""
    """The action under way, if it is not yet as wanted."""
    problem: str = ""
    """The reason why the last attempt failed."""


class Machines(Protocol):
    """Machines that stand for pods."""

    def ensure(self, wanted: Wanted, pods: Mapping[str, str]) -> State:
        """Begin what leads there, and return what is there by now. `pods` are the pods that have a node, with the
        machine type of it."""
        ...

    def remove(self) -> bool:
        """Begin to remove all; True when nothing is left."""
        ...


class NoMachines:
    """Only statuses: nothing can be run in the pods."""

    def ensure(self, wanted: Wanted, pods: Mapping[str, str]) -> State:  # noqa: ARG002
        """All of them are there at once."""
        return State(addresses=dict.fromkeys(pods, NO_ADDRESS))

    def remove(self) -> bool:
        """Nothing is to be removed."""
        return True


@dataclass
class Behaviour:
    """May be changed while the operator runs; it applies from its next turn on."""

    phase_seconds: float = 0.0
    """How long each step takes: populating the jail, reconciling."""
    never: bool = False
    """True if the cluster stays in the phase Reconciling for ever."""
    unavailable: str = ""
    """The reason why the controller does not come up: the phase is `Not available`, and the reason in its condition."""
    failed_checks: tuple[str, ...] = ()
    """Names of ActiveChecks that fail."""
