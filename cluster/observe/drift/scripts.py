"""The scripts that run before and after jobs: a lost one drains every node that is to run it."""

from collections.abc import Iterator

from cluster.observe.drift.difference import Difference, Wanted
from cluster.observe.health import ClusterObservation

TREE = "/opt/apps/adm/slurm"


def scripts(wanted: Wanted, seen: ClusterObservation) -> Iterator[Difference]:
    """Every file and link of the tree that is gone or another one; what others put there is theirs."""
    found = seen.controller.part("scripts")
    if found is None:
        return
    for path, said in wanted.scripts.items():
        there = found.get(path)
        if there is None:
            kind = "script-missing"
        elif (said and there != said) or there in ("changed", "not executable"):
            kind = "script-changed"
        else:
            continue
        yield Difference(
            id=kind,
            where=(seen.controller.name,),
            what=f"{TREE}/{path}",
            stack=_short(said) or "as it was staged",
            there="no such file" if there is None else _short(there),
        )


def _short(text: str) -> str:
    """A link as it is; the first digits of a hash."""
    return text if text.startswith("-> ") or len(text) != 64 else f"hash {text[:16]}"
