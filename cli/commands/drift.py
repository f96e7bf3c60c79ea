"""`./hpc drift`."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from typer import Exit, Option

from cli import console, observers, options
from cli.access import remote
from cli.cluster.cluster import Cluster, from_outputs, require_capabilities
from cli.cluster.observation import ask
from cli.commands.status import Timeout
from cli.display import status_screen
from cli.errors import CliError
from cli.stack import outputs, project
from cluster.config import ClusterConfig
from cluster.load import parse_output
from cluster.observe.drift import Wanted, differences, key_id, starting, unseen
from cluster.observe.observation import ClusterObservation, Difference
from cluster.platforms.capability import Capability
from cluster.platforms.observer import observer_of
from cluster.roster import machines, node_names
from cluster.slurm.accounting import desired
from cluster.slurm.script_tree import expected, tree
from components.slurm import payload
from scripts.node.slurm.hostlist import compress


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The configuration that a stack's last `up` gave its machines."""

    name: str
    config: ClusterConfig
    addresses: Mapping[str, str]
    """Addresses of the machines, where the platform has them beforehand."""
    mounts: Mapping[str, Sequence[Mapping[str, str]]]
    """Shared file systems of each machine that is set up over SSH."""
    state: Mapping[str, Any] | None
    exports: Mapping[str, Any] | None
    """The folders that the controller keeps on a disk of its own, and shares."""
    elastic: Mapping[str, Any] | None = None
    """The way in which the controller creates elastic nodes."""
    admin_key: str = ""
    """Private half of the operator's key."""


def described(name: str, outputs: Mapping[str, Any]) -> Stack:
    """The configuration in a stack's outputs. Raises CliError: its last `up` was one of an earlier version of
    this program."""
    if not {"config", "place"} <= set(outputs):
        raise CliError(
            f"stack {name} has no output of its configuration: its last `up` was one of an earlier version, or did "
            f"not end well. Repeat it: ./hpc up {name}"
        )
    place = outputs["place"]
    config = parse_output(outputs["config"]).with_nodes_release(place.get("nodes_release") or "")
    return Stack(
        name=name,
        config=config,
        addresses=place.get("addresses") or {},
        mounts=place["mounts"],
        state=place.get("state"),
        exports=place.get("exports"),
        elastic=place.get("elastic"),
        admin_key=str(outputs.get("admin_key") or ""),
    )


def wanted(of: Stack, seen: ClusterObservation) -> Wanted:
    """Return what the stack says, to compare with what was seen."""
    return Wanted(
        files=payload.slurm_files(of.config, of.addresses),
        users=payload.users(of.config),
        groups=payload.groups(of.config),
        accounting=desired(of.config),
        scripts=expected(of.config),
        root_keys=[key] if (key := key_id(of.admin_key)) else [],
        nodes=[node for nodeset in of.config.nodesets for node in node_names(of.config, nodeset)],
        setup=payload.setup_version(),
        setup_of_stack=_version(seen),
    )


def _version(seen: ClusterObservation) -> str | None:
    """The set-up that the last `up` brought, from any machine that can read the cluster state."""
    read = ((machine.part("cluster_state", "newest") or {}).get("setup") for machine in seen.machines)
    return next(filter(None, read), None)


SECONDS = 300
"""Time limit of one command on one machine; most take a second."""
_SETUP = {"setup-changed", "setup-damaged"}
_READS = {"file-changed", "file-missing", "value-changed"}
# What daemons were started with. Without these files they are restarted: they may run with what was changed.
_SLURMCTLD = "/etc/hpc/slurm-files.json /etc/hpc/started/slurmctld"
_SLURMD = "/etc/hpc/started/slurmd"
_JOIN = "systemctl reset-failed hpc-node; systemctl restart hpc-node"


def mend_differences(of: Stack, reached: Cluster, seen: ClusterObservation, found: Sequence[Difference]) -> None:
    """Mend what can be mended, and print what each machine changed.

    Raises:
        CliError: a command failed on a machine; the message ends with what it printed.
    """
    if any(difference.id == "setup-old" for difference in found):
        raise CliError(
            f"the machines' set-up is of another version than this program's, and mending would mix the two. "
            f"Bring this one first: ./hpc up {of.name}"
        )
    found = [difference for difference in found if difference.mends == "mend"]
    if not found:
        return
    there = {machine.name: machine for machine in seen.machines if machine.reached}
    differing = {name for difference in found for name in difference.where if name in there}
    for name in differing & {name for difference in found if difference.id in _SETUP for name in difference.where}:
        _run(reached, name, payload.UNPACK, stdin=payload.packed_setup(), note="set-up copied again")
    if any(difference.id.startswith("script-") for difference in found):
        _stage(of, reached, seen.controller.name)
    # The controller first: nodes and login machines read what it publishes.
    names = [machine.name for machine in seen.machines if machine.name in differing]
    for name in sorted(names, key=lambda name: "controller" not in there[name].roles):
        mine = {difference.id for difference in found if name in difference.where}
        if there[name].roles == ("node",):
            restarted = [_SLURMD] if mine & {"copy-changed", "daemon-stopped"} else []
            _run(reached, name, _forget(restarted) + _JOIN, note="joined the cluster again")
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
            elastic=of.elastic,
        )
        restarted = [_SLURMCTLD] if mine & _READS else []
        restarted += [_SLURMD] if "node" in there[name].roles and "copy-changed" in mine else []
        _run(reached, name, _forget(restarted) + payload.phase_command("configure"), stdin=text)
    if any(difference.id == "accounting-changed" for difference in found):
        text = json.dumps({**desired(of.config), "mend": True})
        _run(reached, seen.controller.name, payload.phase_command("accounting"), stdin=text)


