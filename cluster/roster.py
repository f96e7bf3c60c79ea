"""The machines of a cluster: their names, roles and machine types."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from cluster.catalog import MACHINE_TYPES, Gpu, MachineType
from cluster.config.cluster import ClusterConfig
from cluster.config.monitoring import MonitoringMachine
from cluster.config.nodesets import Nodeset
from scripts.node.interface import Role


@dataclass(frozen=True, kw_only=True)
class MachineSpec:
    """A machine of the cluster."""

    name: str
    """Host name, and NodeName in Slurm if it is a node."""
    roles: tuple[Role, ...]
    machine_type: MachineType
    gpu: Gpu | None = None
    """GPUs of its machine type, or attached ones."""
    nodeset: str | None = None
    index: int = 0
    """Position among machines of its kind. When a count is lowered, the last ones are removed."""


def host_name(config: ClusterConfig, role: str, index: int) -> str:
    """Return the host name of a login machine (role `login`) or of a nodeset's node (role: the nodeset's name)."""
    return f"{_prefix(config)}{role}-{index}"


def _prefix(config: ClusterConfig) -> str:
    return "" if config.host_names == "pods" else f"{config.name}-"


def controller_name(config: ClusterConfig) -> str:
    return "controller-0" if config.host_names == "pods" else f"{config.name}-controller"


def monitoring_name(config: ClusterConfig) -> str:
    """Return the host name of the machine that Prometheus and Alertmanager run on, if the stack has them."""
    return f"{config.name}-monitoring" if monitoring_machine(config) else controller_name(config)


def monitoring_machine(config: ClusterConfig) -> MonitoringMachine | None:
    """Return the section of Prometheus' own machine; None if it runs on the controller, or not at all."""
    return config.monitoring.machine if config.monitoring else None


def node_names(config: ClusterConfig, nodeset: str) -> tuple[str, ...]:
    """Return the names of a nodeset's nodes, in order: static ones, then elastic ones."""
    section = config.nodesets[nodeset]
    if section.on:
        return (controller_name(config),)
    return _numbered(f"{_prefix(config)}{nodeset}", section.most)


@lru_cache(maxsize=1024)
def _numbered(name: str, count: int) -> tuple[str, ...]:
    """Return the names of a nodeset's nodes, which checks, files and impacts ask for again and again."""
    return tuple(f"{name}-{index}" for index in range(count))


def static_names(config: ClusterConfig, nodeset: str) -> tuple[str, ...]:
    """Return the names of the nodes whose machines Pulumi creates."""
    return node_names(config, nodeset)[: config.nodesets[nodeset].static]


def elastic_names(config: ClusterConfig, nodeset: str) -> tuple[str, ...]:
    """Return the names of the nodes whose machines are created and deleted as Slurm requests."""
    return node_names(config, nodeset)[config.nodesets[nodeset].static :]


def newly_static(before: ClusterConfig, after: ClusterConfig, nodeset: str) -> list[str]:
    """Return the names of the nodes that an edit changes from elastic to static."""
    elastic_before = elastic_names(before, nodeset) if nodeset in before.nodesets else ()
    return [name for name in static_names(after, nodeset) if name in elastic_before]


def nodeset_type(config: ClusterConfig, section: Nodeset) -> MachineType:
    return MACHINE_TYPES[section.machine_type or config.controller.machine_type]


def nodeset_gpu(config: ClusterConfig, section: Nodeset) -> Gpu | None:
    if section.gpus:
        return Gpu(type=section.gpus.type, count=section.gpus.count)
    return nodeset_type(config, section).gpu


def has_gpus(config: ClusterConfig) -> bool:
    return any(nodeset_gpu(config, section) for section in config.nodesets.values())


@dataclass(frozen=True, kw_only=True)
class NodeSizes:
    """A node's sizes in slurm.conf: those of `node_conf`, else the catalog's."""

    cpus: int
    sockets: int
    cores: int
    """Cores in each socket."""
    threads: int
    """Threads of each core."""
    memory: int
    """MiB."""
    reserved: int
    """MiB of these that are reserved for the system (MemSpecLimit), which no job can have."""


def sizes(config: ClusterConfig, section: Nodeset) -> NodeSizes:
    machine_type = nodeset_type(config, section)
    node_conf = {name.lower(): value for name, value in section.node_conf.items()}
    sockets = int(node_conf.get("sockets", machine_type.sockets))
    cores = int(node_conf.get("corespersocket", machine_type.cores_per_socket))
    threads = int(node_conf.get("threadspercore", machine_type.threads_per_core))
    return NodeSizes(
        cpus=int(node_conf.get("cpus", sockets * cores * threads)),
        sockets=sockets,
        cores=cores,
        threads=threads,
        memory=int(node_conf.get("realmemory", machine_type.real_memory)),
        reserved=int(node_conf.get("memspeclimit", 0)),
    )


def machines(config: ClusterConfig) -> tuple[MachineSpec, ...]:
    """Return the machines that Pulumi creates: controller, login machines, Prometheus' machine, static nodes in the
    file's order."""
    return tuple(_machines(config))


def elastic_machine(config: ClusterConfig, nodeset: str) -> MachineSpec | None:
    """Return the machine of a nodeset's first elastic node, which has the shape of all; None if it has none."""
    section = config.nodesets[nodeset]
    return _node(config, nodeset, section.static) if section.elastic else None


def elastic_machines(config: ClusterConfig) -> tuple[MachineSpec, ...]:
    """Return the machines of all elastic nodes, which may exist in addition to `machines`."""
    return tuple(
        _node(config, name, index)
        for name, section in config.nodesets.items()
        if section.elastic
        for index in range(section.static, section.most)
    )


def _node(config: ClusterConfig, nodeset: str, index: int) -> MachineSpec:
    section = config.nodesets[nodeset]
    return MachineSpec(
        name=host_name(config, nodeset, index),
        roles=("node",),
        machine_type=nodeset_type(config, section),
        gpu=nodeset_gpu(config, section),
        nodeset=nodeset,
        index=index,
    )


def _machines(config: ClusterConfig) -> Iterator[MachineSpec]:
    hosted = [name for name, section in config.nodesets.items() if section.on]
    controller_type = MACHINE_TYPES[config.controller.machine_type]
    roles: list[Role] = ["controller"]
    if config.login.on:
        roles.append("login")
    if hosted:
        roles.append("node")
    yield MachineSpec(
        name=controller_name(config),
        roles=tuple(roles),
        machine_type=controller_type,
        gpu=controller_type.gpu,
        nodeset=hosted[0] if hosted else None,
    )
    if not config.login.on:
        login_type = MACHINE_TYPES[config.login.machine_type or config.controller.machine_type]
        for index in range(config.login.count):
            name = host_name(config, "login", index)
            yield MachineSpec(name=name, roles=("login",), machine_type=login_type, gpu=login_type.gpu, index=index)
    if section := monitoring_machine(config):
        own_type = MACHINE_TYPES[section.machine_type or config.controller.machine_type]
        yield MachineSpec(name=monitoring_name(config), roles=("monitoring",), machine_type=own_type, gpu=own_type.gpu)
    for name, section in config.nodesets.items():
        for index in range(0 if section.on else section.static):
            yield _node(config, name, index)
