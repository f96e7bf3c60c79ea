"""What each machine is told, as JSON on the standard input of its set-up. Pure functions of the configuration.

Files travel as lists of lines, so that a preview shows the lines that change and nothing else.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cluster.config import ClusterConfig
from cluster.config.people import default_account, unix_groups
from cluster.roster import MachineSpec
from cluster.slurm import paths, render, render_slurmdbd
from components.slurm import setup

Json = dict[str, Any]
PASSWORD_MARK = "@database-password@"  # noqa: S105 - scripts/node/slurmctld.py puts the password in its place


def users(config: ClusterConfig) -> list[Json]:
    """The Unix users, as scripts/node/users.py takes them."""
    return [
        {
            "name": user.name,
            "uid": user.uid,
            "gid": user.primary_gid,
            "groups": sorted(user.groups),
            "shell": user.shell,
            "keys": list(user.keys),
        }
        for user in config.users
    ]


def groups(config: ClusterConfig) -> list[Json]:
    """The Unix groups, as scripts/node/users.py takes them."""
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
) -> str:
    """Standard input of `configure` on the controller or a login machine."""
    payload: Json = {
        "cluster": config.name,
        "roles": list(machine.roles),
        "conf_server": f"{controller}:{paths.SLURMCTLD_PORT}",
        "mounts": [dict(mount) for mount in mounts],
        "users": users(config),
        "groups": groups(config),
        "setup": setup.version(),
    }
    if "controller" in machine.roles:
        files = slurm_files(config, addresses)
        payload["files"] = {name: text.splitlines() for name, text in files.items()}
    return _text(payload)


def node(*, mounts: Sequence[Mapping[str, Any]], controller: str) -> str:
    """/etc/hpc/node.json of a compute node: all it knows before it joins, and no more, so that it seldom changes."""
    return _text({"conf_server": f"{controller}:{paths.SLURMCTLD_PORT}", "mounts": [dict(mount) for mount in mounts]})


def probes(config: ClusterConfig) -> list[Json]:
    """Standard input of `ready`: for every partition, somebody who may run there."""
    return [
        {"partition": name, "user": user, "account": account}
        for name, partition in config.partitions.items()
        for user, account in [_somebody(config, partition.allow_accounts, partition.allow_groups)]
    ]


def _somebody(config: ClusterConfig, accounts: Sequence[str], allowed_groups: Sequence[str]) -> tuple[str, str]:
    """A user and an account that a partition lets in; root, whom Slurm always knows, where nobody is kept out."""
    if not accounts and not allowed_groups:
        return "root", ""
    for user in config.users:
        mine = [name for name in (default_account(config, user), *user.accounts) if not accounts or name in accounts]
        if (mine or not accounts) and (not allowed_groups or set(user.groups) & set(allowed_groups)):
            return user.name, mine[0] if accounts else ""
    return "", ""


def _text(payload: Json) -> str:
    return json.dumps(payload, indent=1, sort_keys=True) + "\n"