def _stage(of: Stack, reached: Cluster, controller: str) -> None:
    """Stage the prologs before the configuration that names them, as `up` does."""
    # It imports the SDK, which takes a second, and `status` needs none of it.
    from components.config import PROJECT

    scripts = tree(of.config, PROJECT)
    text = payload.staged(of.config, scripts, mounts=of.mounts[controller], state=of.state)
    _run(reached, controller, payload.phase_command("prologs"), stdin=text)
    if scripts.rxdm:
        _run(reached, controller, payload.phase_command("rxdm"), stdin=payload.patched(scripts))


def _forget(paths: Sequence[str]) -> str:
    return f"rm -f {' '.join(paths)}; " if paths else ""


def _run(reached: Cluster, name: str, line: str, *, stdin: str = "", note: str = "") -> None:
    done = remote.capture(reached.targets[name], reached.admin_key, line, stdin=stdin, seconds=SECONDS)
    if done.code:
        output = "\n".join((done.err or done.out).strip().splitlines()[-12:])
        raise CliError(f"{name}: mending failed: {output or done.code}")
    for text in [*done.out.strip().splitlines(), *([note] if note else [])]:
        console.note(f"{name}: {text}")


def drift(
    stack: options.Stack,
    *,
    mend: Annotated[bool, Option("--mend", help="Make the cluster as the stack says again.")] = False,
    timeout: Timeout = None,
    json: options.Json = False,
) -> None:
    """Compare the cluster with its stack, as the last `up` was given it.

    Slurm's files line by line, the values that slurmctld runs with, partitions, nodes, daemons, Unix users, groups and
    keys, prologs, accounts, users and limits in the database. Exit code 0 when nothing differs, 1 when something does,
    or could not be compared.

    `up` does not see such differences: it compares the stack with what it did last. --mend has every machine that
    differs do its part again, beside running jobs; what is then left is shown.

    Of a cluster of pods: charts with their values, the operator's objects, node sets, Kubernetes nodes, Slurm's nodes
    and partitions, accounts, users and QOS. There is no --mend for them.

    JSON: {stack, ok, differences [{id, where, what, stack, there, mends}], unseen [text]}.
    """
    with project.held(stack) if mend else nullcontext():
        values = outputs.read(stack, show_secrets=True)
        require_capabilities(stack, values, Capability.DRIFT, *([Capability.MEND] if mend else []))
        if observer := observer_of(values):
            found, blind = observers.drift(observer, stack, values, timeout)
            _show_drift(stack, found, blind, json=json, advice=observer.advice)
            raise Exit(1 if found or blind else 0)
        seen = ask(stack, values, seconds=timeout)
        of = described(stack, values)
        found = differences(wanted(of, seen), seen)
        if mend:
            # A machine whose set-up was gone is observed once the set-up was copied again.
            for _ in ("what is seen", "what was not seen"):
                blind = any(machine.reached and not machine.has_facts for machine in seen.machines)
                if found:
                    mend_differences(of, from_outputs(stack, values), seen, found)
                    seen = _started(stack, values, timeout)
                    found = differences(wanted(of, seen), seen)
                if not blind:
                    break
    _show_drift(stack, found, unseen(seen), json=json)
    raise Exit(1 if found or unseen(seen) else 0)


def _started(stack: str, values: Mapping[str, Any], timeout: float | None) -> ClusterObservation:
    """Ask the cluster after mending: nodes join again by themselves when the controller publishes its configuration
    again, and a daemon that is starting would be a difference. One that does not end its start stays one."""
    until = time.monotonic() + SECONDS
    seen = ask(stack, values, seconds=timeout)
    if late := starting(seen):
        console.note(f"{compress(late)}: waiting for what starts there")
    while starting(seen) and time.monotonic() < until:
        time.sleep(1)
        seen = ask(stack, values, seconds=timeout)
    return seen


def _show_drift(
    stack: str, found: list[Difference], unseen: list[str], *, json: bool, advice: Mapping[str, str] | None = None
) -> None:
    """Print what differs, and what mends it; `advice` is the platform's own, by what mends a difference."""
    if json:
        differences = [asdict(difference) for difference in found]
        console.json({"stack": stack, "ok": not found and not unseen, "differences": differences, "unseen": unseen})
        return
    if not found:
        console.line(f"{stack}: nothing differs from the stack.", style="bold green" if not unseen else "bold")
    else:
        console.line(f"{stack}: {status_screen.counted(len(found), 'thing')} not as the stack says.", style="bold red")
    for difference in found:
        console.line()
        console.line(f"{compress(difference.where)}: {difference.what}", style="bold")
        console.line(f"    stack: {difference.stack}")
        console.line(f"    there: {difference.there}")
    if unseen:
        console.line()
        console.line("Not compared:", style="bold")
        for text in unseen:
            console.line(f"    {text}")
    mends = {difference.mends for difference in found}
    if advice is None:
        _advise(stack, mends)
        return
    for text in (text for way, text in advice.items() if way in mends):
        console.line()
        console.line(text.replace("STACK", stack), style="cyan")


def _advise(stack: str, ways: Collection[str]) -> None:
    if ways:
        console.line()
    if "up" in ways:
        console.line(f"A machine that is gone, or a set-up of another version: ./hpc up {stack}", style="cyan")
    if "mend" in ways:
        what = "all else" if len(ways) > 1 else "it"
        console.line(f"Make {what} as the stack says, beside running jobs: ./hpc drift {stack} --mend", style="cyan")
    if "hand" in ways:
        console.line("A number that files belong to is not changed: put it right manually, or write it into the stack.")
