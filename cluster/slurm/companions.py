"""The files that nodes fetch beside slurm.conf: gres.conf, cgroup.conf, topology.conf."""

from cluster.config.cluster import ClusterConfig
from cluster.platforms import registry
from cluster.roster import node_names, nodeset_gpu
from cluster.slurm import hostlist
from cluster.slurm.text import Group, document, groups, header, section


def render_gres(config: ClusterConfig) -> str:
    """Text of gres.conf: which device files are which GPUs."""
    lines: list[str] = []
    # Slurm's own plugin, which needs no library. Where tasks are not bound, cores of GPUs mean nothing, and a host's
    # own GPUs are none of a rehearsal's.
    detected = registry.get(config.platform).slurm.bind_tasks and config.slurm_version >= "24.11"
    for name, one in config.nodesets.items():
        gpu = nodeset_gpu(config, one)
        if gpu is None:
            continue
        if detected and not lines:
            lines.append("AutoDetect=nvidia")
        devices = f"/dev/nvidia[0-{gpu.count - 1}]" if gpu.count > 1 else "/dev/nvidia0"
        nodes = hostlist.compress(node_names(config, name))
        lines.append(f"NodeName={nodes} Name=gpu Type={gpu.type} File={devices}")
    why = "Devices are named, so a node that lacks one is found out."
    if detected:
        why += (
            " AutoDetect adds which cores are near each GPU, as the driver says it: a job gets those. It finds neither "
            "MIG nor NVLinks."
        )
    return document(header(config), [section("GPUs", why, lines)])


def render_cgroup(config: ClusterConfig) -> str:
    """Text of cgroup.conf: what a job is kept within."""
    confined = registry.get(config.platform).slurm.confine_cores
    cores = Group(
        title="Confinement",
        why="A job can't use cores, memory or GPUs that it was not given. Swap is left alone: on cgroup v1 it takes a "
        "kernel booted with swapaccount=1."
        + (
            ""
            if confined
            else " Cores are not confined: machines of a rehearsal share the host's, and may claim more than it has."
        ),
        settings={
            "CgroupPlugin": "autodetect",
            "ConstrainCores": confined,
            "ConstrainRAMSpace": True,
            "ConstrainSwapSpace": False,
            "ConstrainDevices": True,
        },
    )
    return document(header(config), groups([cores]))


def render_topology(config: ClusterConfig) -> str:
    """Text of topology.conf: a switch for each nodeset below one root, so that jobs keep to one kind of node."""
    leaves = [f"SwitchName=ns-{name} Nodes={hostlist.compress(node_names(config, name))}" for name in config.nodesets]
    root = f"SwitchName=root Switches={','.join(f'ns-{name}' for name in config.nodesets)}"
    why = "One switch for each nodeset: a job is placed within one nodeset if it fits."
    return document(header(config), [section("Switches", why, [*leaves, root])])
