"""Wait until every node of the cluster is there and idle, or name those that are not, with the end of their logs."""

from __future__ import annotations

import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

from jobs import lost_jobs
from slurm.scontrol import rows
from system import cluster_state
from system.host import SetupError, run, say, succeeds, wait

CLUSTER_KEY = Path("/root/.ssh/hpc_cluster")
# Base states of sinfo(1) in which a node takes or runs jobs. MIXED and ALLOCATED: an `up` beside running jobs.
WORKING = {"IDLE", "MIXED", "ALLOCATED", "COMPLETING"}
BROKEN = {
    "DOWN",
    "DRAIN",
    "FAIL",
    "NOT_RESPONDING",
    "UNKNOWN",
    "FUTURE",
    "REBOOT_ISSUED",
    "POWERED_DOWN",
    "INVALID_REG",
}
LOG_LINES = 15
# Why a node was drained here (drain.py), and that it may be resumed as soon as it is there.
LEAVES = "hpc: leaves the cluster"
RESHAPED = "hpc: gets other sockets, cores or GPUs"
REMADE = "hpc: its machine is made anew"
OURS = (LEAVES, RESHAPED, REMADE)


class Node(TypedDict):
    """A node to wait for; `host_key` is its public SSH host key, or empty where only the node itself knows it."""

    name: str
    address: str
    host_key: str


class State(TypedDict):
    """What slurmctld says of a node."""

    states: set[str]
    reason: str


def wait_for(nodes: list[Node], *, seconds: float) -> None:
    """Wait until all of `nodes` follow the newest orders and can take jobs.

    A node that an operator drained counts as there, one that was drained here is resumed. Raises SetupError naming the
    others after `seconds`.
    """
    end = time.monotonic() + seconds
    # After a boot of this machine it is not there at once.
    wait("slurmctld", lambda: succeeds("scontrol", "ping"), seconds=60, interval=0.2, unit="slurmctld")
    orders = cluster_state.orders()
    pending = {node["name"]: node for node in nodes}
    told = -1
    while pending:
        why = missing(list(pending), states(), cluster_state.reports(), orders["digest"], key=orders.get("munge", ""))
        resume([name for name in pending if name in why and why[name].startswith("down: ")])
        pending = {name: node for name, node in pending.items() if name in why}
        if pending and time.monotonic() > end:
            raise SetupError(lament(pending, why, seconds))
        if len(pending) != told:
            told = len(pending)
            say(f"nodes: {len(nodes) - told} of {len(nodes)} are there")
        if pending:
            time.sleep(0.2)
    lost_jobs.lay_to_rest()


def follow(*, seconds: float) -> None:
    """Wait until every node that can take jobs now follows the newest orders; those whose set-up failed need not.

    Raises SetupError after `seconds`.
    """
    order = cluster_state.orders()["digest"]

    def all_do() -> bool:
        reports = {name: report for name, report in cluster_state.reports().items() if report["state"] != "failed"}
        working = {
            name for name, state in states().items() if state["states"] & WORKING and not state["states"] & BROKEN
        }
        return all(reports[name]["digest"] == order for name in working & set(reports))

    wait("the nodes' following the newest orders", all_do, seconds=seconds, interval=0.3)


