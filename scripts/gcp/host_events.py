#!/usr/bin/env python3
"""Drains this node when Google Cloud is about to take it back (spot), or to stop it to maintain its host.

Runs as root on each compute node (hpc-host-events.service), and waits for changes of the instance's metadata:

    preempted             the node is drained at once; batch jobs are requeued, which gives their processes SIGTERM and
                          KillWait to save what they have; before the machine ends the node is set down, so that
                          slurmctld need not wait for SlurmdTimeout
    maintenance-event     TERMINATE_ON_HOST_MAINTENANCE: the node is drained, and jobs run on until the machine stops
    upcoming-maintenance  the window is a reservation of the node, so that no job begins that would run into it

What was drained here is resumed here, when the machine is back. A drain by anybody else is left alone.
"""

import contextlib
import json
import signal
import socket
import sys
import time
from datetime import datetime, timezone
from typing import Any

sys.path.insert(0, "/usr/local/lib/hpc/node")
from health.drain import apply_action, read_node_state
from slurm import reservations, scheduler
from slurm.output import CLOUD_REASONS, MAINTENANCE, PREEMPTED
from system.google_api import FLAVOR, METADATA, answer
from system.host import SetupError, log, run

STOPS = "TERMINATE_ON_HOST_MAINTENANCE"
GRACE_SECONDS = 25
"""From the notice until the node is set down. Source: spot machines end 30 s after it
(cloud.google.com/compute/docs/instances/spot)."""
POLL_SECONDS = 60
RETRY_SECONDS = 5
WINDOW_MINUTES = 180
"""Of a window without an end (cluster-toolkit v1.95.0, slurmsync.py, takes as long)."""
PREFIX = "hpc-maintenance-"
HOLD = "RUNNING,SUSPENDED,CONFIGURING,COMPLETING"


class StopError(Exception):
    """systemd ends this program: the machine shuts down, or the program is restarted."""


class HostEvents:
    """The events of one node's host, as far as Slurm has them."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._done: tuple[object, ...] | None = None
        self._end = 0.0

    def watch(self) -> None:
        """Wait for changes, and act on each, for ever."""
        etag = "0"
        while True:
            try:
                instance, etag = changed(etag)
                self.act(instance)
            except (OSError, ValueError, SetupError) as error:
                log(f"{error}; it is tried again")
                etag = "0"
                time.sleep(RETRY_SECONDS)

    def act(self, instance: dict[str, Any]) -> None:
        """Bring Slurm in line with the metadata. slurmctld is asked only where something has changed: there may be
        thousands of nodes. Raises SetupError where it does not take it."""
        reason, window = reason_of(instance), window_of(instance.get("upcomingMaintenance"))
        if (reason, window) == self._done:
            return
        name = f"{PREFIX}{self.node}"
        reservations.keep({name: (self.node, *window)} if window else {}, lambda there: there == name)
        state = read_node_state(self.node)
        drained = "DRAIN" in state["states"]
        if reason is None and drained and state["reason"] in CLOUD_REASONS:
            scheduler.resume_nodes([self.node])
        elif reason and not drained:
            apply_action(self.node, "drain", reason)
            log(f"drained: {reason}")
        if reason == PREEMPTED:
            self.leave(state["reason"] if drained else reason)
        self._done = (reason, window)

    def leave(self, reason: str) -> None:
        """Requeue the node's batch jobs, and set it down before the machine ends: jobs of srun and salloc end then."""
        self._end = self._end or time.monotonic() + GRACE_SECONDS
        try:
            for job, error in scheduler.requeue_jobs(self.node, reason).items():
                log(f"job {job} ends with the machine: {error}")
            while time.monotonic() < self._end and jobs_on(self.node):
                time.sleep(1)
        finally:
            # Also when systemd ends this because the machine shuts down.
            run("scontrol", "update", f"NodeName={self.node}", "State=DOWN", f"Reason={reason}")
            log("set down: the machine ends")


def jobs_on(node: str) -> set[str]:
    """Numbers of the jobs that hold a node. Raises SetupError."""
    return set(run("squeue", "--noheader", f"--nodelist={node}", f"--states={HOLD}", "--format=%A").split())


def changed(etag: str) -> tuple[dict[str, Any], str]:
    """Return the instance's metadata, and its tag, as soon as they differ from those of `etag`, at the latest after
    POLL_SECONDS. Raises OSError."""
    # Google gives a machine the minute before a maintenance only if this key is read.
    answer(f"{METADATA}maintenance-event", FLAVOR, seconds=5)
    query = f"recursive=true&alt=json&wait_for_change=true&timeout_sec={POLL_SECONDS}&last_etag={etag}"
    status, headers, body = answer(f"{METADATA}?{query}", FLAVOR, seconds=POLL_SECONDS + 30)
    if status != 200 or headers.get("Metadata-Flavor") != "Google":
        raise OSError(f"the metadata server answers {status}")
    return json.loads(body), headers.get("ETag", "0")


def reason_of(instance: dict[str, Any]) -> str | None:
    """Return why the node is to be drained; None where nothing is about to happen. A pure function."""
    if instance.get("preempted") == "TRUE":
        return PREEMPTED
    return MAINTENANCE if instance.get("maintenanceEvent") == STOPS else None


def window_of(upcoming: object) -> tuple[float, int] | None:
    """Return when maintenance may begin, in seconds of the epoch, and for how many minutes; None where none is planned.

    A pure function. The key is absent, NONE, {}, an error or a mapping, whose keys have two spellings
    (cloud.google.com/compute/docs/instances/monitor-plan-host-maintenance-event).
    """
    if not isinstance(upcoming, dict):
        return None
    known = {key.replace("_", "").lower(): value for key, value in upcoming.items()}
    if not known.get("windowstarttime"):
        return None
    start, end = (_epoch(known[key]) if known.get(key) else 0.0 for key in ("windowstarttime", "windowendtime"))
    return start, max(1, round((end - start) / 60)) if end else WINDOW_MINUTES


def _epoch(text: str) -> float:
    return datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()


def _stop(*_: object) -> None:
    raise StopError


def main() -> None:
    signal.signal(signal.SIGTERM, _stop)
    with contextlib.suppress(StopError):
        HostEvents(socket.gethostname().partition(".")[0]).watch()


if __name__ == "__main__":
    main()
