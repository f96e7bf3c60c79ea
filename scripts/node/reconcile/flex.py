"""Flex start: the machines of a job are asked for by one resize request, wait in Google's queue until all can come, and
are deleted after their run time.

A managed instance group is created for each request, and is deleted when none of its machines is there or waits. The
nodes of a group are in its description, so nothing is remembered here. A node whose machine is in the queue counts as
one with an instance that is PENDING.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from interface import Reconcile, ReconcileTemplate
from reconcile.compute_engine import MADE_BY, OURS, TEMPLATE, CloudError, ComputeEngine, Group, Instance, Kind, Resize
from reconcile.decision import ORPHAN_SECONDS, Case, World, way_key
from slurm import reservations

ASK_SECONDS = 30  # between two questions for a request that waits, which may be for hours
END = "hpc-until-"  # reservations from the end of a machine on
END_MINUTES = 60


@dataclass(frozen=True)
class Step:
    """An action on a group: `flex-ask`, `flex-template`, `flex-failed` or `flex-unused`."""

    rule: str
    group: Group
    row: ReconcileTemplate | None = None
    error: CloudError | None = None


class Groups:
    """The groups of a cluster, as they were last read."""

    def __init__(self, cloud: ComputeEngine, settings: Reconcile) -> None:
        self._cloud = cloud
        self.rows = {
            way_key(nodeset, row["way"]): row
            for nodeset, wanted in settings["nodesets"].items()
            for row in wanted["templates"]
            if row.get("run_seconds")
        }
        self._groups: list[Group] = []
        self._resizes: dict[str, tuple[float, Resize | None]] = {}
        """The time of reading each group's request, and the request, by the group's id; none that could not be read."""
        self._of: dict[str, Group] = {}
        """The newest group of each node."""
        self._there: set[str] = set()
        """Nodes whose instance is of a group."""
        self._queue: set[str] = set()
        """Nodes whose machine waits."""
        self._unused: dict[str, float] = {}

    def read(self, now: float) -> str:
        """Read groups and requests, before the instances that these create; why some may be missing. Raises
        CloudError."""
        if not self.rows:
            return ""
        groups, partial = self._cloud.groups()
        listed = {group.id for group in groups}
        groups += [group for group in self._groups if group.id not in listed and self._is_there(group)]
        self._groups = sorted(groups, key=lambda group: group.created)
        self._of = {name: group for group in self._groups for name in group.nodes}
        before, self._resizes = self._resizes, {}
        for group in self._groups:
            at, last = before.get(group.id, (0.0, None))
            came = any(name in self._there for name in self._mine(group))
            if last is None or (last.waits and (came or now - at >= ASK_SECONDS)):
                try:
                    at, last = now, self._cloud.resize(group.name)
                except CloudError as error:
                    partial = partial or (str(error) if error.kind is not Kind.NOT_FOUND else "")
                    if group.id not in before:
                        continue
            self._resizes[group.id] = at, last
        return partial

    def _is_there(self, group: Group) -> bool:
        """Return whether a group is there that only the list lacks: with it went a job's place in the queue."""
        try:
            self._cloud.resize(group.name)
        except CloudError as error:
            return error.kind is not Kind.NOT_FOUND
        return True

    def add(self, found: dict[str, tuple[Instance, ...]]) -> None:
        """Add an instance for each machine that waits, and to those of groups their template, which is no label of
        theirs."""
        self._there, self._queue = set(), set()
        for name, group in self._of.items():
            there = found.get(name, ())
            if len(there) == 1 and TEMPLATE not in there[0].labels:
                self._there.add(name)
                found[name] = (replace(there[0], labels={**there[0].labels, TEMPLATE: group.template}),)
            elif not there and self._waits(group):
                self._queue.add(name)
                labels = {MADE_BY: OURS, TEMPLATE: group.template}
                found[name] = (Instance(name, "", "PENDING", group.created, labels=labels, group=group.name),)

    def steps(self, world: World) -> list[Step]:
        """Return what is to be done with groups now; nothing is deleted while `world` is unsafe."""
        found: list[Step] = []
        unused, self._unused = self._unused, {}
        for group in self._groups:
            row, mine = self.rows.get(way_key(group.nodeset, group.way)), self._mine(group)
            came = any(name in self._there for name in mine)
            _, resize = self._resizes.get(group.id, (0.0, Resize("CREATING")))
            wanted = all(case.booting or case.new for case in (Case(world, name) for name in group.nodes))
            if resize and resize.state in ("FAILED", "CANCELLED") and not came:
                found.append(Step("flex-failed", group, row, resize.error))
            elif not came and not (mine and self._waits(group)):
                since = self._unused[group.id] = unused.get(group.id, world.now)
                if world.now - since > ORPHAN_SECONDS:
                    found.append(Step("flex-unused", group, row))
            elif resize is None and wanted and row:
                found.append(Step("flex-ask", group, row))
            elif row and group.refers != row["template"].rpartition("/")[2]:
                found.append(Step("flex-template", group, row))
        return [step for step in found if not world.unsafe or step.rule in ("flex-ask", "flex-template")]

    def queued(self, name: str) -> Group | None:
        """Return the group in whose queue a node's machine is, and none of whose machines has come."""
        group = self._of[name] if name in self._queue else None
        return group if group and self._there.isdisjoint(self._mine(group)) else None

    def reasons(self, zone: str) -> list[tuple[Group, str]]:
        """Return what each request waits for that has been accepted."""
        found: list[tuple[Group, str]] = []
        for group in self._groups:
            _, resize = self._resizes.get(group.id, (0.0, None))
            if resize and resize.waits and self._mine(group) and self.queued(self._mine(group)[0]):
                clock = time.strftime("%H:%M", time.localtime(group.created))
                why = f" ({resize.error.code})" if resize.error else ""
                count = f"{len(group.nodes)} machine{'' if len(group.nodes) == 1 else 's'}"
                found.append((group, f"hpc: waits for {count} of flex start in {zone} since {clock}{why}"))
        return found

    def _mine(self, group: Group) -> list[str]:
        return [name for name in group.nodes if self._of.get(name) is group]

    def _waits(self, group: Group) -> bool:
        """Return whether machines may still come."""
        _, resize = self._resizes.get(group.id, (0.0, None))
        return resize is None or resize.waits


def keep_ends(ends: Mapping[str, float]) -> None:
    """Reserve each node from the end of its machine on, and no other: no job is placed past it. Raises SetupError."""
    wanted = {f"{END}{name}": (name, end, END_MINUTES) for name, end in ends.items()}
    reservations.keep(wanted, lambda name: name.startswith(END))
