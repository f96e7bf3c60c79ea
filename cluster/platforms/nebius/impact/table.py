"""The impact of edits on Nebius, where it depends on the platform: by pattern of the field."""

from collections.abc import Mapping

from cluster.config.impact import Impact, NoEffect, Refuse
from cluster.impact.rule import Rule
from cluster.platforms.nebius.impact import nodes, software, storage

_FILESYSTEMS = ("jail", "controller_spool", "accounting", "submounts.*")
_AT_BRING_UP = NoEffect("read when `up` waits or checks; the cluster runs on")

TABLE: Mapping[str, Impact | Rule] = {
    "nebius": Refuse("everything that the stack created is there, with its data"),
    "nebius.kubernetes.version": software.kubernetes,
    "nebius.kubernetes.etcd_size": NoEffect("members of etcd come or go; the API server may not answer for a minute"),
    "nebius.soperator.version": software.operator,
    "nebius.soperator.charts": NoEffect("charts of the same version are the same: nothing is recreated"),
    **{f"nebius.filesystems.{one}.spec": storage.other for one in _FILESYSTEMS},
    **{f"nebius.filesystems.{one}.spec.size_gib": storage.size for one in _FILESYSTEMS},
    **{f"nebius.filesystems.{one}.spec.block_kib": storage.BLOCK for one in _FILESYSTEMS},
    **{f"nebius.filesystems.{one}.existing": storage.other for one in _FILESYSTEMS},
    "nebius.filesystems.jail.overwrite_existing": storage.overwrite,
    "nebius.filesystems.submounts.*": storage.submount,
    "nebius.filesystems.submounts.*.mount": storage.mount,
    **{
        f"nebius.{group}.{key}": nodes.services
        for group in ("system", "accounting")
        for key in ("machine_type", "disk_gib")
    },
    **{
        f"nebius.system.{key}": NoEffect("nodes of operators come or go; Slurm and its jobs run on")
        for key in ("min_nodes", "max_nodes")
    },
    "nebius.workers.*": nodes.recreated,
    "nebius.workers.*.infiniband": nodes.recreated,
    "nebius.workers.*.local_disks.*": nodes.recreated,
    "nebius.workers.*.image_disk": nodes.recreated,
    **{
        f"nebius.workers.*.{disk}.{key}": nodes.recreated
        for disk, keys in {
            "infiniband": ("fabric", "existing"),
            "local_disks.*": ("size_gib", "type", "filesystem", "mount"),
            "image_disk": ("size_gib", "type", "filesystem"),
        }.items()
        for key in keys
    },
    "nebius.workers.*.nodes_per_group": nodes.nodes_per_group,
    "nebius.workers.*.max_unavailable_percent": NoEffect("holds when nodes are recreated the next time"),
    "nebius.login.service": nodes.address,
    "nebius.login.exposure": nodes.address,
    "nebius.login.root_keys": NoEffect("login pods have them within a minute; sessions stay"),
    "nebius.gpu": software.driver,
    "nebius.health": NoEffect("checks run so from then on; jobs run on"),
    "nebius.backups": NoEffect("holds for the next backup"),
    "nebius.timeouts": _AT_BRING_UP,
    "nebius.token_command": NoEffect("holds for the next command that asks Kubernetes"),
    "controller.machine_type": nodes.controller,
    "controller.disk": nodes.controller,
    "login.machine_type": nodes.login,
    "login.disk": nodes.login,
    "nodesets.*": nodes.nodeset,
    "nodesets.*.count": nodes.count,
    "nodesets.*.machine_type": nodes.recreated,
    "nodesets.*.disk": nodes.recreated,
    "nodesets.*.capacity": nodes.recreated,
    "slurm.version": NoEffect("it says what nebius.soperator.version decides"),
}
"""The impact of a pattern also holds for the fields below it that have none."""
