"""The set-up for machines: the files of scripts/node, the commands that run its phases, and their standard input, JSON
of the types in scripts/node/interface.py. Pure functions.

Files are lists of lines, so that a preview shows only the lines that change.
"""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, cast

from cluster.catalog.prologs import ACTIONS
from cluster.catalog.slurm_releases import UPGRADES
from cluster.config import ClusterConfig
from cluster.config.partitions import Partition
from cluster.config.validators import minutes
from cluster.cost.nodes import budget_input
from cluster.jobs.script import render_environment
from cluster.people import NORMAL, default_account, unix_groups
from cluster.roster import MachineSpec, controller_name, elastic_names, node_names, static_names
from cluster.slurm import paths, power_saving
from cluster.slurm.files import render, render_slurmdbd
from cluster.slurm.health import health, measurements
from cluster.slurm.script_tree import Tree, has_scripts
from cluster.slurm.slurm_conf import topology
from scripts.node.interface import (
    Configure,
    Exports,
    Group,
    Mount,
    NodeBoot,
    Probe,
    Prologs,
    ReconcileCloud,
    ReconcileInput,
    ReconcileNodeset,
    Rights,
    Role,
    RxdmInput,
    Spares,
    StateDiskInput,
    UnixUser,
)
from scripts.node.slurm import hostlist

FOLDER = Path(__file__).parents[2] / "scripts" / "node"
SETUP = "/usr/local/lib/hpc/node"
"""The folder of the set-up on every machine."""
MUNGE_KEY, DATABASE_PASSWORD = "/etc/hpc/munge.key", "/etc/hpc/database-password"
TOKEN_KEY = "/etc/hpc/jwt.key"  # noqa: S105 - where it lies
CLOUD_TOKEN = "/etc/hpc/cloud-token"  # noqa: S105 - where it lies
"""Files of the cluster's secrets, which the set-up reads (munge.py, database.py, slurmctld.py)."""
PASSWORD_MARK = "@database-password@"  # noqa: S105 - scripts/node/slurm/slurmctld.py puts the password in its place

# Writes {path: [lines]} on standard input into a folder, and removes everything else there: files of another version of
# the set-up, their compiled files, empty folders. The next run completes one that was killed.
_UNPACK = """
import contextlib, json, os, pathlib, sys
files = json.load(sys.stdin)
folder = pathlib.Path(sys.argv[1])
for name, lines in files.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name("." + path.name)
    part.write_text("\\n".join(lines) + "\\n")
    part.replace(path)
for parent, folders, names in os.walk(str(folder), topdown=False):
    for path in [pathlib.Path(parent, name) for name in names]:
        if str(path.relative_to(folder)) not in files:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.rmdir(parent)
"""
# Writes {path: text} on standard input to files that only root can read, also while they are written.
_STORE_SECRETS = """
import json, os, pathlib, sys
os.umask(0o077)
for path, text in json.load(sys.stdin).items():
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name("." + path.name)
    part.write_text(text.rstrip("\\n") + "\\n")
    part.replace(path)
"""
STORE_SECRETS = f"python3 -c {shlex.quote(_STORE_SECRETS)}"
"""The shell command that writes secrets, {path: text} on standard input, each to its file, 0600 and root's."""

UNPACK = f"python3 -c {shlex.quote(_UNPACK)} {SETUP}"
"""The shell command that writes the files of `packed_setup`, on standard input, to their folder on a machine."""


@cache
def setup_files() -> dict[str, str]:
    """Return the text of every file of the set-up, by its path in the folder."""
    paths = [path for path in FOLDER.rglob("*") if "__pycache__" not in path.parts and path.is_file()]
    return {name: (FOLDER / name).read_text() for name in sorted(str(path.relative_to(FOLDER)) for path in paths)}


# Reads {"files": {path: text}, "payload": ...} from standard input, and leaves none of the files on the machine.
_RUN = """
import json, pathlib, subprocess, sys, tempfile
given = json.load(sys.stdin)
with tempfile.TemporaryDirectory(prefix="hpc-") as folder:
    for name, text in given["files"].items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command = [sys.executable, "-B", folder + "/" + sys.argv[1], folder]
    sys.exit(subprocess.run(command, input=json.dumps(given["payload"]).encode(), check=False).returncode)
"""


def run_sent(program: str) -> list[str]:
    """Return the command that runs one of the programs on its standard input, with their folder as its argument."""
    return ["python3", "-c", _RUN, program]


@cache
def setup_version() -> str:
    """Return a hash of all files of the set-up: a machine with another one is set up again."""
    digest = hashlib.sha256()
    for name, text in setup_files().items():
        digest.update(f"{name}\0{len(text)}\0{text}".encode())
    return digest.hexdigest()[:16]


