"""Settings and limits of Slurm's."""

import re
from collections.abc import Mapping
from typing import Any

from cluster.catalog import bounds
from cluster.catalog.parameters import NODE
from cluster.config.validators.choices import matching
from cluster.findings import Refused

_SLURM_TIME = re.compile(
    r"(?:[0-9]+-[0-9]+(?::[0-5]?[0-9]){0,2}|[0-9]+(?::[0-5]?[0-9]){0,2}|infinite|INFINITE|UNLIMITED|unlimited)"
)
# Of all that others take for line ends or blanks, nothing; # begins a comment, and a \ at the end joins two lines.
_PLAIN = re.compile(r"[ !$-~]*[ !$-\[\]-~]")

_LONGEST_TIME = 40
NODE_SIZES = ("CPUs", "Sockets", "CoresPerSocket", "ThreadsPerCore", "RealMemory", "MemSpecLimit")
"""Parameters of a NodeName line that other values are computed from."""


def quoted(value: Any) -> Any:  # noqa: ANN401 - whatever YAML made of it
    """Refuse bare numbers: YAML 1.1 readers turn an unquoted 12:00:00 into 43200, which Slurm would take as minutes."""
    if isinstance(value, int | float):
        raise Refused('a time in quotes, e.g. "12:00:00", "7-00:00:00" or "30" (minutes)', "put the value in quotes")
    return value


def scalar(value: Any) -> Any:  # noqa: ANN401 - whatever YAML made of it
    """A value of a parameter of slurm.conf."""
    if not isinstance(value, str | int):
        raise Refused("text, a whole number, true or false, e.g. 10", "write the value as slurm.conf should have it")
    if isinstance(value, str) and (not value.strip() or not _PLAIN.fullmatch(value)):
        raise Refused(
            'text of printable ASCII on one line, without # and ", with no \\ at its end, e.g. 10',
            "write the value as slurm.conf should have it",
        )
    return value


def node_count(value: int) -> int:
    if value < 1:
        raise Refused("a whole number of at least 1, e.g. 2", "raise it, or remove the nodeset and what names it")
    if value > bounds.MOST_NODES:
        raise Refused(f"at most {bounds.MOST_NODES}, as many as Slurm can have, e.g. 2", "lower it")
    return value


def node_conf(value: Mapping[str, object]) -> Mapping[str, object]:
    """Overrides of a NodeName line: sizes are whole numbers."""
    for key, size in value.items():
        name = NODE.canonical(key)
        if name not in NODE_SIZES:
            continue
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= bounds.NUMBERS[name]:
            raise Refused(
                f"for {key} a whole number, 1 to {bounds.NUMBERS[name]}, e.g. {{{key}: 2}}",
                f"correct {key}, or leave it out: the machine type has it",
            )
    return value


def slurm_time(value: str) -> str:
    """A time limit as slurm.conf and sacctmgr read it."""
    if len(value) > _LONGEST_TIME or not _SLURM_TIME.fullmatch(value):
        raise Refused(
            "minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]] or INFINITE, "
            "e.g. 12:00:00 or 7-00:00:00",
            "write the limit in one of these forms, in quotes",
        )
    if value[0].isalpha():
        return value.upper()
    if minutes(value) > bounds.MINUTES:
        raise Refused(
            f"a time of at most {bounds.MINUTES // 1440} days, or INFINITE",
            "write INFINITE, or a shorter time: Slurm counts its seconds in 32 bits",
        )
    return value


def minutes(limit: str) -> float:
    """A time limit of Slurm's in minutes; infinity for none."""
    if limit in ("INFINITE", "UNLIMITED"):
        return float("inf")
    days, _, rest = limit.rpartition("-") if "-" in limit else ("", "", limit)
    fields = [int(field) for field in rest.split(":")]
    if days:
        hours, minute, second = (*fields, 0, 0)[:3]
        return int(days) * 1440 + hours * 60 + minute + second / 60
    if len(fields) == 3:
        return fields[0] * 60 + fields[1] + fields[2] / 60
    return fields[0] + (fields[1] / 60 if len(fields) == 2 else 0)


tres_name = matching(
    "(cpu|mem|node|billing|energy|fs/disk|gres/gpu(:[a-z0-9_]+)?)",
    "cpu, mem (in MiB), node, billing, gres/gpu or gres/gpu:TYPE",
    "name the resource as sacctmgr does",
)
