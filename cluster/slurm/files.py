"""The text of Slurm's files: those that the controller serves, and slurmdbd.conf."""

import hashlib
import re
from collections.abc import Mapping

from cluster import platform_interface
from cluster.config.cluster import ClusterConfig
from cluster.roster import controller_name, node_names, nodeset_gpu
from cluster.slurm import paths
from cluster.slurm.slurm_conf import render_conf, tokens
from cluster.slurm.text import SettingGroup, document, groups, header, section
from scripts.node.slurm import hostlist

_PLAIN = re.compile(r"^[A-Za-z0-9_.!%*+,:;<>?@^~-]+$")


def render(config: ClusterConfig, addresses: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the text of each file that the controller serves, by file name, except topology.conf: the controller
    writes it, because it has the places of nodes.

    `addresses` (machine name to address) are written into slurm.conf. Without them, names must resolve.
    """
    lua = config.slurm.job_submit_lua
    return {
        **({} if lua is None else {paths.JOB_SUBMIT: lua.rstrip("\n") + "\n"}),
        "slurm.conf": render_conf(config, addresses),
        "gres.conf": render_gres(config),
        "cgroup.conf": render_cgroup(config),
    }


def digest(files: Mapping[str, str]) -> str:
    """Return the SHA-256 (hex) of names and contents."""
    total = hashlib.sha256()
    for name in sorted(files):
        for part in (name, files[name]):
            content = part.encode()
            total.update(len(content).to_bytes(8, "big") + content)
    return total.hexdigest()


def render_gres(config: ClusterConfig) -> str:
    """Return the text of gres.conf: the device files of the GPUs."""
    lines: list[str] = []
    # From 24.11 on Slurm has a plugin that needs no library. It is not used where tasks are not bound: cores near a GPU
    # have no effect there, and the GPUs of a rehearsal's host do not belong to the cluster.
    detected = platform_interface.get(config.platform).slurm.bind_tasks and config.slurm_version >= "24.11"
    for name, section_ in config.nodesets.items():
        gpu = nodeset_gpu(config, section_)
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
    """Return the text of cgroup.conf: the limits of a job's processes."""
    confined = platform_interface.get(config.platform).slurm.confine_cores
    cores = SettingGroup(
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
            # From 26.05 on cgroups have another name by default, which the health check of GPUs and DCGM's tools do
            # not find (cgroup.conf(5)). An older slurmd refuses the key.
            "CgroupJobIdPaths": True if (config.nodes_release or config.slurm_version) >= "26.05" else None,
            "ConstrainCores": confined,
            "ConstrainRAMSpace": True,
            "ConstrainSwapSpace": False,
            "ConstrainDevices": True,
        },
    )
    return document(header(config), groups([cores]))


def render_slurmdbd(config: ClusterConfig, password: str) -> str:
    """Return the text of slurmdbd.conf.

    Raises ValueError for a password with characters that have a meaning for Slurm's parser (spaces, quotes, #, =).
    """
    if not _PLAIN.match(password):
        raise ValueError("database password: letters, digits and _.!%*+,:;<>?@^~- only; generate it without others")
    keep = f"{config.accounting.purge_after_months}months"
    daemon = {
        "AuthType": "auth/munge",
        **tokens(config),
        "DbdHost": controller_name(config),
        "DbdPort": paths.SLURMDBD_PORT,
        "SlurmUser": paths.USER,
        "DebugLevel": "info",
        "LogFile": f"{paths.LOGS}/slurmdbd.log",
        "PidFile": f"{paths.RUN}/slurmdbd.pid",
    }
    database = {
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StoragePort": paths.DATABASE_PORT,
        "StorageLoc": paths.DATABASE,
        "StorageUser": paths.USER,
        "StoragePass": password,
    }
    purge = {
        "ArchiveDir": paths.ARCHIVE,
        **dict.fromkeys(("ArchiveEvents", "ArchiveJobs", "ArchiveSteps"), True),
        **{f"Purge{records}After": keep for records in ("Event", "Job", "Resv", "Step", "Suspend", "TXN", "Usage")},
    }
    same_machine = "On the same machine: the password never crosses a network."
    archived = "Unpurged tables make every query slower for ever. What is purged is archived first."
    parts = [
        SettingGroup(title="Daemon", settings=daemon),
        SettingGroup(title="Database", why=same_machine, settings=database),
        SettingGroup(title="Purge", why=archived, settings=purge),
    ]
    return document(header(config), groups(parts))