@cache
def packed_setup() -> str:
    """Return all files of the set-up as one text, in which a preview shows the lines that change."""
    files = {name: text.removesuffix("\n").split("\n") for name, text in setup_files().items()}
    return json.dumps(files, indent=1) + "\n"


def phase_command(phase: str) -> str:
    return f"python3 {SETUP} {phase}"


def as_lines(value: object) -> str:
    """Return JSON with one value in a line, so that a preview shows only the lines that change."""
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def users(config: ClusterConfig) -> list[UnixUser]:
    """Return the users for `configure`. A right that the stack file does not mention has no key: it is not changed."""
    return [
        {
            "name": user.name,
            "uid": user.uid,
            "gid": user.primary_gid,
            "groups": sorted(user.groups),
            "shell": user.shell,
            "keys": list(user.keys),
            **cast("Rights", {key: has for key in ("sudo", "containers") if (has := getattr(user, key)) is not None}),
        }
        for user in config.users
    ]


def groups(config: ClusterConfig) -> list[Group]:
    return [{"name": group.name, "gid": group.gid} for group in unix_groups(config)]


def slurm_files(config: ClusterConfig, addresses: Mapping[str, str]) -> dict[str, str]:
    """Return the files of Slurm on the controller. In slurmdbd.conf a mark stands for the password."""
    return {**render(config, addresses), "slurmdbd.conf": render_slurmdbd(config, PASSWORD_MARK)}


def configure(
    config: ClusterConfig,
    machine: MachineSpec,
    *,
    stack: str,
    mounts: Sequence[Mapping[str, Any]],
    addresses: Mapping[str, str],
    controller: str,
    state: Mapping[str, Any] | None = None,
    exports: Mapping[str, Any] | None = None,
    elastic: Mapping[str, Any] | None = None,
) -> str:
    """Return the standard input of `configure` on a machine that is set up over SSH. `stack` is the name for
    commands. Only the controller uses `state`, `exports` and `elastic`."""
    payload: Configure = {
        "cluster": config.name,
        "roles": list(machine.roles),
        "conf_server": f"{controller}:{paths.SLURMCTLD_PORT}",
        "mounts": _mounts(mounts),
        "users": users(config),
        "groups": groups(config),
        "setup": setup_version(),
    }
    if config.monitoring:
        _add_monitoring(payload, config, machine.roles, stack)
    if config.containers.data:
        payload["containers"] = config.containers.data
    files = slurm_files(config, addresses)
    if "controller" not in machine.roles:
        payload["files"] = {"slurm.conf": files["slurm.conf"].removesuffix("\n").split("\n")}
    else:
        takes_over = list(UPGRADES.get(config.slurm_version, ()))
        payload["release"] = {"takes_over": takes_over, "nodes": config.nodes_release or config.slurm_version}
        payload["drain_seconds"] = config.slurm.drain_seconds
        payload["max_unavailable"] = config.slurm.reconcile.max_unavailable
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
        payload["environment"] = render_environment(config).splitlines()
        _add_topology(payload, config)
        if state:
            payload["state"] = cast("StateDiskInput", dict(state))
        if exports:
            payload["exports"] = cast("Exports", dict(exports))
        if elastic or config.budget or any(section.spare for section in config.nodesets.values()):
            payload["reconcile"] = reconcile(config, elastic)
    return as_lines(payload)


def _add_monitoring(payload: Configure, config: ClusterConfig, roles: Sequence[Role], stack: str) -> None:
    from cluster.monitoring import files  # noqa: PLC0415 - with the table of alerts

    payload["node_exporter"] = files.node_exporter(config)
    role: Role | None = "controller" if "controller" in roles else "monitoring" if "monitoring" in roles else None
    if role and (metrics := files.monitoring(config, stack, role)):
        payload["monitoring"] = metrics
    if role == "controller" and (of_gpus := files.gpu_exporter(config)):
        payload["gpu_exporter"] = of_gpus


def _add_topology(payload: Configure, config: ClusterConfig) -> None:
    kind = topology(config)
    if kind != "none":
        nodesets = {name: hostlist.compress(node_names(config, name)) for name in config.nodesets}
        payload["topology"] = {"nodesets": nodesets, "places": kind == "places"}


_NO_CLOUD: ReconcileCloud = {
    "project": "", "zone": "", "region": "", "cluster": "", "endpoint": "", "token_file": "",
}  # fmt: skip


