"""What MUNGE needs of all machines: one key, and clocks that agree."""

from collections.abc import Iterator

from cluster.observe.health.finding import Finding
from cluster.observe.observation import ClusterObservation, MachineObservation

LIFETIME = 300
"""Seconds that a credential lives (munge(7)): a clock that differs by more makes every one expired or not yet made."""
SKEW = 5.0
"""Smallest difference in seconds that is a finding, long before it breaks anything."""


def clocks(seen: ClusterObservation) -> Iterator[Finding]:
    """Machines whose clock differs from the controller's; what it took to ask is taken off."""
    reference = seen.controller
    if not reference.has_facts:
        return
    for one in seen.machines:
        if one is reference or not one.has_facts:
            continue
        skew = ahead(one, reference)
        if abs(skew) < SKEW:
            continue
        effect = (
            "Every credential between the two is refused"
            if abs(skew) >= LIFETIME
            else f"MUNGE refuses credentials from {LIFETIME} s on"
        )
        yield Finding(
            id="clock-skew",
            where=(one.name,),
            what=f"its clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the controller's. {effect}",
            todo=f"./hpc ssh {seen.stack} {one.name} -- timedatectl",
            note="Let it follow the time server that the controller follows.",
        )


def strangers(seen: ClusterObservation) -> set[str]:
    """Machines that can't authenticate to the controller: it gets no answer from them, whatever the network does."""
    late = {
        one.name
        for one in seen.machines
        if one.has_facts and seen.controller.has_facts and abs(ahead(one, seen.controller)) >= LIFETIME
    }
    return late.union(*(found.where for found in keys(seen)))


def ahead(one: MachineObservation, reference: MachineObservation) -> float:
    """By how many seconds the clock of `one`, as its munged reads it, surely is ahead; negative: behind.

    The clock was read at some time between asking and answer, so that much of a difference is no difference.
    """
    low, high = _bounds(one)
    other_low, other_high = _bounds(reference)
    if low > other_high:
        return low - other_high
    return min(high - other_low, 0.0)


def _bounds(one: MachineObservation) -> tuple[float, float]:
    """Least and most that the machine's clock is ahead of ours."""
    time = one.time + (one.munge or {}).get("ahead", 0)
    return time - one.answered, time - one.asked


def keys(seen: ClusterObservation) -> Iterator[Finding]:
    """Machines with another MUNGE key than the controller; none where that is not known."""
    known = {one.name: key for one in seen.machines if (key := (one.munge or {}).get("key"))}
    right = known.get(seen.controller.name)
    if right is None:
        return
    for one in seen.machines:
        if one.has_facts and known.get(one.name, "") != right and one.munge is not None:
            if one.name not in known:
                yield Finding(
                    id="munge-key",
                    where=(one.name,),
                    what="has no MUNGE key: its set-up has not come that far",
                    todo=f"./hpc up {seen.stack}",
                )
                continue
            again = f"./hpc ssh {seen.stack} {one.name} -- systemctl restart hpc-node"
            yield Finding(
                id="munge-key",
                where=(one.name,),
                what="has another MUNGE key than the controller: no authentication between the two succeeds",
                todo=again if one.roles == ("node",) else f"./hpc drift {seen.stack} --mend",
                note="It installs again the key that the stack gave it.",
            )
