"""Facts on health checks that the program and the nodes share: kinds of results, settings, exit codes of nvidia-smi.

The reason of a drained node has the kind of each failed check before its figures. Kinds never change, because programs
and people search for them. health/advice.py says who must act on each.
"""

import re
from typing import Literal, TypedDict, get_args

PREFIX = "hpc-health: "
"""The beginning of the reason of every node that a health check has drained."""
Check = Literal[
    "gpu-count", "gpu-driver", "gpu-xid", "gpu-ecc", "gpu-memory", "gpu-state", "gpu-nvlink", "gpu-diag",
    "gpu-processes", "aperture", "nic", "mount", "disk", "local-ssd", "clock",
]  # fmt: skip
"""Checks that a stack file may leave out (`slurm.health.skip`)."""
KINDS: tuple[str, ...] = (*get_args(Check)[:2], "gpu-lost", *get_args(Check)[2:], "network", "diag", "nccl", "fabric")
"""Kinds in the order in which they are shown."""
RESUMES = frozenset({"gpu-state", "gpu-processes", "nic", "mount", "disk", "clock"})
"""Kinds of faults that can end without a repair of the machine: the node is resumed after some runs without a failure.
A pass proves nothing for the others: a GPU works again after a reset, and fails later; a slow measurement is followed
by a fast one when another job ends."""
MACHINE = frozenset("gpu-count gpu-driver gpu-lost gpu-xid gpu-ecc gpu-memory gpu-nvlink gpu-diag nic".split())
"""Kinds of faults that a reboot or another machine may remove."""
REPAIRED_A_SECOND = 100
"""Errors of a GPU's NVLinks, repaired ones, that fail the check: DCGM_LIMIT_MAX_NVLINK_CRC_ERROR (NVIDIA/DCGM 72fa3fe,
common/DcgmGPUHardwareLimits.h). NVIDIA's check of links in jobs does not count a single one either
(NVIDIA/nvidia-resiliency-ext, pull request 302: errors in more than 15 of 30 minutes)."""
LONGEST = 400
"""Characters of a reason, at most; sinfo and squeue print it on one line."""
_UNPRINTABLE = re.compile(r"[^ -~]+")


def reason(failed: dict[str, str]) -> str:
    """Return the reason of a node on which these checks failed, text by kind: `hpc-health: gpu-count: 7 of 8 GPUs;
    ...`.

    It has every kind, with shortened texts if all together are too long.
    """
    failed_kinds = [kind for kind in KINDS if kind in failed]
    length = max(LONGEST // max(len(failed_kinds), 1), 34)
    parts = [f"{kind}: {_plain(failed[kind])}"[:length].rstrip(" :") for kind in failed_kinds]
    return PREFIX + "; ".join(parts)


def parse_reason(text: str) -> dict[str, str]:
    """Return the figures of each fault in a reason, by kind; empty for a reason that is not of a health check."""
    if not text.startswith(PREFIX):
        return {}
    parts = [part.partition(":") for part in text[len(PREFIX) :].split("; ")]
    return {kind.strip(): figures.strip() for kind, _, figures in parts if kind.strip() in KINDS}


def kinds_of_reason(text: str) -> tuple[str, ...]:
    """Return the kinds in a reason."""
    return tuple(parse_reason(text))


def is_old(age: float | None, interval: int) -> bool:
    """Return whether a node's last result is older than three intervals and a minute, or there is none; in seconds."""
    return age is None or age > 3 * interval + 60


def may_resume(text: str) -> bool:
    """Return whether a node with this reason may be resumed once its checks pass."""
    named = kinds_of_reason(text)
    return bool(named) and set(named) <= RESUMES


def _plain(text: str) -> str:
    """Return the text as a line of printable ASCII, without `;`, which ends a part, and quotes, which end a reason."""
    return _UNPRINTABLE.sub(" ", text).replace(";", ",").replace('"', "").replace("'", "").replace("\\", "/").strip()


_NUMBER = re.compile(r"-[0-9]+$")


class HealthNodes(TypedDict):
    """The hardware that each node of a nodeset must have: `nics` by name, or `nic_count` if the names are not known;
    `nvlinks` per GPU, 0 if some are inactive by design, of `nvlink_gbps` each, 0 if that is not known."""

    gpus: int
    nvlinks: int
    nvlink_gbps: float
    nics: list[str]
    nic_count: int
    apertures: bool
    local_ssds: int


class HealthSettings(TypedDict):
    """Settings of health checks; the keys of `nodes` are those of `nodeset_key`."""

    drain: bool
    requeue: bool
    resume_after: int
    skip: list[str]
    seconds: int
    epilog: bool
    limits: dict[str, int]  # disk_free_percent, clock_seconds, ecc_errors, nvlink_errors, nic_mbps (0: none)
    nodes: dict[str, HealthNodes]


def nodeset_key(name: str) -> str:
    """Return the key of a node's settings: its host name without the number (the controller's name has none)."""
    return _NUMBER.sub("", name)


SMI_EXIT_CODES = {
    2: "an argument is not valid",
    3: "the operation is not available",
    4: "no permission",
    6: "nothing was found",
    8: "a power cable of a GPU is not attached",
    9: "the driver is not loaded",
    10: "a GPU has an interrupt issue",
    12: "the NVML library was not found",
    13: "the NVML library is of another version",
    14: "the infoROM of a GPU is corrupted",
    15: "a GPU has fallen off the bus",
    255: "another error of the driver",
}
"""Exit codes of nvidia-smi(1), RETURN VALUE."""


def smi_exit(code: int) -> str:
    """Return an exit code of nvidia-smi with its meaning: `exit code 14 (the infoROM of a GPU is corrupted)`."""
    return f"exit code {code}" + (f" ({SMI_EXIT_CODES[code]})" if code in SMI_EXIT_CODES else "")
