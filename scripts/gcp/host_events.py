#!/usr/bin/env python3
"""Drains this node when Google Cloud is about to preempt it (spot), or to stop it for maintenance of its host.

Runs as root on each compute node (hpc-host-events.service), and waits for changes of the instance's metadata:

    preempted             the node is drained at once; batch jobs are requeued, which gives their processes SIGTERM and
                          KillWait to save their data; before the machine stops the node is set down, so that slurmctld
                          does not wait for SlurmdTimeout
    maintenance-event     TERMINATE_ON_HOST_MAINTENANCE: the node is drained, and jobs run on until the machine stops
    upcoming-maintenance  the window becomes a reservation of the node, so that no job starts that would overlap it

A node that this program drained is resumed when the machine is back. Drains by others are left alone.
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
from health.drain_unhealthy import apply_action, read_node
from slurm import reservations, scheduler
from slurm.jobs import HOLDING
from slurm.output import CLOUD_REASONS, MAINTENANCE, PREEMPTED
from system.google_api import FLAVOR, METADATA, answer
from system.host import SetupError, log, run

STOPS = "TERMINATE_ON_HOST_MAINTENANCE"
GRACE_SECONDS = 25
"""From the notice until the node is set down. Source: spot machines stop 30 s after the notice
(cloud.google.com/compute/docs/instances/spot)."""
POLL_SECONDS = 60
RETRY_SECONDS = 5
WINDOW_MINUTES = 180
"""Length of a window without an end, as in cluster-toolkit v1.95.0, slurmsync.py."""
PREFIX = "hpc-maintenance-"


class StopError(Exception):
    """systemd stops this program, for a shutdown of the machine or a restart of the program."""


class HostEvents:
    """The events of one node's host, and the last ones that were applied to Slurm."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._done: tuple[object, ...] | None = None
        self._end = 0.0

    def watch(self) -> None:
        """Wait for changes, and act on each, forever."""
        etag = "0"
        while True:
            try:
                instance, etag = wait_for_change(etag)
                self.act(instance)
            except (OSError, ValueError, SetupError) as error:
                log(f"{error}; it is tried again")
                etag = "0"
                time.sleep(RETRY_SECONDS)

    def act(self, instance: dict[str, Any]) -> None:
        """Apply the metadata to Slurm. slurmctld gets requests only after a change: there may be thousands of nodes.
        Raises SetupError if slurmctld refuses one."""
        reason, window = reason_of(instance), window_of(instance.get("upcomingMaintenance"))
        if (reason, window) == self._done:
            return
        name = f"{PREFIX}{self.node}"
        reservations.keep({name: (self.node, *window)} if window else {}, lambda there: there == name)
        node = read_node(self.node)
        if reason is None and node.drained and node.reason in CLOUD_REASONS:
            scheduler.resume_nodes([self.node])
        elif reason and not node.drained:
            apply_action(self.node, "drain", reason)
            log(f"drained: {reason}")
        if reason == PREEMPTED:
            self.requeue_and_set_down(node.reason if node.drained else reason)
        self._done = (reason, window)

    def requeue_and_set_down(self, reason: str) -> None:
        """Requeue the node's batch jobs, and set the node down before the machine stops, which ends other jobs."""
        self._end = self._end or time.monotonic() + GRACE_SECONDS
        try:
            for job, error in scheduler.requeue_jobs(self.node, reason).items():
                log(f"job {job} ends with the machine: {error}")
            while time.monotonic() < self._end and jobs_on(self.node):
                time.sleep(1)
        finally:
            # Also when systemd stops this program at a shutdown.
            run("scontrol", "update", f"NodeName={self.node}", "State=DOWN", f"Reason={reason}")
            log("set down: the machine ends")


def jobs_on(node: str) -> set[str]:
    """Return the numbers of the jobs that hold a node. Raises SetupError."""
    return set(run("squeue", "--noheader", f"--nodelist={node}", f"--states={HOLDING}", "--format=%A").split())


def wait_for_change(etag: str) -> tuple[dict[str, Any], str]:
    """Return the instance's metadata and its tag once the tag differs from `etag`, at the latest after POLL_SECONDS.
    Raises OSError."""
    # Google announces a maintenance one minute before it only to machines that read this key.
    answer(f"{METADATA}maintenance-event", FLAVOR, seconds=5)
    query = f"recursive=true&alt=json&wait_for_change=true&timeout_sec={POLL_SECONDS}&last_etag={etag}"
    status, headers, body = answer(f"{METADATA}?{query}", FLAVOR, seconds=POLL_SECONDS + 30)
    if status != 200 or headers.get("Metadata-Flavor") != "Google":
        raise OSError(f"the metadata server answers {status}")
    return json.loads(body), headers.get("ETag", "0")


def reason_of(instance: dict[str, Any]) -> str | None:
    """Return the reason to drain the node; None if there is none. A pure function."""
    if instance.get("preempted") == "TRUE":
        return PREEMPTED
    return MAINTENANCE if instance.get("maintenanceEvent") == STOPS else None


def window_of(upcoming: object) -> tuple[float, int] | None:
    """Return start (seconds since 1970) and minutes of the planned maintenance window; None if none is planned.

    A pure function. The value is missing, NONE, {}, an error or a mapping, whose keys have two spellings
    (cloud.google.com/compute/docs/instances/monitor-plan-host-maintenance-event).
    """
    if not isinstance(upcoming, dict):
        return None
    values = {key.replace("_", "").lower(): value for key, value in upcoming.items()}
    if not values.get("windowstarttime"):
        return None
    start, end = (_epoch(values[key]) if values.get(key) else 0.0 for key in ("windowstarttime", "windowendtime"))
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
