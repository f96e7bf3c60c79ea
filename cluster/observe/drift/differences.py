"""Everything that is not as the stack says; the same thing on many machines as one."""

from collections.abc import Iterable
from dataclasses import replace

from cluster.observe.drift import accounting, files, machines, people, scripts, secrets, values
from cluster.observe.drift.difference import Difference, Wanted
from cluster.observe.health import ClusterObservation


def differences(wanted: Wanted, seen: ClusterObservation) -> list[Difference]:
    """What differs; empty when nothing does. A pure function."""
    return _together(
        [
            *machines.gone(seen),
            *machines.setup(wanted, seen),
            *machines.cluster_state(seen),
            *machines.daemons(seen),
            *files.controllers(wanted, seen),
            *values.running(wanted, seen),
            *values.partitions(wanted, seen),
            *values.nodes(wanted, seen),
            *files.copies(wanted, seen),
            *scripts.scripts(wanted, seen),
            *people.unix(wanted, seen),
            *people.keys(wanted, seen),
            *secrets.guarded(wanted, seen),
            *accounting.ledger(wanted, seen),
        ]
    )


def unseen(seen: ClusterObservation) -> list[str]:
    """What could not be compared, and why: an empty list of differences says nothing about it."""
    found: list[str] = []
    for one in seen.machines:
        found += [f"{one.name}: all of it: {one.why}"] if one.late else []
        names = ("unix", "keys", "files", "guarded")
        found += [f"{one.name}: {name}: {why}" for name in names if (why := one.error(name))]
    for group, names in (("slurm", ("config", "partitions", "nodes")), ("accounting", ("associations", "qos"))):
        found += [
            f"{seen.controller.name}: {group} {name}: {why}"
            for name in names
            if (why := seen.controller.error(group, name))
        ]
    return found


def _together(found: Iterable[Difference]) -> list[Difference]:
    groups: dict[tuple[str, ...], Difference] = {}
    for one in found:
        key = (one.id, one.what, one.stack, one.there)
        known = groups.get(key)
        groups[key] = replace(known, where=(*known.where, *one.where)) if known else one
    return list(groups.values())
