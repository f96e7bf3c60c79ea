"""The spec of a Slurm cluster, from its SlurmCluster and NodeSets; the machines for it; how the operator behaves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lab.soperator.kube import Object
from lab.soperator.names import CLUSTER_ANNOTATION, LOGIN_NODE_PORT


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The pods of one nodeset."""

    name: str
    count: int
    active: tuple[int, ...] | None = None
    """Numbers of an elastic nodeset's nodes that are powered up."""
    gpus: int = 0
    """GPUs that each pod requests."""
    settings: str = ""
    """Settings of its NodeName line."""
    features: tuple[str, ...] = ()
    memory: str = ""
    """Memory of the container, as a quantity of Kubernetes."""


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """The spec of a Slurm cluster."""

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
    """Annotations of the login Service."""
    stopped: bool = False
    """True if `maintenance` scales it down."""
    mounts: tuple[str, ...] = ()
    """Mount points of the jail's submounts."""


def parse_cluster(
    cluster: Object, nodesets: Sequence[Object], powered: Mapping[str, Sequence[int]] | None = None
) -> ClusterSpec:
    """Return the spec of these objects. `powered`: the numbers of powered nodes, of elastic nodesets."""
    spec = cluster["spec"]
    roles = spec["slurmNodes"]
    login = roles.get("login", {})
    own = [nodeset for nodeset in nodesets if _parent(nodeset) in (None, cluster["metadata"]["name"])]
    return ClusterSpec(
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
"""An address of the network for documentation (RFC 5737)."""


@dataclass(frozen=True, kw_only=True)
class State:
    """The state of a Slurm cluster's machines."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    """Addresses of running machines, by the name of the pod."""
    busy: str = ""
    """The action under way, if there is one."""
    problem: str = ""
    """The reason why the last attempt failed."""


class Machines(Protocol):
    """Machines that stand for pods."""

    def ensure(self, spec: ClusterSpec, pods: Mapping[str, str]) -> State:
        """Start what brings these machines up, and return their state. `pods` are the pods that have a node, with the
        machine type of the node."""
        ...

    def remove(self) -> bool:
        """Start the removal of all machines; return True when none is left."""
        ...


class NoMachines:
    """Machines that consist of statuses alone: nothing can run in the pods."""

    def ensure(self, spec: ClusterSpec, pods: Mapping[str, str]) -> State:  # noqa: ARG002
        """Return the state with all machines, at once."""
        return State(addresses=dict.fromkeys(pods, NO_ADDRESS))

    def remove(self) -> bool:
        """Return True: there is nothing to remove."""
        return True


@dataclass
class Behaviour:
    """Faults and delays of the operator. A change holds from its next turn on."""

    phase_seconds: float = 0.0
    """Duration of each step: populating the jail, reconciling."""
    never: bool = False
    """True if the cluster stays in the phase Reconciling for ever."""
    unavailable: str = ""
    """The reason why the controller does not start: the phase is `Not available`, and a condition has the reason."""
    failed_checks: tuple[str, ...] = ()
    """Names of ActiveChecks that fail."""
