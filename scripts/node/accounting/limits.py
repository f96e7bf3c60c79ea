"""Limits of a QOS as sacctmgr is told them and as it prints them. Pure functions, which the stack's side uses too."""

from __future__ import annotations

import re

TRES = {"MaxTRESPerJob", "MaxTRESPerUser", "GrpTRES"}
LISTS = {"Preempt", "Flags"}
_SPAN = re.compile(r"^(?:(?P<d>[0-9]+)-)?(?P<a>[0-9]+)(?::(?P<b>[0-9]+))?(?::(?P<c>[0-9]+))?$")


def same(key: str, said: str, there: str) -> bool:
    """Whether sacctmgr prints `there` for a limit that was set to `said`; empty texts are no limit."""
    if key == "Priority":
        return int(said or 0) == int(there or 0)
    if key in TRES or key in LISTS:
        return set(filter(None, said.lower().split(","))) == set(filter(None, there.lower().split(",")))
    if key == "MaxWall" and said and there:
        # A lone number is minutes here, as everywhere in sacctmgr.
        return _minutes(said) == _minutes(there)
    return said.lower() == there.lower()


def value(key: str, said: str, there: str) -> str:
    """What sacctmgr has to be told so that `there` becomes `said`.

    It keeps resources that are not named, so each that goes is set to -1; -1 alone is no resource, and no QOS either.
    """
    if key in TRES:
        kept = {word.partition("=")[0] for word in said.split(",")}
        gone = [name for word in there.split(",") if (name := word.partition("=")[0]) and name not in kept]
        return ",".join([*filter(None, [said]), *(f"{name}=-1" for name in gone)])
    if key == "Preempt":
        return said
    if key == "Priority":
        return said or "0"
    return said or "-1"


def span(text: str) -> int | None:
    """Seconds of a number or a time as Slurm writes it ([days-]hours:minutes:seconds); None where it is neither."""
    match = _SPAN.match(text)
    if not match:
        return None
    days, a, b, c = (int(value) if value else 0 for value in match.groups())
    if match["d"] is not None:
        return ((days * 24 + a) * 60 + b) * 60 + c
    if match["c"] is not None:
        return (a * 60 + b) * 60 + c
    return a * 60 + b if match["b"] is not None else a


def _minutes(text: str) -> int | None:
    return int(text) * 60 if text.isdigit() else span(text)
