"""Slurm's files: on the controller line by line, on the nodes as a whole."""

import difflib
import hashlib
from collections.abc import Iterator
from itertools import zip_longest

from cluster.observe.drift.difference import NOTHING, Difference, Wanted
from cluster.observe.health import ClusterObservation
from cluster.slurm import JOB_SUBMIT

CONTROLLERS = {"slurmdbd.conf", JOB_SUBMIT}
"""Files that slurmctld hands to nobody."""


def controllers(wanted: Wanted, seen: ClusterObservation) -> Iterator[Difference]:
    """Every line of the controller's files that differs."""
    texts = seen.controller.part("files", "texts")
    if texts is None:
        return
    for name, text in sorted(wanted.files.items()):
        if name not in texts:
            yield Difference(
                id="file-missing", where=(seen.controller.name,), what=name, stack="a file", there="no such file"
            )
            continue
        for number, said, found in lines(text, texts[name]):
            yield Difference(
                id="file-changed", where=(seen.controller.name,), what=f"{name}, line {number}", stack=said, there=found
            )


def lines(wanted: str, found: str) -> Iterator[tuple[int, str, str]]:
    """Number (in the wanted text, or where it would stand), wanted and found line of each difference."""
    ours, theirs = (text.removesuffix("\n").split("\n") for text in (wanted, found))
    for kind, i, i_end, j, j_end in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind != "equal":
            pairs = zip_longest(ours[i:i_end], theirs[j:j_end], fillvalue=NOTHING)
            yield from ((i + offset + 1, said, there) for offset, (said, there) in enumerate(pairs))


def copies(wanted: Wanted, seen: ClusterObservation) -> Iterator[Difference]:
    """Files that slurmd fetched, and the one that login machines read, as far as they are other ones."""
    for one in seen.machines:
        cached = one.part("files", "cache") or {}
        if "node" in one.roles and cached:
            yield from _copy(wanted, one.name, cached, "slurmd's copy of", sorted(set(wanted.files) - CONTROLLERS))
        elif one.roles == ("login",) and (here := one.part("files", "etc")) is not None:
            yield from _copy(wanted, one.name, here, "/etc/slurm/", ["slurm.conf"])


def _copy(wanted: Wanted, machine: str, found: dict[str, str], what: str, names: list[str]) -> Iterator[Difference]:
    for name in names:
        if found.get(name) != short_hash(wanted.files[name]):
            there = f"hash {found[name]}" if name in found else "no such file"
            title = f"{what}{name}" if what.endswith("/") else f"{what} {name}"
            stack = f"hash {short_hash(wanted.files[name])}"
            yield Difference(id="copy-changed", where=(machine,), what=title, stack=stack, there=there)


def short_hash(text: str) -> str:
    """The hash that scripts/node/collect.py reports of a file."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
