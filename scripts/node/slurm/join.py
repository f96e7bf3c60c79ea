"""Waits until every node of the cluster has joined, or names the missing ones with the end of their logs."""

import time
from collections.abc import Mapping

from interface import AwaitedNode
from jobs import lost_jobs
from slurm import topology
from slurm.nodes import Node as SlurmNode
from slurm.scheduler import DRAIN_REASONS, read_nodes, resume_nodes, wait_until_answers
from system import cluster_state, remote_node
from system.host import SetupError, in_parallel, log, wait

LOG_LINES = 15


def wait_for(nodes: list[AwaitedNode], *, seconds: float) -> None:
    """Wait until all of `nodes` have applied the config version and can take jobs.

    A node that an operator drained counts as joined. A node that this set-up drained is resumed. Raises SetupError
    after `seconds`, naming the missing ones.
    """
    end = time.monotonic() + seconds
    # After a boot of this machine, slurmctld does not answer at once.
    wait_until_answers()
    config = cluster_state.wait_for_config()
    pending = {node["name"]: node for node in nodes}
    waiting = -1
    while pending:
        began = time.monotonic()
        reports, key = cluster_state.reports(), config.get("munge", "")
        why = missing(list(pending), read_nodes(), reports, config["digest"], key=key)
        resume_nodes([name for name in pending if name in why and why[name].startswith("down: ")])
        pending = {name: node for name, node in pending.items() if name in why}
        if pending and time.monotonic() > end:
            raise SetupError(timeout_error(pending, why, seconds))
        if len(pending) != waiting:
            waiting = len(pending)
            log(f"nodes: {len(nodes) - waiting} of {len(nodes)} are there")
        if pending:
            # While many machines start, these commands take long and slow the machines down.
            time.sleep(max(0.1, 3 * (time.monotonic() - began)))
    lost_jobs.end_lost_jobs()
    try:
        topology.refresh()
    except SetupError as error:
        log(f"{topology.NAME}: {error}")


def wait_for_config_version(*, seconds: float) -> None:
    """Wait until every node that can take jobs has applied the config version, except nodes whose set-up failed.

    Raises SetupError after `seconds`.
    """
    version = cluster_state.wait_for_config()["digest"]

    def have_applied() -> bool:
        reports = {name: report for name, report in cluster_state.reports().items() if report.get("state") != "failed"}
        working = {name for name, node in read_nodes().items() if node.working}
        return all(reports[name].get("digest") == version for name in working & set(reports))

    wait("the config version on all nodes", have_applied, seconds=seconds, interval=0.3)


def missing(
    names: list[str],
    nodes: Mapping[str, SlurmNode],
    reports: Mapping[str, Mapping[str, object]],
    version: str,
    *,
    key: str = "",
) -> dict[str, str]:
    """Return why each of `names` that has not joined has not. A pure function.

    `key` is the fingerprint of the controller's MUNGE key. slurmctld may not have noticed yet that a node has another
    key.
    """
    why: dict[str, str] = {}
    # slurmctld (24.11.5) loses the reason of a drained node that was off and is static after its restart.
    drain_reasons = (*DRAIN_REASONS, "")
    for name in names:
        node = nodes.get(name)
        report = reports.get(name)
        if node is None:
            why[name] = "slurmctld does not know it"
        elif report and report["state"] == "failed":
            why[name] = f"its set-up failed: {report['message']}"
        elif not report or report["digest"] != version:
            why[name] = "its set-up has not finished"
        elif report.get("munge", key) != key:
            why[name] = "it runs with another MUNGE key than the controller, and changes to it when it gets it"
        elif "REBOOT_ISSUED" in node.states:
            # If it were resumed, slurmctld would forget that it waits for a boot.
            why[name] = f"it reboots: {node.reason}"
        elif node.drained and "DOWN" not in node.states and node.reason not in drain_reasons:
            continue
        elif "NOT_RESPONDING" not in node.states and ("DOWN" in node.states or node.drained):
            why[name] = f"down: {node.reason or 'no reason given'}"
        elif not node.working:
            why[name] = "slurmd has not registered (" + "+".join(sorted(node.states)) + ")"
    return why


def timeout_error(pending: dict[str, AwaitedNode], why: dict[str, str], seconds: float) -> str:
    """Return the error: every missing node with its reason, the first ones with the end of their logs."""
    shown = list(pending.values())[:8]
    logs = in_parallel(tail, shown, at_once=8)
    parts = [f"{len(pending)} of the cluster's nodes did not come within {seconds:.0f} s: {', '.join(sorted(pending))}"]
    for node, lines in zip(shown, logs, strict=True):
        parts += [f"--- {node['name']} ({node['address']}): {why[node['name']]}", lines]
    if len(shown) < len(pending):
        parts.append(f"--- and {len(pending) - len(shown)} more")
    return "\n".join(parts)


def tail(node: AwaitedNode) -> str:
    """Return the last lines of the logs of a node's set-up and slurmd, by SSH with its pinned or reported host key."""
    script = (
        f"journalctl --no-pager -o cat -n {LOG_LINES} -u hpc-node -u hpc-watch -u slurmd; "
        f"tail -n {LOG_LINES} /var/log/slurm/slurmd.log 2>/dev/null; true"
    )
    try:
        text = remote_node.run_on_node(node["name"], node["address"], script, host_key=node["host_key"])
    except SetupError as error:
        text = f"({error})"
    return "\n".join(text.strip().splitlines()[-2 * LOG_LINES :]) or "(its logs are empty)"
