"""The findings of a machine and, on the controller, of its cluster: the only place where such a condition is decided.

Phase `look` has them for `./hpc status`, and the exporter publishes those of the controller for alerts.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from judge import controller, machine
from judge.kinds import KINDS
from slurm.findings import MachineFinding

PARTS = (
    "boot",
    "daemons",
    "munge",
    "image",
    "cluster_state",
    "disks ",
    "killed",
    "reconcile",
    "topology",
    "alerts",
    "silences",
    "accounting hours",
    "budget",
)
PARTS += tuple(f"slurm {name}" for name in ("nodes", "jobs", "ping", "statistics", "database"))
"""Beginnings of the names of the parts of a document that findings are made of."""
_ORDER = list(KINDS)
GONE_SECONDS = 600
"""Seconds after which a finding counts as gone, longer than any interval of collection. One that comes and goes, as of
a daemon that crashes again and again, or whose parts could not be read for a moment, goes on."""


def findings(document: Mapping[str, Any]) -> list[MachineFinding]:
    """Return the findings of a document of phase `look`, causes before their effects. A pure function."""
    found = [*machine.findings(document)]
    if "controller" in document["roles"]:
        found += controller.findings(document)
    return sorted(found, key=lambda finding: _ORDER.index(finding.id))


class Published(NamedTuple):
    """The findings of one kind about one machine, as metrics have them."""

    id: str
    where: str
    what: str
    todo: str
    pages: bool
    """True if it has lasted for as long as its kind requires."""


Seen = dict[str, dict[str, float]]
"""The times `first` and `last` at which each finding was seen, by its kind and place."""


def publish(found: Iterable[MachineFinding], before: Seen, now: float) -> tuple[list[Published], Seen]:
    """Return the findings for metrics, and when each was seen, for the next call. A pure function."""
    alike: dict[str, list[MachineFinding]] = {}
    for finding in found:
        alike.setdefault(f"{finding.id} {finding.where}", []).append(finding)
    seen = {key: times for key, times in before.items() if now - times["last"] < GONE_SECONDS}
    rows: list[Published] = []
    for key, group in alike.items():
        first = min(seen.get(key, {}).get("first", now), *(finding.since or now for finding in group))
        seen[key] = {"first": first, "last": now}
        minutes = KINDS[group[0].id].minutes
        pages = minutes is not None and now - first >= 60 * minutes
        what = "; ".join(dict.fromkeys(finding.what for finding in group))
        rows.append(Published(group[0].id, group[0].where, what, group[0].todo, pages))
    return rows, seen
