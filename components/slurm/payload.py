"""The set-up that runs on the machines: the files of scripts/node, the commands that start its phases, and the JSON on
their standard input, typed by scripts/node/interface.py. Pure functions.

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
from cluster.jobs.script import render_environment
from cluster.people import NORMAL, default_account, unix_groups
from cluster.platforms import registry
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
    Reconcile,
    ReconcileCloud,
    ReconcileNodeset,
    Rights,
    Role,
    Rxdm,
    Spares,
    StateDisk,
    User,
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

# Takes {path: [lines]} from standard input into a folder, and removes whatever else is there: files of another version
# of the set-up, what Python has compiled of them, empty folders. A run that was killed is completed by the next.
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
# Takes {path: text} from standard input; nobody but root may read any of it, also while it is written.
_KEEP = """
import json, os, pathlib, sys
os.umask(0o077)
for path, text in json.load(sys.stdin).items():
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name("." + path.name)
    part.write_text(text.rstrip("\\n") + "\\n")
    part.replace(path)
"""
KEEP = f"python3 -c {shlex.quote(_KEEP)}"
"""The shell command that keeps secrets, {path: text} on standard input, each in its file, 0600 and root's."""

UNPACK = f"python3 -c {shlex.quote(_UNPACK)} {SETUP}"
"""The shell command that puts what `packed` gives, on standard input, in its place on a machine."""


@cache
def setup_files() -> dict[str, str]:
    """Text of every file of the set-up, by its path in the folder."""
    paths = [path for path in FOLDER.rglob("*") if "__pycache__" not in path.parts and path.is_file()]
    return {name: (FOLDER / name).read_text() for name in sorted(str(path.relative_to(FOLDER)) for path in paths)}


# Takes {"files": {path: text}, "payload": ...} from standard input; nothing of it stays on the machine.
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
    """Return the command that runs a program of the files on its standard input, with the folder that they are in."""
    return ["python3", "-c", _RUN, program]


@cache
def setup_version() -> str:
    """A hash of all those files: a machine set up by another version is set up again."""
    whole = hashlib.sha256()
    for name, text in setup_files().items():
        whole.update(f"{name}\0{len(text)}\0{text}".encode())
    return whole.hexdigest()[:16]


@cache
def packed_setup() -> str:
    """The whole set-up as one text, line by line, so that a preview shows which lines of it change."""
    files = {name: text.removesuffix("\n").split("\n") for name, text in setup_files().items()}
    return json.dumps(files, indent=1) + "\n"


def phase_command(phase: str) -> str:
    return f"python3 {SETUP} {phase}"


def as_lines(value: object) -> str:
    """JSON of one value a line, so that a preview shows only the lines that change."""
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def users(config: ClusterConfig) -> list[User]:
    """Users as machines take them. A right that the stack file does not mention is no key: the machine leaves it."""
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
    elastic: Mapping[str, Any] | None = None,
) -> str:
    """Standard input of `configure` on a machine that is set up over SSH; `state`, `exports` and `elastic` are for the
    controller."""
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
        _add_monitoring(payload, config, machine.roles)
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
            payload["state"] = cast("StateDisk", dict(state))
        if exports:
            payload["exports"] = cast("Exports", dict(exports))
        if config.controller.failover:
            payload["watch"] = registry.get(config.platform).watch(config)
        if elastic or any(section.spare for section in config.nodesets.values()):
            payload["reconcile"] = reconcile(config, elastic)
    return as_lines(payload)


def _add_monitoring(payload: Configure, config: ClusterConfig, roles: Sequence[Role]) -> None:
    from cluster.monitoring import files  # noqa: PLC0415 - with the table of alerts

    payload["node_exporter"] = files.node_exporter(config)
    role: Role | None = "controller" if "controller" in roles else "monitoring" if "monitoring" in roles else None
    if role and (metrics := files.monitoring(config, role)):
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


def reconcile(config: ClusterConfig, elastic: Mapping[str, Any] | None) -> Reconcile:
    """Settings of the reconcile loop. `elastic` has the platform's part: `cloud`, and `templates` of each nodeset; None
    where no node is elastic."""
    settings = config.slurm.reconcile
    elastic = elastic or {"cloud": _NO_CLOUD, "templates": {}}
    return {
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


def partition_qos(config: ClusterConfig) -> list[str]:
    """QOS that slurm.conf names, and that must therefore be in the database before slurmctld reads it."""
    named = {name for part in config.partitions.values() for name in (part.qos, *part.allow_qos) if name}
    return sorted(named - {NORMAL})


def node_json(*, mounts: Sequence[Mapping[str, Any]], controller: str) -> str:
    """/etc/hpc/node.json of a compute node: all it has before it joins, and no more, so that it seldom changes."""
    return as_lines(NodeBoot(conf_server=f"{controller}:{paths.SLURMCTLD_PORT}", mounts=_mounts(mounts)))


def probes(config: ClusterConfig) -> list[Probe]:
    """Standard input of `ready`: every partition, with a user who may run there; all empty where none may.

    Where scripts run before jobs, a job gets the time that these may take: they are part of it.
    """
    rxdm = config.slurm.rxdm.partitions if config.slurm.rxdm else ()
    found: list[Probe] = []
    for name, partition in config.partitions.items():
        user, account, qos = _somebody(config, partition)
        walls = (row.max_wall for row in config.accounting.qos if row.name in (qos, partition.qos) and row.max_wall)
        prolog = config.slurm.timers.prolog_epilog // 60 + 1 if has_scripts(config) else 0
        limit = int(min(prolog + 1, *map(minutes, (partition.max_time, *walls))))
        found.append(
            Probe(partition=name, user=user, account=account, qos=qos, minutes=max(1, limit), rxdm=name in rxdm)
        )
    return found


def _somebody(config: ClusterConfig, partition: Partition) -> tuple[str, str, str]:
    """User, account and QOS that a partition admits; root, whom Slurm always has, where all may use it."""
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


def staged(
    config: ClusterConfig, tree: Tree, *, mounts: Sequence[Mapping[str, Any]], state: Mapping[str, Any] | None = None
) -> str:
    """Standard input of `prologs`: the whole tree, and what has to be mounted for it."""
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
        payload["state"] = cast("StateDisk", dict(state))
    return as_lines(payload)


def patched(tree: Tree) -> str:
    """Standard input of `rxdm`: whose original it is, where it runs, and what is known of its versions."""
    sha256 = tree.rxdm["sha256"] if tree.rxdm else ""
    return as_lines(Rxdm(sha256=sha256, links=dict(tree.rxdm_links), known=ACTIONS, setup=setup_version()))


def scripts_digest(tree: Tree) -> str:
    """A hash of all that runs: partitions are tried again when any of it changes."""
    return hashlib.sha256(as_lines(asdict(tree)).encode()).hexdigest()[:16]


def undo_command(phase: str) -> str:
    """The shell command that undoes a phase; nothing to do on a machine that has no set-up any more."""
    return f"test ! -e {SETUP} || {phase_command(phase)}"
