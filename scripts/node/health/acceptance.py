"""Measures a node whose machine was repaired, before jobs return to it; runs on the controller.

The node is resumed inside a reservation with up to two idle nodes of its partition, so that no job of a user starts
there (slurm.schedmd.com/reservations.html: MAINT and IGNORE_JOBS). It runs the measurements of the stack (measure.py),
and the NCCL test of pairs on every node whose GPUs have a network. A failed measurement drains the node again with its
reason, as does an NCCL test without a result. Otherwise the node takes jobs when the reservation is deleted.
"""

import pwd
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from health import drain_unhealthy, measure
from health.check_kinds import reason
from slurm import reservations
from system.host import SetupError, hold_lock, log, printable, read_json, run, succeeds

LOCK_SECONDS = 3600  # timeout for another measurement to end
MINUTES = 60
"""The longest time of a reservation: if the controller's machine is lost, Slurm ends the reservation by itself."""
PARTNERS = 2
"""Nodes that the repaired one is measured with: a single slow pair does not show which of its nodes is slow."""

PREFIX = "hpc-accept-"
UNDER_WAY = "its measurement"
NO_PARTNER = "an idle node to run the NCCL test with"


def begin(name: str) -> str:
    """Start the measurement of a repaired node, which then returns to jobs; return what it waits for.

    The result is empty if the stack has no measurement of the node. Raises SetupError.
    """
    settings = read_json(measure.SETTINGS, None) or {}
    pair_test = _required_pair_test(name, settings)
    scheduled = (part for kind in _scheduled(settings) for part in _parts(settings, kind))
    if not pair_test and not any(name in part["nodes"] for part in scheduled):
        return ""
    unit = f"hpc-health-accept-{name}"
    if succeeds("systemctl", "is-active", "--quiet", unit):
        return UNDER_WAY
    if pair_test and not _partners(name, pair_test["nodes"]):
        return NO_PARTNER
    folder = Path(__file__).parents[1]
    program = (
        f"import sys; sys.path.insert(0, '{folder}'); from health.acceptance import main; sys.exit(main('{name}'))"
    )
    options = ["--quiet", "--collect", f"--unit={unit}"]
    if pair_test:
        # Drain the node if this is killed: it must not return to jobs when its reservation ends.
        why = reason({"fabric": "its measurement ended early"})
        drained = f"scontrol update NodeName={name} State=DRAIN Reason='{why}'"
        options.append(f'--property=ExecStopPost=/bin/sh -c "test $$SERVICE_RESULT = success || {drained}"')
    # After the drain. The program has deleted the reservation already unless it was killed.
    deleted = f"scontrol delete ReservationName={PREFIX}{name} 2>/dev/null || true"
    options.append(f'--property=ExecStopPost=/bin/sh -c "{deleted}"')
    run("systemd-run", *options, "python3", "-S", "-c", program)
    log(f"{name}: measured before jobs return to it")
    return UNDER_WAY


def _required_pair_test(name: str, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the NCCL test of pairs that a node must pass.

    None if its GPUs have no network, if its partition has no other node, or if the user has not built the test.
    """
    for part in _parts(settings, "fabric"):
        if name in part["nodes"] and len(part["nodes"]) > 1 and part.get("over_fabric"):
            user = settings["fabric"]["user"]
            try:
                path = f"{pwd.getpwnam(user).pw_dir}/{part['built']}"
            except KeyError:
                return None
            # As the user: root does not follow links in a home.
            if not part["built"] or succeeds("runuser", "-u", user, "--", "test", "-d", path):
                return part
            log(f"{name}: no NCCL test between pairs: {path} is missing, which `./hpc nccl build` makes")
    return None


def _scheduled(settings: dict[str, Any]) -> list[str]:
    """Return the kinds of measurements that run at intervals."""
    return [kind for kind in measure.MEASURES if settings.get(kind, {}).get("hours")]


def _partners(name: str, nodes: Sequence[str]) -> list[str]:
    """Return the idle ones of these nodes, without those whose last NCCL test was too slow."""
    others = [peer for peer in measure.idle_nodes(list(nodes)) if peer != name]
    return [peer for peer in others if measure.last_result(peer, "fabric").get("state") != "failed"]


def main(name: str) -> int:
    """Measure a node after any other measurement has ended; return the exit code."""
    try:
        with hold_lock(measure.LOCK, "another measurement", seconds=LOCK_SECONDS):
            accept(name, read_json(measure.SETTINGS, None) or {})
    except SetupError as error:
        sys.stderr.write(printable(f"{name}: {error}\n"))
        return 1
    return 0


def accept(name: str, settings: dict[str, Any]) -> None:
    """Resume a node in a reservation, measure it, and end the reservation. Raises SetupError."""
    pair_test, began = _required_pair_test(name, settings), time.time()
    kinds = [kind for kind in measure.MEASURES if kind in _scheduled(settings) or (pair_test and kind == "fabric")]
    own_parts = [(kind, part) for kind in kinds for part in _parts(settings, kind) if name in part["nodes"]]
    peers = {peer for _, part in own_parts for peer in part["nodes"]}
    preferred = pair_test["nodes"] if pair_test else ()
    nodes = [name, *sorted(_partners(name, sorted(peers)), key=lambda peer: peer not in preferred)[:PARTNERS]]
    users = {"root", *(settings[kind]["user"] for kind in kinds if "user" in settings[kind])}
    reservation = f"{PREFIX}{name}"
    with reservations.while_open(reservation, nodes, minutes=MINUTES, users=users):
        drain_unhealthy.apply_action(name, "resume", "")
        for kind, part in own_parts:
            reserved = [node for node in nodes if node in part["nodes"]]
            measure.MEASURES[kind]({**part, "reservation": reservation}, [name], reserved, settings[kind])
        last = measure.last_result(name, "fabric")
        text = last.get("text", "") if last.get("time", 0) >= began else "no pair was measured"
        if pair_test and (last.get("time", 0) < began or last["state"] == "skipped"):
            measure.record_result(name, "fabric", "skipped", text)
            drain_unhealthy.apply_action(name, "drain", reason({"fabric": text}))


def _parts(settings: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return settings.get(kind, {}).get("partitions", [])
