"""Settings, limits and scripts of Slurm's: what its files and slurmd can take."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from cluster.catalog import bounds
from cluster.catalog.slurm_releases import NODE
from cluster.config.validators.formats import matching
from cluster.findings import RefusedError

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
        raise RefusedError(
            'a time in quotes, e.g. "12:00:00", "7-00:00:00" or "30" (minutes)', "put the value in quotes"
        )
    return value


def scalar(value: Any) -> Any:  # noqa: ANN401 - whatever YAML made of it
    """A value of a parameter of slurm.conf."""
    if not isinstance(value, str | int):
        raise RefusedError(
            "text, a whole number, true or false, e.g. 10", "write the value as slurm.conf should have it"
        )
    if isinstance(value, str) and (not value.strip() or not _PLAIN.fullmatch(value)):
        raise RefusedError(
            'text of printable ASCII on one line, without # and ", with no \\ at its end, e.g. 10',
            "write the value as slurm.conf should have it",
        )
    return value


def node_count(value: int) -> int:
    if value < 1:
        raise RefusedError("a whole number of at least 1, e.g. 2", "raise it, or remove the nodeset and what names it")
    if value > bounds.MOST_NODES:
        raise RefusedError(f"at most {bounds.MOST_NODES}, as many as Slurm can have, e.g. 2", "lower it")
    return value


def node_conf(value: Mapping[str, object]) -> Mapping[str, object]:
    """Overrides of a NodeName line: sizes are whole numbers."""
    for key, size in value.items():
        name = NODE.canonical(key)
        if name not in NODE_SIZES:
            continue
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= bounds.NUMBERS[name]:
            raise RefusedError(
                f"for {key} a whole number, 1 to {bounds.NUMBERS[name]}, e.g. {{{key}: 2}}",
                f"correct {key}, or leave it out: the machine type has it",
            )
    return value


_DURATION = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_DURATION = 365 * 86400


def duration(value: Any) -> Any:  # noqa: ANN401 - whatever YAML made of it
    if not isinstance(value, str) or not _DURATION.fullmatch(value) or duration_seconds(value) > _LONGEST_DURATION:
        raise RefusedError("a time of up to 365d: a number with s, m, h or d, e.g. 10m", "write it so")
    return value


def duration_seconds(value: str) -> int:
    """Seconds of a time such as 10m."""
    found = _DURATION.fullmatch(value)
    return int(found[1]) * _UNITS[found[2]] if found else 0


def slurm_time(value: str) -> str:
    """A time limit as slurm.conf and sacctmgr read it."""
    if len(value) > _LONGEST_TIME or not _SLURM_TIME.fullmatch(value):
        raise RefusedError(
            "minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]] or INFINITE, "
            "e.g. 12:00:00 or 7-00:00:00",
            "write the limit in one of these forms, in quotes",
        )
    if value[0].isalpha():
        return value.upper()
    if minutes(value) > bounds.MINUTES:
        raise RefusedError(
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


_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_FILE = re.compile(r"/?[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")

RXDM = "rxdm"
"""Name of the script that `slurm.rxdm` stages; no other script can have it."""

HEALTH = "00-hpc-health"
HEALTH_LAST = "zz-hpc-health"
"""Name of the script that `slurm.health` stages; no other script can have it."""
GPU_JOBS = "zz-hpc-gpu-jobs"
"""Name of the script that `monitoring` stages for clusters with GPUs; no other script can have it."""


def script_name(value: str) -> str:
    """A name of a script: a file name, and its place in the order in which scripts run."""
    if not _NAME.fullmatch(value):
        raise RefusedError(
            "1 to 63 of a-z, 0-9, - and _, a letter or digit first, e.g. 10-gpu-check",
            "choose a name that can be a file's, without path and ending; scripts run in the order of their names",
        )
    if value == RXDM:
        raise RefusedError(f"any name but {RXDM}, e.g. 10-gpu-check", f"use `slurm.{RXDM}`, or rename the script")
    if value == GPU_JOBS:
        raise RefusedError(
            f"any name but {value}, e.g. 10-gpu-check", "rename the script: `monitoring` stages this one"
        )
    if value in (HEALTH, HEALTH_LAST):
        raise RefusedError(f"any name but {value}, e.g. 10-gpu-check", "use `slurm.health`, or rename the script")
    return value


def script_file(value: str) -> str:
    """A path to a file beside the project, or from the root of the machine that `up` runs on."""
    if not _FILE.fullmatch(value) or any(part in (".", "..") for part in value.split("/")):
        raise RefusedError(
            "a path of letters, digits, ., _ and -, from the project's folder or from the root, e.g. scripts/check.sh",
            "write it without . and .., and move the file to where such a path leads",
        )
    return value


def script_url(value: str) -> str:
    example = "https://HOST/PATH without user and password, e.g. https://example.org/2f0f03f/check.sh"
    try:
        parts = urlsplit(value)
        whole = parts.scheme == "https" and parts.hostname and parts.path.strip("/")
        spare = parts.username or parts.password or parts.fragment
        _ = parts.port
    except ValueError:
        raise RefusedError(example, "write the address as a browser shows it") from None
    if not whole or spare or not value.isascii() or any(not char.isprintable() or char == " " for char in value):
        raise RefusedError(example, "write an https address; others could be read or changed on the way")
    return value


sha256 = matching(
    "[0-9a-f]{64}", "64 of 0-9 and a-f", "write what `sha256sum FILE` prints for the script that you have read"
)


def script_text(value: str) -> str:
    if not is_script(value):
        raise RefusedError(
            "a script whose first line names its interpreter, e.g. #!/bin/bash",
            "write #!/bin/bash as the first line, below `text: |`",
        )
    return value


LUA_FUNCTIONS = ("slurm_job_submit", "slurm_job_modify")
"""Functions that the plugin requires; slurmctld does not start without (req_fxns of src/plugins/job_submit/lua)."""


def lua_text(value: str) -> str:
    """A whole job_submit.lua; only Lua on the controller can check its grammar."""
    odd = sorted({char for char in value if not char.isprintable() and char not in "\t\n"})
    if odd:
        raise RefusedError("lines of printable characters", f"remove {', '.join(ascii(char) for char in odd)}")
    if lacking := [name for name in LUA_FUNCTIONS if name not in value]:
        raise RefusedError(
            f"Lua that defines {' and '.join(LUA_FUNCTIONS)}",
            f"add {' and '.join(lacking)}; one that lets everything pass is `function {lacking[0]}() return "
            "slurm.SUCCESS end`",
        )
    return value


def is_script(text: str) -> bool:
    """Return whether the kernel would start it: its first line names an interpreter."""
    return text.startswith("#!/") and "\0" not in text
