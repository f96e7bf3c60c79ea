"""Logs of a cluster of pods, and the containers that write them.

Names of containers: internal/consts/container.go of nebius/soperator 4.1.7; of the operator's,
helm/soperator/templates; of the database's, those of the MariaDB operator.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.platforms.nebius.names import GROUP, OPERATOR_NAMESPACE

Object = Mapping[str, Any]
_PLACEHOLDER = (f"{GROUP}/controller-type", "placeholder")
"""Pods that only keep the controller's image on other Kubernetes nodes (internal/consts/label.go)."""


@dataclass(frozen=True, kw_only=True)
class Log:
    """A kind of log."""

    container: str
    also: str = ""
    """Another name of it."""
    system: bool = False
    """True if it is in the operator's namespace."""


LOGS: Mapping[str, Log] = {
    "slurmctld": Log(container="slurmctld"),
    "slurmd": Log(container="slurmd"),
    # In a rehearsal the container has the daemon's name.
    "slurmdbd": Log(container="accounting", also="slurmdbd"),
    "slurmrestd": Log(container="slurmrestd"),
    "sshd": Log(container="sshd"),
    "munge": Log(container="munge"),
    "mariadb": Log(container="mariadb"),
    "populate-jail": Log(container="populate-jail"),
    "sconfigcontroller": Log(container="sconfigctrl"),
    "operator": Log(container="manager", system=True),
}
"""Logs by the name that `logs` takes."""


@dataclass(frozen=True, kw_only=True, order=True)
class Source:
    """A container's log."""

    namespace: str
    pod: str
    container: str
    """Empty for all containers of the pod."""

    def words(self, *, lines: int | None, since: str, follow: bool) -> list[str]:
        """The words for kubectl. `since` is a time as RFC 3339 has it, or empty. In front of each line is the time at
        which Kubernetes read it."""
        words = ["logs", self.pod, f"--namespace={self.namespace}", "--timestamps"]
        words += [f"--container={self.container}"] if self.container else ["--all-containers", "--max-log-requests=20"]
        words += [f"--tail={-1 if lines is None else lines}"]
        words += [f"--since-time={since}"] if since else []
        return [*words, "--follow"] if follow else words


def of_kind(log: Log, pods: Iterable[Object], namespace: str) -> list[Source]:
    """The containers that write a log."""
    wanted, found = OPERATOR_NAMESPACE if log.system else namespace, list[Source]()
    key, placeholder = _PLACEHOLDER
    for pod in pods:
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        if metadata["namespace"] == wanted and (metadata.get("labels") or {}).get(key) != placeholder:
            names = {row["name"] for row in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))}
            wrote = sorted(names & {log.container, log.also})
            found += [Source(namespace=wanted, pod=metadata["name"], container=name) for name in wrote]
    return sorted(found)


def of_name(name: str, pods: Iterable[Object], namespace: str) -> list[Source]:
    """The pods that a name means: a pod's, with or without its namespace and `/`, or a check's or job's."""
    where, _, pod = name.rpartition("/")
    every = [pod["metadata"] for pod in pods if pod["metadata"]["namespace"] == (where or namespace)]
    of_jobs = [
        metadata["name"]
        for metadata in every
        if any(row.get("kind") == "Job" for row in metadata.get("ownerReferences") or ())
    ]
    # Pods of a job have its name and five characters more; jobs of a CronJob have its name and a number.
    pattern = re.compile(rf"{re.escape(pod)}(-[0-9a-z]+)*-[0-9a-z]{{5}}")
    mine = [metadata["name"] for metadata in every if metadata["name"] == pod]
    names = mine or [name for name in of_jobs if pattern.fullmatch(name)]
    return sorted(Source(namespace=where or namespace, pod=name, container="") for name in names)


def chosen(what: str, on: Sequence[str], pods: Sequence[Object], namespace: str) -> list[Source]:
    """The containers that are asked for. Raises LookupError: there are none."""
    kinds = ", ".join(LOGS)
    if what not in LOGS:
        if on:
            raise LookupError(f"--on narrows {kinds}; {what} is none of them.")
        if not (found := of_name(what, pods, namespace) or of_name(f"{what}-0", pods, namespace)):
            raise LookupError(f"no pod, check or job of the cluster is called {what!r}. Or one of: {kinds}.")
        return found
    found = of_kind(LOGS[what], pods, namespace)
    there = ", ".join(source.pod for source in found) or "none"
    if missing := [name for name in on if name not in {source.pod for source in found}]:
        raise LookupError(f"{', '.join(missing)}: no {what} there. Pods with one: {there}.")
    if not found:
        raise LookupError(f"no pod of the cluster has {what}.")
    return [source for source in found if not on or source.pod in on]


def plain(line: str) -> str:
    """A line without the time that Kubernetes put in front, if it has one of its own."""
    _, _, text = line.partition(" ")
    return text if re.match(r"\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]", text) else line
