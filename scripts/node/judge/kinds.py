"""Kinds of findings of a cluster: how bad each is, and how long it lasts before it pages; limits that decide them.

`./hpc`, the machines and the rules of Prometheus read them here, so that a condition has one limit and one severity.
"""

from typing import Literal, NamedTuple

Severity = Literal["critical", "warning"]


class Kind(NamedTuple):
    """A kind of finding."""

    severity: Severity
    minutes: int | None = None
    """Minutes for which it lasts before it pages; None: it never pages, or the controller can't see it."""


KINDS: dict[str, Kind] = {
    "machine-unreachable": Kind("critical"),
    "host-busy": Kind("warning"),
    "machine-late": Kind("warning"),
    "slurmctld-down": Kind("critical", 1),
    "mariadb-down": Kind("critical", 4),
    "slurmdbd-down": Kind("critical", 4),
    "slurmrestd-down": Kind("warning", 4),
    "munge-down": Kind("critical", 2),
    "munge-key": Kind("critical"),
    "clock-skew": Kind("warning"),
    "network-cut": Kind("critical"),
    "node-down": Kind("critical", 5),
    "node-unstarted": Kind("warning", 60),
    "cluster-state-damaged": Kind("critical", 5),
    "setup-missing": Kind("critical"),
    "setup-failed": Kind("warning", 15),
    "reconcile-blind": Kind("critical", 15),
    "reconcile-brake": Kind("warning", 15),
    "reconcile-mode": Kind("warning"),  # as the stack file says, so that nobody is called for it
    "no-capacity": Kind("warning", 60),
    "repair-waits": Kind("warning"),
    "reconcile-alert": Kind("warning", 5),
    "node-drained": Kind("warning", 1440),
    "health-failed": Kind("critical"),
    "health-old": Kind("warning"),
    "jobs-held": Kind("warning", 30),
    "jobs-missing": Kind("warning"),
    "topology-refused": Kind("warning", 60),
    "slurmctld-killed": Kind("warning", 0),
    "mount-missing": Kind("critical", 2),
    "disk-full": Kind("critical", 10),
    "monitoring-down": Kind("critical"),
    "daemon-restarting": Kind("critical", 2),
    "old-config": Kind("warning"),
    "slurm-older": Kind("warning"),
    "vulnerable": Kind("warning"),
    "image-old": Kind("warning", 60),
    "kernel-old": Kind("warning", 60),
    "alert-firing": Kind("warning"),
    "not-read": Kind("warning"),
    **{f"known-problem-{number}": Kind("warning") for number in (7, 9, 14, 16, 17)},
    "cluster-unavailable": Kind("critical"),
    "pod-not-ready": Kind("warning"),
    "nodeset-incomplete": Kind("warning"),
    "host-condition": Kind("warning"),
    "check-failed": Kind("warning"),
}
"""Kinds in the order in which findings are printed: causes before their effects."""

FINDING_ALERT = "Finding"
"""The alert of all findings that page."""
FREE_SHARE = 0.05
"""Share of a file system's space or inodes that is left, below which it is full (node_exporter's own rule
NodeFilesystemAlmostOutOfSpace, fsSpaceAvailableWarningThreshold of docs/node-mixin/config.libsonnet at 017e9551)."""
SKEW_SECONDS = 5
"""Smallest difference of two clocks that is a finding, long before it breaks anything: a MUNGE credential is valid for
300 s (munge(7))."""
OLDEST_PACKAGES = 60
"""Days after which old packages are a finding (ours). Ubuntu publishes security updates nearly every week."""
OLDEST_KERNEL = 120
"""Days after which a kernel is a finding (ours). A user who becomes root by a vulnerability can read the cluster's
MUNGE key."""
