"""The JSON on the standard input of each machine's set-up, typed by scripts/node/interface.py. Pure functions.

Files are lists of lines, so that a preview shows only the lines that change.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from cluster.config import ClusterConfig
from cluster.config.partitions import Partition
from cluster.config.users import User as Person
from cluster.config.validators.settings import minutes
from cluster.jobs.environment import environment
from cluster.jobs.measurements import measurements
from cluster.people import NORMAL, default_account, unix_groups
from cluster.roster import MachineSpec
from cluster.slurm import paths
from cluster.slurm.files import render, render_slurmdbd
from cluster.slurm.health import health
from cluster.slurm.script_tree import has_scripts
from components.slurm import setup
from scripts.node.interface import Configure, Exports, Group, Mount, NodeBoot, Probe, Rights, StateDisk, User

PASSWORD_MARK = "@database-password@"  # noqa: S105 - scripts/node/slurm/slurmctld.py puts the password in its place


def users(config: ClusterConfig) -> list[User]:
    """Users as machines take them. A right that the stack file does not mention is no key: payloads of clusters that
    are up stay as they are."""
    return [
        {
            "name": user.name,
            "uid": user.uid,
            "gid": user.primary_gid,
            "groups": sorted(user.groups),
            "shell": user.shell,
            "keys": list(user.keys),
            **_rights(user),
        }
        for user in config.users
    ]


def _rights(user: Person) -> Rights:
    rights: Rights = {}
    if user.sudo is not None:
        rights["sudo"] = user.sudo
    if user.containers is not None:
        rights["containers"] = user.containers
    return rights


def groups(config: ClusterConfig) -> list[Group]:
    return [{"name": group.name, "gid": group.gid} for group in unix_groups(config)]


def slurm_files(config: ClusterConfig, addresses: Mapping[str, str]) -> dict[str, str]:
    """Every file of Slurm's on the controller, slurmdbd.conf with a mark where the password goes."""
    return {**render(config, addresses), "slurmdbd.conf": render_slurmdbd(config, PASSWORD_MARK)}


def configure(
    config: ClusterConfig,
    machine: MachineSpec,
    *,
    mounts: Sequence[Mapping[str, Any]],
    addresses: Mapping[str, str],
    controller: str,
    state: Mapping[str, Any] | None = None,
    exports: Mapping[str, Any] | None = None,
) -> str:
    """Standard input of `configure` on the controller or a login machine; `state` and `exports` are for the former."""
    payload: Configure = {
        "cluster": config.name,
        "roles": list(machine.roles),
        "conf_server": f"{controller}:{paths.SLURMCTLD_PORT}",
        "mounts": _mounts(mounts),
        "users": users(config),
        "groups": groups(config),
        "setup": setup.version(),
    }
    if config.containers.data:
        payload["containers"] = config.containers.data
    files = slurm_files(config, addresses)
    if "controller" not in machine.roles:
        payload["files"] = {"slurm.conf": files["slurm.conf"].removesuffix("\n").split("\n")}
    else:
        payload["drain_seconds"] = config.slurm.drain_seconds
        payload["qos"] = partition_qos(config)
        if config.slurm.pam_slurm_adopt:
            payload["adopt"] = True
        if config.slurm.slurmrestd:
            payload["slurmrestd"] = True
        if checked := health(config):
            payload["health"] = dict(checked)
        if measured := measurements(config):
            payload["measure"] = measured
        payload["files"] = {name: text.removesuffix("\n").split("\n") for name, text in files.items()}
        payload["environment"] = environment(config).splitlines()
        if state:
            payload["state"] = cast("StateDisk", dict(state))
        if exports:
            payload["exports"] = cast("Exports", dict(exports))
    return setup.as_lines(payload)


def partition_qos(config: ClusterConfig) -> list[str]:
    """QOS that slurm.conf names, and that must therefore be in the database before slurmctld reads it."""
    named = {name for part in config.partitions.values() for name in (part.qos, *part.allow_qos) if name}
    return sorted(named - {NORMAL})


def node(*, mounts: Sequence[Mapping[str, Any]], controller: str) -> str:
    """/etc/hpc/node.json of a compute node: all it knows before it joins, and no more, so that it seldom changes."""
    return setup.as_lines(NodeBoot(conf_server=f"{controller}:{paths.SLURMCTLD_PORT}", mounts=_mounts(mounts)))


def probes(config: ClusterConfig) -> list[Probe]:
    """Standard input of `ready`: every partition, with a user who may run there; all empty where none may.

    Where scripts run before jobs, a job gets the time that these may take: they are part of it.
    """
    rxdm = config.slurm.rxdm.partitions if config.slurm.rxdm else ()
    found: list[Probe] = []
    for name, partition in config.partitions.items():
        user, account, qos = _somebody(config, partition)
        walls = (one.max_wall for one in config.accounting.qos if one.name in (qos, partition.qos) and one.max_wall)
        prolog = config.slurm.timers.prolog_epilog // 60 + 1 if has_scripts(config) else 0
        limit = int(min(prolog + 1, *map(minutes, (partition.max_time, *walls))))
        found.append(
            {
                "partition": name,
                "user": user,
                "account": account,
                "qos": qos,
                "minutes": max(1, limit),
                "rxdm": name in rxdm,
            }
        )
    return found


def _somebody(config: ClusterConfig, partition: Partition) -> tuple[str, str, str]:
    """User, account and QOS that a partition admits; root, whom Slurm always knows, where all may use it."""
    limited = partition.allow_accounts or partition.allow_groups
    if not limited and (not partition.allow_qos or NORMAL in partition.allow_qos):
        return "root", "", ""
    for user in config.users:
        accounts = [default_account(config, user), *user.accounts]
        qos = list(user.qos) or ["normal"]
        mine = [name for name in accounts if not partition.allow_accounts or name in partition.allow_accounts]
        allowed = [name for name in qos if not partition.allow_qos or name in partition.allow_qos]
        groups = {group.name for group in unix_groups(config) if user.name in group.members}
        if mine and allowed and (not partition.allow_groups or groups & set(partition.allow_groups)):
            return user.name, mine[0], allowed[0]
    return "", "", ""


def _mounts(mounts: Sequence[Mapping[str, Any]]) -> list[Mount]:
    return [cast("Mount", dict(mount)) for mount in mounts]
