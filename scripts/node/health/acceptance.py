"""A node whose machine was repaired is measured before jobs return to it, on the controller.

The node is resumed inside a reservation, with up to two idle nodes of its partition beside it: no job of a user starts
there meanwhile. Measurements are those of measure.py that the stack has, and the NCCL test of pairs for every node
whose GPUs have a network. One that fails drains the node again, with its reason; so does an NCCL test without a result.
Else the node is free when the reservation is deleted.
"""

import pwd
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from health import drain, measure
from health.kinds import reason
from slurm import reservations
from system.host import SetupError, log, printable, read_json, run, succeeds, take_lock

LOCK_SECONDS = 3600  # that a node waits for another measurement
MINUTES = 60
"""The longest time of a reservation: if the machine is lost beneath this process, Slurm ends it."""
PARTNERS = 2
"""The number of nodes that a new one is measured with: one slow pair does not show which of its nodes is slow."""


PREFIX = "hpc-accept-"
UNDER_WAY = "its measurement"
NO_PARTNER = "an idle node to run the NCCL test with"


def begin(name: str) -> str:
    """Have a repaired node measured, which returns it to jobs; what that waits for, and empty where the stack has no
    measurement of the node. Raises SetupError."""
    wanted = read_json(measure.SETTINGS, None) or {}
    gate = _gate(name, wanted)
    if not gate and not any(name in part["nodes"] for kind in _scheduled(wanted) for part in _parts(wanted, kind)):
        return ""
    unit = f"hpc-health-accept-{name}"
    if succeeds("systemctl", "is-active", "--quiet", unit):
        return UNDER_WAY
    if gate and not _partners(name, gate["nodes"]):
        return NO_PARTNER
    folder = Path(__file__).parents[1]
    program = (
        f"import sys; sys.path.insert(0, '{folder}'); from health.acceptance import main; sys.exit(main('{name}'))"
    )
    options = ["--quiet", "--collect", f"--unit={unit}"]
    if gate:
        # Also where it is killed: the node must not return with the end of its reservation.
        why = reason({"fabric": "its measurement ended early"})
        drained = f"scontrol update NodeName={name} State=DRAIN Reason='{why}'"
        options.append(f'--property=ExecStopPost=/bin/sh -c "test $$SERVICE_RESULT = success || {drained}"')
    # After the drain. Its process has deleted it unless it was killed.
    deleted = f"scontrol delete ReservationName={PREFIX}{name} 2>/dev/null || true"
    options.append(f'--property=ExecStopPost=/bin/sh -c "{deleted}"')
    run("systemd-run", *options, "python3", "-S", "-c", program)
    log(f"{name}: measured before jobs return to it")
    return UNDER_WAY


def _gate(name: str, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """The NCCL test of pairs that a node has to pass; None where it has no network for its GPUs, no other node, or
    where its user has not built the test."""
    for part in _parts(wanted, "fabric"):
        if name in part["nodes"] and len(part["nodes"]) > 1 and part.get("over_fabric"):
            user = wanted["fabric"]["user"]
            try:
                path = f"{pwd.getpwnam(user).pw_dir}/{part['built']}"
            except KeyError:
                return None
            # As the user: root does not follow links in a home.
            if not part["built"] or succeeds("runuser", "-u", user, "--", "test", "-d", path):
                return part
            log(f"{name}: no NCCL test between pairs: {path} is missing, which `./hpc nccl build` makes")
    return None


def _scheduled(wanted: dict[str, Any]) -> list[str]:
    return [kind for kind in measure.MEASURES if wanted.get(kind, {}).get("hours")]


def _partners(name: str, nodes: Sequence[str]) -> list[str]:
    """Idle nodes among these, but those whose last NCCL test was too slow."""
    others = [peer for peer in measure.idle(list(nodes)) if peer != name]
    return [peer for peer in others if measure.last_result(peer, "fabric").get("state") != "failed"]


def main(name: str) -> int:
    """Measure a node once no other measurement is under way; the exit code."""
    measure.LOCK.parent.mkdir(exist_ok=True)
    with measure.LOCK.open("w") as lock:
        try:
            if not take_lock(lock, seconds=LOCK_SECONDS):
                raise SetupError(f"another measurement has not ended in {LOCK_SECONDS} s")
            accept(name, read_json(measure.SETTINGS, None) or {})
        except SetupError as error:
            sys.stderr.write(printable(f"{name}: {error}\n"))
            return 1
    return 0


def accept(name: str, wanted: dict[str, Any]) -> None:
    """Resume a node in a reservation, measure it, and end the reservation. Raises SetupError."""
    gate, began = _gate(name, wanted), time.time()
    kinds = [kind for kind in measure.MEASURES if kind in _scheduled(wanted) or (gate and kind == "fabric")]
    peers = {peer for kind in kinds for part in _parts(wanted, kind) if name in part["nodes"] for peer in part["nodes"]}
    first = gate["nodes"] if gate else ()
    nodes = [name, *sorted(_partners(name, sorted(peers)), key=lambda peer: peer not in first)[:PARTNERS]]
    users = {"root", *(wanted[kind]["user"] for kind in kinds if "user" in wanted[kind])}
    reservation = f"{PREFIX}{name}"
    with reservations.while_open(reservation, nodes, minutes=MINUTES, users=users):
        drain.apply_action(name, "resume", "")
        for kind in kinds:
            for part in _parts(wanted, kind):
                if name in part["nodes"]:
                    there = [node for node in nodes if node in part["nodes"]]
                    measure.MEASURES[kind]({**part, "reservation": reservation}, [name], there, wanted[kind])
        last = measure.last_result(name, "fabric")
        found = last.get("text", "") if last.get("time", 0) >= began else "no pair was measured"
        if gate and (last.get("time", 0) < began or last["state"] == "skipped"):
            measure.note_result(name, "fabric", "skipped", found)
            drain.apply_action(name, "drain", reason({"fabric": found}))


def _parts(wanted: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return wanted.get(kind, {}).get("partitions", [])