def reconcile(config: ClusterConfig, elastic: Mapping[str, Any] | None) -> ReconcileInput:
    """Return the settings of the reconcile loop. `elastic` has the platform's part: `cloud`, and `templates` of each
    nodeset; None if no node is elastic."""
    settings = config.slurm.reconcile
    elastic = elastic or {"cloud": _NO_CLOUD, "templates": {}}
    found: ReconcileInput = {
        "mode": settings.mode,
        "actions_per_hour": settings.actions_per_hour,
        "max_unavailable": settings.max_unavailable,
        "maintain": settings.maintain,
        "cloud": elastic["cloud"],
        "nodesets": {
            name: ReconcileNodeset(
                nodes=list(elastic_names(config, name)),
                static=list(static_names(config, name)),
                templates=templates,
                idle_seconds=config.nodesets[name].idle_seconds,
                boot_seconds=power_saving.boot_seconds(config, name),
            )
            for name, templates in elastic["templates"].items()
        },
        "spares": {
            name: Spares(nodes=list(node_names(config, name)), count=section.spare)
            for name, section in config.nodesets.items()
            if section.spare
        },
    }
    if budget := budget_input(config):
        found["budget"] = budget
    return found


def partition_qos(config: ClusterConfig) -> list[str]:
    """Return the QOS in slurm.conf, which must be in the database before slurmctld reads that file."""
    named = {name for part in config.partitions.values() for name in (part.qos, *part.allow_qos) if name}
    return sorted(named - {NORMAL})


def node_json(*, mounts: Sequence[Mapping[str, Any]], controller: str) -> str:
    """Return /etc/hpc/node.json of a compute node: only what it needs before it joins, so that it rarely changes."""
    return as_lines(NodeBoot(conf_server=f"{controller}:{paths.SLURMCTLD_PORT}", mounts=_mounts(mounts)))


def probes(config: ClusterConfig) -> list[Probe]:
    """Return the standard input of `ready`: every partition with a user who may run jobs there, all empty if none may.

    If scripts run before jobs, the time limit of a job includes theirs.
    """
    rxdm = config.slurm.rxdm.partitions if config.slurm.rxdm else ()
    rows: list[Probe] = []
    for name, partition in config.partitions.items():
        user, account, qos = _allowed_user(config, partition)
        walls = (row.max_wall for row in config.accounting.qos if row.name in (qos, partition.qos) and row.max_wall)
        prolog = config.slurm.timers.prolog_epilog // 60 + 1 if has_scripts(config) else 0
        limit = int(min(prolog + 1, *map(minutes, (partition.max_time, *walls))))
        rows.append(
            Probe(partition=name, user=user, account=account, qos=qos, minutes=max(1, limit), rxdm=name in rxdm)
        )
    return rows


def _allowed_user(config: ClusterConfig, partition: Partition) -> tuple[str, str, str]:
    """Return a user, account and QOS that may use a partition: root, which Slurm always has, if all may."""
    limited = partition.allow_accounts or partition.allow_groups
    if not limited and (not partition.allow_qos or NORMAL in partition.allow_qos):
        return "root", "", ""
    for user in config.users:
        accounts = [default_account(config, user), *user.accounts]
        qos = list(user.qos) or ["normal"]
        accounts = [name for name in accounts if not partition.allow_accounts or name in partition.allow_accounts]
        qos = [name for name in qos if not partition.allow_qos or name in partition.allow_qos]
        groups = {group.name for group in unix_groups(config) if user.name in group.members}
        if accounts and qos and (not partition.allow_groups or groups & set(partition.allow_groups)):
            return user.name, accounts[0], qos[0]
    return "", "", ""


def _mounts(mounts: Sequence[Mapping[str, Any]]) -> list[Mount]:
    return [cast("Mount", dict(mount)) for mount in mounts]


def prologs_input(
    config: ClusterConfig, tree: Tree, *, mounts: Sequence[Mapping[str, Any]], state: Mapping[str, Any] | None = None
) -> str:
    """Return the standard input of `prologs`: the whole tree, and the mounts that it needs."""
    controller = controller_name(config)
    hosted = next((name for name in config.nodesets if node_names(config, name) == (controller,)), "")
    payload: Prologs = {
        "cluster": config.name,
        "controller_nodeset": hosted,
        "mounts": _mounts(mounts),
        "scripts": {name: dict(source) for name, source in tree.scripts.items()},
        "rxdm": dict(tree.rxdm) if tree.rxdm else None,
        "links": dict(tree.links),
        "setup": setup_version(),
    }
    if state:
        payload["state"] = cast("StateDiskInput", dict(state))
    return as_lines(payload)


def rxdm_input(tree: Tree) -> str:
    """Return the standard input of `rxdm`: the original's hash, the nodesets' links, and the known versions."""
    sha256 = tree.rxdm["sha256"] if tree.rxdm else ""
    return as_lines(RxdmInput(sha256=sha256, links=dict(tree.rxdm_links), known=ACTIONS, setup=setup_version()))


def scripts_digest(tree: Tree) -> str:
    """Return a hash of all scripts of jobs: partitions are probed again when one changes."""
    return hashlib.sha256(as_lines(asdict(tree)).encode()).hexdigest()[:16]


def undo_command(phase: str) -> str:
    """Return the shell command that undoes a phase. It does nothing on a machine without the set-up."""
    return f"test ! -e {SETUP} || {phase_command(phase)}"
