"""Makes a cluster as its stack says again, with the commands that `up` runs.

`up` itself would do nothing: it compares the stack with what it did last, and both are the same. Each machine is told
once more what it was told then; its set-up changes what differs and nothing else, beside running jobs.
"""

import json
import shlex
from collections.abc import Sequence

from cli import console
from cli.access import remote
from cli.cluster import cluster
from cli.drift.wanted import Stack
from cli.errors import CliError
from cluster.observe.drift import Difference
from cluster.observe.health import ClusterObservation
from cluster.roster import machines
from cluster.slurm.accounting import desired
from cluster.slurm.script_tree import tree

SECONDS = 300
"""For one command on one machine; most take a second."""
_SETUP = {"setup-changed", "setup-damaged"}
_READS = {"file-changed", "file-missing", "value-changed"}
# What daemons were started with: without it they are restarted, since they may run with what was changed meanwhile.
_SLURMCTLD = "/etc/hpc/slurm-files.json /etc/hpc/started/slurmctld"
_SLURMD = "/etc/hpc/started/slurmd"
_JOIN = "systemctl reset-failed hpc-node; systemctl restart hpc-node"


def mend(of: Stack, entered: cluster.Cluster, seen: ClusterObservation, found: Sequence[Difference]) -> None:
    """Mend what can be; what each machine changed is told.

    Raises:
        CliError: a machine could not do its part, with its own words.
    """
    from components.slurm import payload, setup

    if any(one.id == "setup-old" for one in found):
        raise CliError(
            f"the machines' set-up is of another version than this program's, and mending would mix the two. "
            f"Bring this one first: ./hpc up {of.name}"
        )
    found = [one for one in found if one.mends == "mend"]
    if not found:
        return
    there = {one.name: one for one in seen.machines if one.reached}
    differing = {name for one in found for name in one.where if name in there}
    for name in differing & {name for one in found if one.id in _SETUP for name in one.where}:
        _run(entered, name, setup.UNPACK, stdin=setup.packed(), told="its set-up brought again")
    if any(one.id.startswith("script-") for one in found):
        _stage(of, entered, seen.controller.name)
    # The controller first: nodes and login machines read what it publishes.
    names = [one.name for one in seen.machines if one.name in differing]
    for name in sorted(names, key=lambda name: "controller" not in there[name].roles):
        mine = {one.id for one in found if name in one.where}
        if there[name].roles == ("node",):
            restarted = [_SLURMD] if mine & {"copy-changed", "daemon-stopped"} else []
            _run(entered, name, _forget(restarted) + _JOIN, told="joined the cluster again")
            continue
        spec = next(spec for spec in machines(of.config) if spec.name == name)
        text = payload.configure(
            of.config,
            spec,
            mounts=of.mounts[name],
            addresses=of.addresses,
            controller=seen.controller.name,
            state=of.state,
            exports=of.exports,
        )
        restarted = [_SLURMCTLD] if mine & _READS else []
        restarted += [_SLURMD] if "node" in there[name].roles and "copy-changed" in mine else []
        _run(entered, name, _forget(restarted) + setup.command("configure"), stdin=text)
    if any(one.id == "accounting-changed" for one in found):
        controller = seen.controller.name
        _run(entered, controller, setup.command("accounting"), stdin=json.dumps(desired(of.config)))
        for words in dict.fromkeys(one.sacctmgr for one in found if one.sacctmgr):
            line = shlex.join(["sacctmgr", "--immediate", *words])
            _run(entered, controller, line, told=" ".join(["sacctmgr", *words]), quiet=True)


def _stage(of: Stack, entered: cluster.Cluster, controller: str) -> None:
    """Scripts before what starts them, as `up` does."""
    from components.config import PROJECT
    from components.slurm import prologs, setup

    scripts = tree(of.config, PROJECT)
    told = prologs.staged(of.config, scripts, mounts=of.mounts[controller], state=of.state)
    _run(entered, controller, setup.command(prologs.STAGE), stdin=told)
    if scripts.rxdm:
        _run(entered, controller, setup.command(prologs.PATCH), stdin=prologs.patched(scripts))


def _forget(paths: Sequence[str]) -> str:
    return f"rm -f {' '.join(paths)}; " if paths else ""


def _run(
    entered: cluster.Cluster, name: str, line: str, *, stdin: str = "", told: str = "", quiet: bool = False
) -> None:
    done = remote.capture(entered.targets[name], entered.admin_key, line, stdin=stdin, seconds=SECONDS)
    if done.code:
        said = "\n".join((done.err or done.out).strip().splitlines()[-12:])
        raise CliError(f"{name}: {line.partition(';')[0] if quiet else 'mending'} failed: {said or done.code}")
    for text in [*([] if quiet else done.out.strip().splitlines()), *([told] if told else [])]:
        console.note(f"{name}: {text}")
