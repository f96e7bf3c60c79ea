"""Kinds of findings of a cluster: how bad each is, and how long it lasts before it pages; limits that decide them.

`./hpc`, the machines and the rules of Prometheus read them here, so that a condition has one limit and one severity.
"""

from typing import Literal, NamedTuple

Severity = Literal["critical", "warning"]


class FindingKind(NamedTuple):
    """A kind of finding."""

    severity: Severity
    minutes: int | None = None
    """Minutes for which it lasts before it pages; None: it never pages, or the controller can't see it."""


KINDS: dict[str, FindingKind] = {
    "machine-unreachable": FindingKind("critical"),
    "host-busy": FindingKind("warning"),
    "machine-late": FindingKind("warning"),
    "slurmctld-down": FindingKind("critical", 1),
    "mariadb-down": FindingKind("critical", 4),
    "slurmdbd-down": FindingKind("critical", 4),
    "slurmrestd-down": FindingKind("warning", 4),
    "munge-down": FindingKind("critical", 2),
    "munge-key": FindingKind("critical"),
    "clock-skew": FindingKind("warning"),
    "network-cut": FindingKind("critical"),
    "node-down": FindingKind("critical", 5),
    "node-unstarted": FindingKind("warning", 60),
    "cluster-state-damaged": FindingKind("critical", 5),
    "setup-missing": FindingKind("critical"),
    "setup-failed": FindingKind("warning", 15),
    "reconcile-blind": FindingKind("critical", 15),
    "reconcile-brake": FindingKind("warning", 15),
    "reconcile-mode": FindingKind("warning"),  # as the stack file says, so that nobody is called for it
    "no-capacity": FindingKind("warning", 60),
    "repair-waits": FindingKind("warning"),
    "reconcile-alert": FindingKind("warning", 5),
    "node-drained": FindingKind("warning", 1440),
    "health-failed": FindingKind("critical"),
    "health-old": FindingKind("warning"),
    "jobs-held": FindingKind("warning", 30),
    "jobs-missing": FindingKind("warning"),
    "hours-used": FindingKind("warning", 0),
    "hours-low": FindingKind("warning", 0),
    "budget-used": FindingKind("warning", 0),
    "budget-rate": FindingKind("warning", 60),  # a burst of an hour is no rate of a month
    "topology-refused": FindingKind("warning", 60),
    "slurmctld-killed": FindingKind("warning", 0),
    "mount-missing": FindingKind("critical", 2),
    "disk-full": FindingKind("critical", 10),
    "monitoring-down": FindingKind("critical"),
    "monitoring-open": FindingKind("warning"),
    "alerts-silenced": FindingKind("warning"),  # an administrator made it, so that nobody is called for it
    "daemon-restarting": FindingKind("critical", 2),
    "old-config": FindingKind("warning"),
    "slurm-older": FindingKind("warning"),
    "vulnerable": FindingKind("warning"),
    "image-old": FindingKind("warning", 60),
    "kernel-old": FindingKind("warning", 60),
    "alert-firing": FindingKind("warning"),
    "not-read": FindingKind("warning"),
    **{f"known-problem-{number}": FindingKind("warning") for number in (7, 9, 14, 16, 17)},
    "cluster-unavailable": FindingKind("critical"),
    "pod-not-ready": FindingKind("warning"),
    "nodeset-incomplete": FindingKind("warning"),
    "host-condition": FindingKind("warning"),
    "check-failed": FindingKind("warning"),
}
"""Kinds in the order in which findings are printed: causes before their effects."""

FINDING_ALERT = "Finding"
"""The alert of all findings that page."""
WATCHDOG_ALERT = "Watchdog"
"""The alert that always fires, for a receiver that calls somebody when its messages stop. It has no place in lists of
alerts. The name is that of kube-prometheus-stack (templates/prometheus/rules-1.14/general.rules.yaml at cf408a29)."""
FREE_SHARE = 0.05
"""Share of a file system's space or inodes that is left, below which it is full (node_exporter's own rule
NodeFilesystemAlmostOutOfSpace, fsSpaceAvailableWarningThreshold of docs/node-mixin/config.libsonnet at 017e9551)."""
SKEW_SECONDS = 5
"""Smallest difference of two clocks that is a finding, long before it breaks anything: a MUNGE credential is valid for
300 s (munge(7))."""
HOURS_USED = {"hours-used": 0.95, "hours-low": 0.8}
"""Kinds of findings about an account's or a user's hours, each with the least used share of the limit (ours): at the
first one there is time to plan, at the second jobs of some size wait already, as they start only if their hours fit."""
OLDEST_PACKAGES = 60
"""Days after which old packages are a finding (ours). Ubuntu publishes security updates nearly every week."""
OLDEST_KERNEL = 120
"""Days after which a kernel is a finding (ours). A user who becomes root by a vulnerability can read the cluster's
MUNGE key."""
