"""`./hpc drift`."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated, Any

from typer import Exit, Option

from cli import console, observers, options
from cli.access import remote
from cli.cluster.cluster import Cluster, connect
from cli.cluster.observation import observe
from cli.errors import CliError
from cli.stack import project
from cluster.capability import Capability
from cluster.config import ClusterConfig
from cluster.load import parse_output
from cluster.observe.drift import ExpectedCluster, key_id, starting_machines, unread_parts
from cluster.observe.drift import differences as find_differences
from cluster.observe.observation import ClusterObservation, Difference
from cluster.platforms.observers import observer_of
from cluster.printable import counted
from cluster.roster import machines, node_names
from cluster.slurm.accounting import desired
from cluster.slurm.script_tree import expected, tree
from components.slurm import payload
from scripts.node.slurm.hostlist import compress


def drift(
    stack: options.Stack,
    *,
    mend: Annotated[bool, Option("--mend", help="Make the cluster as the stack says again.")] = False,
    timeout: options.Timeout = None,
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
        cluster = connect(stack, Capability.DRIFT, *([Capability.MEND] if mend else []))
        values = cluster.outputs
        if observer := observer_of(values):
            if "config" not in values:
                raise CliError(
                    f"stack {stack} has no output of its configuration: its last `up` did not end well. Repeat it: "
                    f"./hpc up {stack}"
                )
            with observers.open_access(cluster, timeout) as access:
                differences, not_compared = observer.drift(access, parse_output(values["config"]))
            _print(stack, differences, not_compared, json=json, advice=observer.advice)
            raise Exit(1 if differences or not_compared else 0)
        observation = observe(cluster, seconds=timeout)
        config = _config_of_last_up(stack, values)
        differences = find_differences(_expected_state(config, values, observation), observation)
        if mend:
            # A machine whose set-up was missing reports its other differences only once it has the set-up again.
            for _ in ("what was reported", "what could not be reported"):
                incomplete = any(machine.reached and not machine.has_facts for machine in observation.machines)
                if differences:
                    _mend(cluster, config, observation, differences)
                    observation = _observe_after_mending(cluster, timeout)
                    differences = find_differences(_expected_state(config, values, observation), observation)
                if not incomplete:
                    break
    _print(stack, differences, unread_parts(observation), json=json)
    raise Exit(1 if differences or unread_parts(observation) else 0)


def _config_of_last_up(stack: str, values: Mapping[str, Any]) -> ClusterConfig:
    """Return the configuration that the last `up` gave the machines. Raises CliError: that `up` did not succeed, or was
    one of an earlier version of this program."""
    if not {"config", "place"} <= set(values):
        raise CliError(
            f"stack {stack} has no output of its configuration: its last `up` was one of an earlier version, or did "
            f"not end well. Repeat it: ./hpc up {stack}"
        )
    return parse_output(values["config"]).with_nodes_release(values["place"].get("nodes_release") or "")


def _expected_state(
    config: ClusterConfig, values: Mapping[str, Any], observation: ClusterObservation
) -> ExpectedCluster:
    """Return the stack in the form in which machines report what they have."""
    # Every machine that can read the cluster state reports the same set-up there.
    setups = ((machine.part("cluster_state", "newest") or {}).get("setup") for machine in observation.machines)
    admin_key = key_id(str(values.get("admin_key") or ""))
    return ExpectedCluster(
        files=payload.slurm_files(config, values["place"].get("addresses") or {}),
        users=payload.users(config),
        groups=payload.groups(config),
        accounting=desired(config),
        scripts=expected(config),
        root_keys=[admin_key] if admin_key else [],
        nodes=[node for nodeset in config.nodesets for node in node_names(config, nodeset)],
        setup=payload.setup_version(),
        setup_of_stack=next(filter(None, setups), None),
    )


_SECONDS = 300
"""Time limit of one command on one machine; most take a second."""
_SETUP = {"setup-changed", "setup-damaged"}
_READ_AT_START = {"file-changed", "file-missing", "value-changed"}
# Records of what daemons were started with. Without them a daemon is restarted: it may run with what was changed.
_SLURMCTLD = "/etc/hpc/slurm-files.json /etc/hpc/started/slurmctld"
_SLURMD = "/etc/hpc/started/slurmd"
_JOIN = "systemctl reset-failed hpc-node; systemctl restart hpc-node"


def _mend(
    cluster: Cluster,
    config: ClusterConfig,
    observation: ClusterObservation,
    differences: Sequence[Difference],
) -> None:
    """Mend the differences that can be mended, and print what each machine changed. Raises CliError: a command failed
    on a machine; the message ends with what it printed."""
    if any(difference.id == "setup-old" for difference in differences):
        raise CliError(
            f"the machines' set-up is of another version than this program's, and mending would mix the two. "
            f"Bring this one first: ./hpc up {cluster.stack}"
        )
    differences = [difference for difference in differences if difference.mends == "mend"]
    if not differences:
        return
    place, controller = cluster.outputs["place"], observation.controller.name
    reached = {machine.name: machine for machine in observation.machines if machine.reached}
    ids = {name: {difference.id for difference in differences if name in difference.where} for name in reached}
    differing = [name for name in reached if ids[name]]
    for name in differing:
        if ids[name] & _SETUP:
            _run(cluster, name, payload.UNPACK, stdin=payload.packed_setup(), note="set-up copied again")
    if any(difference.id.startswith("script-") for difference in differences):
        _stage_prologs(config, cluster, place, controller)
    # The controller first: nodes and login machines read what it publishes.
    for name in sorted(differing, key=lambda name: "controller" not in reached[name].roles):
        roles = reached[name].roles
        if roles == ("node",):
            records = [_SLURMD] if ids[name] & {"copy-changed", "daemon-stopped"} else []
            _run(cluster, name, _remove(records) + _JOIN, note="joined the cluster again")
            continue
        text = payload.configure(
            config,
            next(machine for machine in machines(config) if machine.name == name),
            stack=cluster.stack,
            mounts=place["mounts"][name],
            addresses=place.get("addresses") or {},
            controller=controller,
            state=place.get("state"),
            exports=place.get("exports"),
            elastic=place.get("elastic"),
        )
        records = [_SLURMCTLD] if ids[name] & _READ_AT_START else []
        records += [_SLURMD] if "node" in roles and "copy-changed" in ids[name] else []
        _run(cluster, name, _remove(records) + payload.phase_command("configure"), stdin=text)
    if any(difference.id == "accounting-changed" for difference in differences):
        text = json.dumps({**desired(config), "mend": True})
        _run(cluster, controller, payload.phase_command("accounting"), stdin=text)


def _stage_prologs(config: ClusterConfig, cluster: Cluster, place: Mapping[str, Any], controller: str) -> None:
    """Stage the prologs before the configuration that names them, as `up` does."""
    # This imports the SDK, which takes a second, and only --mend needs it.
    from components.config import PROJECT

    scripts = tree(config, PROJECT)
    text = payload.prologs_input(config, scripts, mounts=place["mounts"][controller], state=place.get("state"))
    _run(cluster, controller, payload.phase_command("prologs"), stdin=text)
    if scripts.rxdm:
        _run(cluster, controller, payload.phase_command("rxdm"), stdin=payload.rxdm_input(scripts))


def _remove(paths: Sequence[str]) -> str:
    return f"rm -f {' '.join(paths)}; " if paths else ""


def _run(cluster: Cluster, name: str, line: str, *, stdin: str = "", note: str = "") -> None:
    done = remote.capture(cluster.targets[name], cluster.admin_key, line, stdin=stdin, seconds=_SECONDS)
    if done.code:
        output = "\n".join((done.err or done.out).strip().splitlines()[-12:])
        raise CliError(f"{name}: mending failed: {output or done.code}")
    for text in [*done.out.strip().splitlines(), *([note] if note else [])]:
        console.note(f"{name}: {text}")


def _observe_after_mending(cluster: Cluster, timeout: float | None) -> ClusterObservation:
    """Observe the cluster once nothing starts there any more, at most for _SECONDS: a daemon that is starting would be
    a difference. Nodes join again by themselves when the controller publishes its configuration again."""
    deadline = time.monotonic() + _SECONDS
    observation = observe(cluster, seconds=timeout)
    if names := starting_machines(observation):
        console.note(f"{compress(names)}: waiting for what starts there")
    while starting_machines(observation) and time.monotonic() < deadline:
        time.sleep(1)
        observation = observe(cluster, seconds=timeout)
    return observation


def _print(
    stack: str,
    differences: list[Difference],
    not_compared: list[str],
    *,
    json: bool,
    advice: Mapping[str, str] | None = None,
) -> None:
    """Print what differs, and what mends it; `advice` is the platform's own, by what mends a difference."""
    if json:
        rows = [asdict(difference) for difference in differences]
        ok = not differences and not not_compared
        console.json({"stack": stack, "ok": ok, "differences": rows, "unseen": not_compared})
        return
    if not differences:
        console.line(f"{stack}: nothing differs from the stack.", style="bold green" if not not_compared else "bold")
    else:
        count = counted(len(differences), "thing")
        console.line(f"{stack}: {count} not as the stack says.", style="bold red")
    for difference in differences:
        console.line()
        console.line(f"{compress(difference.where)}: {difference.what}", style="bold")
        console.line(f"    stack: {difference.stack}")
        console.line(f"    there: {difference.there}")
    if not_compared:
        console.line()
        console.line("Not compared:", style="bold")
        for text in not_compared:
            console.line(f"    {text}")
    mends = {difference.mends for difference in differences}
    if advice is None:
        _print_advice(stack, mends)
        return
    for text in (text for mended_by, text in advice.items() if mended_by in mends):
        console.line()
        console.line(text.replace("STACK", stack), style="cyan")


def _print_advice(stack: str, mends: Collection[str]) -> None:
    if mends:
        console.line()
    if "up" in mends:
        console.line(f"A machine that is gone, or a set-up of another version: ./hpc up {stack}", style="cyan")
    if "mend" in mends:
        what = "all else" if len(mends) > 1 else "it"
        console.line(f"Make {what} as the stack says, beside running jobs: ./hpc drift {stack} --mend", style="cyan")
    if "hand" in mends:
        console.line("A number that files belong to is not changed: put it right manually, or write it into the stack.")
