"""Slurm's files, from configuration to text: pure functions, the same text for the same configuration."""

import hashlib
from collections.abc import Mapping

from cluster.config.cluster import ClusterConfig
from cluster.slurm.companions import render_cgroup, render_gres, render_topology
from cluster.slurm.conf import render_conf
from cluster.slurm.slurmdbd import render_slurmdbd

JOB_SUBMIT = "job_submit.lua"
"""Where slurmctld looks for it: beside slurm.conf (get_extra_conf_path, src/plugins/job_submit/lua)."""

__all__ = ["JOB_SUBMIT", "digest", "render", "render_slurmdbd"]


def render(config: ClusterConfig, addresses: Mapping[str, str] | None = None) -> dict[str, str]:
    """Text of each file that the controller serves, by file name.

    `addresses` (machine name to address) are written into slurm.conf; without them, names must resolve.
    """
    lua = config.slurm.job_submit_lua
    return {
        **({} if lua is None else {JOB_SUBMIT: lua.rstrip("\n") + "\n"}),
        "slurm.conf": render_conf(config, addresses),
        "gres.conf": render_gres(config),
        "cgroup.conf": render_cgroup(config),
        **({"topology.conf": render_topology(config)} if len(config.nodesets) > 1 else {}),
    }


def digest(files: Mapping[str, str]) -> str:
    """SHA-256 (hex) over names and contents; changes if and only if a file does."""
    total = hashlib.sha256()
    for name in sorted(files):
        for part in (name, files[name]):
            content = part.encode()
            total.update(len(content).to_bytes(8, "big") + content)
    return total.hexdigest()
