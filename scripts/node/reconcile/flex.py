"""Flex start: one resize request asks for the machines of a job. They wait in Google's queue until all can be created,
and are deleted after their run time.

A managed instance group is created for each request, and is deleted when it has neither machines nor a request that
waits. The nodes of a group are in its description, so no record of them is kept. A node whose machine is in the queue
counts as one with an instance that is PENDING.
"""

import time
from dataclasses import dataclass, replace

from interface import ReconcileInput, ReconcileTemplate
from reconcile.compute_engine import (
    MADE_BY_LOOP,
    TEMPLATE_LABEL,
    CloudError,
    ComputeEngine,
    ErrorKind,
    Instance,
    InstanceGroup,
    Resize,
)
from reconcile.world import ORPHAN_SECONDS, Case, World, way_key

POLL_SECONDS = 30  # between two reads of a request that waits, which may be for hours


@dataclass(frozen=True)
class FlexStep:
    """An action on a group: `flex-ask`, `flex-template`, `flex-failed` or `flex-unused`."""

    rule: str
    group: InstanceGroup
    row: ReconcileTemplate | None = None
    error: CloudError | None = None


class Groups:
    """The groups of a cluster, as they were at the last read."""

    def __init__(self, cloud: ComputeEngine, settings: ReconcileInput) -> None:
        self._cloud = cloud
        self.rows = {
            way_key(nodeset, row["way"]): row
            for nodeset, nodeset_settings in settings["nodesets"].items()
            for row in nodeset_settings["templates"]
            if row.get("run_seconds")
        }
        self._groups: list[InstanceGroup] = []
        self._resizes: dict[str, tuple[float, Resize | None]] = {}
        """When the request of each group was read, and the request, by the group's id; without those not read yet."""
        self._newest: dict[str, InstanceGroup] = {}
        """The newest group of each node."""
        self._created: set[str] = set()
        """Nodes whose instance belongs to a group."""
        self._queue: set[str] = set()
        """Nodes whose machine waits."""
        self._unused: dict[str, float] = {}
        """By id of a group without use, since when."""

    def read(self, now: float) -> str:
        """Read groups and requests, before the instances that these create. Return why some may be missing. Raises
        CloudError."""
        if not self.rows:
            return ""
        groups, partial = self._cloud.groups()
        listed = {group.id for group in groups}
        groups += [group for group in self._groups if group.id not in listed and self._exists(group)]
        self._groups = sorted(groups, key=lambda group: group.created)
        self._newest = {name: group for group in self._groups for name in group.nodes}
        before, self._resizes = self._resizes, {}
        for group in self._groups:
            at, resize = before.get(group.id, (0.0, None))
            if resize is None or (resize.is_waiting and (self._has_machines(group) or now - at >= POLL_SECONDS)):
                try:
                    at, resize = now, self._cloud.resize(group.name)
                except CloudError as error:
                    partial = partial or (str(error) if error.kind is not ErrorKind.NOT_FOUND else "")
                    if group.id not in before:
                        continue
            self._resizes[group.id] = at, resize
        return partial

    def _exists(self, group: InstanceGroup) -> bool:
        """Return whether a group exists that the list does not have. If such a group were forgotten, its job would lose
        its place in the queue."""
        try:
            self._cloud.resize(group.name)
        except CloudError as error:
            return error.kind is not ErrorKind.NOT_FOUND
        return True

    def add(self, instances: dict[str, tuple[Instance, ...]]) -> None:
        """Add an instance for each machine that waits, and the label of the template to instances of groups, which do
        not have it."""
        self._created, self._queue = set(), set()
        for name, group in self._newest.items():
            listed = instances.get(name, ())
            if len(listed) == 1 and TEMPLATE_LABEL not in listed[0].labels:
                self._created.add(name)
                instances[name] = (replace(listed[0], labels={**listed[0].labels, TEMPLATE_LABEL: group.template}),)
            elif not listed and self._is_waiting(group):
                self._queue.add(name)
                labels = {**MADE_BY_LOOP, TEMPLATE_LABEL: group.template}
                instances[name] = (Instance(name, "", "PENDING", group.created, labels=labels, group=group.name),)

    def steps(self, world: World) -> list[FlexStep]:
        """Return what is to be done with groups now. While `world` is unsafe, no group is deleted."""
        steps: list[FlexStep] = []
        unused, self._unused = self._unused, {}
        for group in self._groups:
            row = self.rows.get(way_key(group.nodeset, group.way))
            has_machines = self._has_machines(group)
            _, resize = self._resizes.get(group.id, (0.0, Resize("CREATING")))
            needed = all(case.booting or case.new for case in (Case(world, name) for name in group.nodes))
            if resize and resize.state in ("FAILED", "CANCELLED") and not has_machines:
                steps.append(FlexStep("flex-failed", group, row, resize.error))
            elif not has_machines and not (self._nodes(group) and self._is_waiting(group)):
                since = self._unused[group.id] = unused.get(group.id, world.now)
                if world.now - since > ORPHAN_SECONDS:
                    steps.append(FlexStep("flex-unused", group, row))
            elif resize is None and needed and row:
                steps.append(FlexStep("flex-ask", group, row))
            elif row and group.refers != row["template"].rpartition("/")[2]:
                steps.append(FlexStep("flex-template", group, row))
        return [step for step in steps if not world.unsafe or step.rule in ("flex-ask", "flex-template")]

    def queued(self, name: str) -> InstanceGroup | None:
        """Return the group in whose queue a node's machine is, if none of the group's machines has been created."""
        group = self._newest[name] if name in self._queue else None
        return group if group and not self._has_machines(group) else None

    def reasons(self, zone: str) -> list[tuple[InstanceGroup, str]]:
        """Return each group with an accepted request that waits, and the reason for its jobs."""
        reasons: list[tuple[InstanceGroup, str]] = []
        for group in self._groups:
            _, resize = self._resizes.get(group.id, (0.0, None))
            nodes = self._nodes(group)
            if resize and resize.is_waiting and nodes and self.queued(nodes[0]):
                clock = time.strftime("%H:%M", time.localtime(group.created))
                why = f" ({resize.error.code})" if resize.error else ""
                count = f"{len(group.nodes)} machine{'' if len(group.nodes) == 1 else 's'}"
                reasons.append((group, f"hpc: waits for {count} of flex start in {zone} since {clock}{why}"))
        return reasons

    def _nodes(self, group: InstanceGroup) -> list[str]:
        """Return the nodes of a group that no newer group has."""
        return [name for name in group.nodes if self._newest.get(name) is group]

    def _has_machines(self, group: InstanceGroup) -> bool:
        return not self._created.isdisjoint(self._nodes(group))

    def _is_waiting(self, group: InstanceGroup) -> bool:
        """Return whether machines of a group may still be created."""
        _, resize = self._resizes.get(group.id, (0.0, None))
        return resize is None or resize.is_waiting