def missing(
    names: list[str], found: dict[str, State], reports: dict[str, dict[str, str]], order: str, *, key: str = ""
) -> dict[str, str]:
    """Why each of `names` is not there yet; names that are there are left out. A pure function.

    `key` is the fingerprint of the controller's MUNGE key. slurmctld may not have noticed yet that a node has another.
    """
    why: dict[str, str] = {}
    for name in names:
        state = found.get(name)
        report = reports.get(name)
        if state is None:
            why[name] = "slurmctld does not know it"
        elif report and report["state"] == "failed":
            why[name] = f"its set-up failed: {report['message']}"
        elif not report or report["digest"] != order:
            why[name] = "its set-up has not finished"
        elif report.get("munge", key) != key:
            why[name] = "it runs with another MUNGE key than the controller, and changes to it when it gets it"
        elif "REBOOT_ISSUED" in state["states"]:
            # To resume it would have slurmctld forget that it waits for a boot.
            why[name] = f"it reboots: {state['reason']}"
        elif "DRAIN" in state["states"] and "DOWN" not in state["states"] and state["reason"] not in OURS:
            continue
        elif "DRAIN" in state["states"] and "NOT_RESPONDING" not in state["states"] and state["reason"] in OURS:
            why[name] = f"down: {state['reason']}"
        elif "DOWN" in state["states"] and "NOT_RESPONDING" not in state["states"]:
            why[name] = f"down: {state['reason'] or 'no reason given'}"
        elif not state["states"] & WORKING or state["states"] & BROKEN:
            why[name] = "slurmd has not registered (" + "+".join(sorted(state["states"])) + ")"
    return why


def states() -> dict[str, State]:
    """Every node's states and reason, from `scontrol show node`, one line a node."""
    return parse(run("scontrol", "--oneliner", "--all", "show", "node"))


def parse(text: str) -> dict[str, State]:
    """The output of `scontrol --oneliner show node`. A pure function."""
    found: dict[str, State] = {}
    for words in rows(text):
        if "NodeName" not in words:
            continue
        # IDLE*+DRAIN: the star is slurmctld's mark for a node that does not answer.
        raw = words.get("State", "UNKNOWN")
        reason = words.get("Reason", "").partition(" [")[0]
        found[words["NodeName"]] = State(states=set(raw.replace("*", "+NOT_RESPONDING").split("+")), reason=reason)
    return found


def resume(names: list[str]) -> None:
    """Bring back nodes that slurmctld holds down although they answer: their machine was made anew or had rebooted."""
    for name in names:
        run("scontrol", "update", f"NodeName={name}", "State=RESUME")
        say(f"resumed {name}")


def lament(pending: dict[str, Node], why: dict[str, str], seconds: float) -> str:
    """The error: every missing node with its reason and the end of its logs, fetched side by side."""
    shown = list(pending.values())[:8]
    with ThreadPoolExecutor(max_workers=8) as pool:
        logs = list(pool.map(tail, shown))
    parts = [f"{len(pending)} of the cluster's nodes did not come within {seconds:.0f} s: {', '.join(sorted(pending))}"]
    for node, log in zip(shown, logs, strict=True):
        parts += [f"--- {node['name']} ({node['address']}): {why[node['name']]}", log]
    if len(shown) < len(pending):
        parts.append(f"--- and {len(pending) - len(shown)} more")
    return "\n".join(parts)


def tail(node: Node) -> str:
    """The last lines of the node's set-up and of slurmd, over SSH with its pinned host key, or the one that it told."""
    host_key = node["host_key"] or cluster_state.host_keys().get(node["name"], "")
    if not host_key or not CLUSTER_KEY.exists():
        return "(its logs cannot be read from here: its host key is not known, it has told nothing on the board yet)"
    script = (
        f"journalctl --no-pager -o cat -n {LOG_LINES} -u hpc-node -u hpc-watch -u slurmd; "
        f"tail -n {LOG_LINES} /var/log/slurm/slurmd.log 2>/dev/null"
    )
    with tempfile.NamedTemporaryFile("w", prefix="hpc-known-hosts-") as known:
        known.write(f"{node['address']} {host_key}\n")
        known.flush()
        options = ["BatchMode=yes", "ConnectTimeout=5", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={known.name}"]
        flags = [word for option in options for word in ("-o", option)]
        command = ["ssh", "-i", str(CLUSTER_KEY), *flags, f"root@{node['address']}", script]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
        except subprocess.TimeoutExpired:
            return "(it does not answer SSH)"
        except FileNotFoundError:
            return "(its logs cannot be read from here: there is no ssh on this machine; install openssh-client)"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return "\n".join(lines[-2 * LOG_LINES :]) or "(its logs are empty)"
