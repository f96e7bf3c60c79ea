"""Refusals of the cloud and what follows from them: requests that are sent again later, ways of a nodeset that cool
down, and hosts that were given up."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from interface import ReconcileInput
from reconcile.compute_engine import CAPACITY, PASSING, CloudError, ComputeEngine, ErrorKind, Instance
from reconcile.record import Record
from reconcile.world import HOST_MACHINES, NO_BOOT, BadHost, Case, Cooling, World, way_key
from slurm.output import NO_CAPACITY, NO_MACHINE
from system.host import log

RETRY_SECONDS, MAX_RETRY_SECONDS = 10, 300
COOL_MINUTES, MAX_COOL_MINUTES = 10, 60
BOOT_FAILURES = 10  # failed boots of a nodeset in a row: the cause is its image, not its machines
_NOT_PLAIN = re.compile(r"[^ -~]|[\"'\\]")


class Refusals:
    """The part of the loop's record about refusals, and how it changes."""

    def __init__(
        self,
        record: Record,
        settings: ReconcileInput,
        cloud: ComputeEngine,
        *,
        nodesets: Mapping[str, str],
        serial: Path,
    ) -> None:
        self.record, self.settings, self.cloud = record, settings, cloud
        self.nodesets, self.serial = nodesets, serial

    def schedule_retry(self, names: Sequence[str], way: str, error: CloudError, now: float, *, size: int) -> None:
        """Schedule the next try of a request for `size` instances that failed, or let its way cool down."""
        if names[0] not in self.nodesets:
            return  # the node has left the stack meanwhile
        if error.kind is ErrorKind.EXISTS:
            self._cool_taken_names(names, now)
        if error.kind in PASSING or error.kind is ErrorKind.EXISTS:
            self.delay(names, now, MAX_RETRY_SECONDS)
            return
        nodeset = self.nodesets[names[0]]
        last = self.record.cooling.get(way_key(nodeset, way))
        capacity = error.kind in CAPACITY
        size = size if capacity else 1
        repeats = last is not None and last.size <= size
        if last and last.until > now and repeats:
            return  # the request of another node has failed for the same reason
        # A permission that was just given takes minutes to take effect.
        soon = error.kind is ErrorKind.PERMISSION or (capacity and error.kind is not ErrorKind.QUOTA)
        minutes = COOL_MINUTES if soon else MAX_COOL_MINUTES
        if last and repeats:
            minutes = max(minutes, min(2 * last.minutes, MAX_COOL_MINUTES))
        text = NO_CAPACITY if capacity else NO_MACHINE
        why = f"{error.code}: {error.message}" if not capacity or error.kind is ErrorKind.QUOTA else error.code
        self._cool_down(nodeset, way, now, text=text, why=why, minutes=minutes, size=size)

    def forget(self, name: str) -> None:
        """A machine of a request has joined: forget that its way had refused as many before that request."""
        created = self.record.created.pop(name, None)
        key = way_key(self.nodesets[name], created.way) if created else ""
        cooling = self.record.cooling.get(key)
        if (
            created
            and cooling
            and cooling.size <= created.size
            and cooling.until - cooling.minutes * 60 < created.began
        ):
            del self.record.cooling[key]

    def _cool_taken_names(self, names: Sequence[str], now: float) -> None:
        """Give up, for a while, the nodes whose name an instance has that the loop has not made: it could neither use
        nor delete that. An instance that it has made is only missing in the list, which is late."""
        for name in names:
            try:
                instance = self.cloud.get(name)
            except CloudError:
                continue
            if instance and not is_own(instance, self.settings):
                why = "delete it, then hpc-reconcile lift"
                text = f"{NO_MACHINE}: the name belongs to an instance that the reconcile loop has not made,"
                self._cool(name, now, f"{text} {name}", why=why)

    def delay(self, names: Iterable[str], now: float, most: float) -> None:
        """Send no request to the cloud for these nodes for a while, which doubles each time."""
        for name in names:
            count = self.record.failures[name] = self.record.failures.get(name, 0) + 1
            self.record.retry[name] = now + min(RETRY_SECONDS * 2 ** min(count - 1, 5), most)

    def _cool_down(
        self, nodeset: str, way: str, now: float, *, text: str, why: str, minutes: int = MAX_COOL_MINUTES, size: int = 1
    ) -> None:
        what = nodeset if size == 1 else f"{size} machines of {nodeset}"
        self._cool(way_key(nodeset, way), now, f"{text} for {what} as {way}", why=why, minutes=minutes, size=size)

    def _cool(
        self, key: str, now: float, text: str, *, why: str, minutes: int = MAX_COOL_MINUTES, size: int = 1
    ) -> None:
        until = now + minutes * 60
        clock = time.strftime("%H:%M", time.localtime(until))
        reason = plain(f"{text} in {self.settings['cloud']['zone']} until {clock} ({why})")
        self.record.cooling[key] = Cooling(until, minutes, reason, size)
        log(reason)

    def give_up_host(self, name: str, world: World) -> None:
        """Record the host of a machine that is about to leave it: no job is to run there."""
        if host := world.instances[name][0].host:
            self.record.hosts[host] = BadHost(world.now, f"{name}: {world.nodes[name].reason}")

    def count_return_to_host(self, name: str, world: World) -> None:
        """Count a machine that was created on a host that was given up. After every third one, the ways that lead there
        cool down."""
        host = world.instances[name][0].host
        bad = self.record.hosts[host]
        bad = self.record.hosts[host] = replace(bad, time=world.now, machines=bad.machines + 1)
        if bad.machines % HOST_MACHINES == 0:
            nodeset = world.nodes[name].nodeset
            why = f"its machines come back on {host}, which was given up. {bad.reason}"
            for way in Case(world, name).template_ways:
                self._cool_down(nodeset, way, world.now, text=NO_CAPACITY, why=why)

    def count_boot_failure(self, nodeset: str, now: float) -> None:
        count = self.record.boots[nodeset] = self.record.boots.get(nodeset, 0) + 1
        if count < BOOT_FAILURES:
            return
        reason = f"{NO_BOOT}: {count} of {nodeset} in a row; look at {self.serial}"
        for row in self.settings["nodesets"][nodeset]["templates"]:
            self.record.cooling[way_key(nodeset, row["way"])] = Cooling(now + 3600, MAX_COOL_MINUTES, plain(reason))
        self.record.boots.pop(nodeset)


def is_own(instance: Instance, settings: ReconcileInput) -> bool:
    """Return whether the loop of this cluster has made an instance."""
    cluster = settings["cloud"]["cluster"]
    of_cluster = instance.labels.get("hpc-cluster") == cluster and instance.name.startswith(f"{cluster}-")
    return of_cluster and instance.made_by_loop


def plain(text: str) -> str:
    """Return a reason as scontrol takes it: one line of ASCII without quotes."""
    return _NOT_PLAIN.sub(" ", text)[:300]
