"""Health checks, as the stack's side and the nodes both need them: kinds of results, settings, nvidia-smi's exit codes.

A failed check is in the reason of the node that it drains, before its figures. Kinds stay from version to version:
programs and people search reasons for them. cluster/observe/health_results.py has who must act.
"""

import re
from typing import Literal, TypedDict, get_args

PREFIX = "hpc-health: "
"""Begins the reason of every node that a health check has drained."""
Check = Literal[
    "gpu-count", "gpu-driver", "gpu-xid", "gpu-ecc", "gpu-memory", "gpu-state", "gpu-nvlink", "gpu-diag",
    "gpu-processes", "aperture", "nic", "mount", "disk", "local-ssd", "clock",
]  # fmt: skip
"""Checks that a stack file may leave out (`slurm.health.skip`)."""
KINDS: tuple[str, ...] = (*get_args(Check)[:2], "gpu-lost", *get_args(Check)[2:], "network", "diag", "nccl", "fabric")
"""Kinds in the order in which they are shown."""
RESUMES = frozenset({"gpu-state", "gpu-processes", "nic", "mount", "disk", "clock"})
"""Kinds of faults that can be over without anybody having repaired the machine: its node is resumed when the checks
have passed again some times. Of the others a pass proves nothing: GPUs come back after a reset, and fail again; one
slow measurement is followed by a fast one when a neighbour stops."""
MACHINE = frozenset("gpu-count gpu-driver gpu-lost gpu-xid gpu-ecc gpu-memory gpu-nvlink gpu-diag nic".split())
"""Kinds of faults that a reboot may mend, or another machine."""
LONGEST = 400
"""Characters of a reason, at most; sinfo and squeue show it on one line."""
_NOT_SHOWN = re.compile(r"[^ -~]+")


def reason(failed: dict[str, str]) -> str:
    """Return the reason of a node on which these checks failed, text by kind: `hpc-health: gpu-count: 7 of 8 GPUs;
    ...`.

    Every kind is in it, also where the texts are too long for all.
    """
    known = [kind for kind in KINDS if kind in failed]
    room = max(LONGEST // max(len(known), 1), 34)
    parts = [f"{kind}: {_plain(failed[kind])}"[:room].rstrip(" :") for kind in known]
    return PREFIX + "; ".join(parts)


def parse_reason(text: str) -> dict[str, str]:
    """Return the figures of each fault that a reason names, by kind; empty where it is no reason of a health check."""
    if not text.startswith(PREFIX):
        return {}
    found = [part.partition(":") for part in text[len(PREFIX) :].split("; ")]
    return {kind.strip(): figures.strip() for kind, _, figures in found if kind.strip() in KINDS}


def kinds_of_reason(text: str) -> tuple[str, ...]:
    """Return the kinds that a reason names."""
    return tuple(parse_reason(text))


def may_resume(text: str) -> bool:
    """Return whether a node with this reason may be resumed once its checks pass."""
    named = kinds_of_reason(text)
    return bool(named) and set(named) <= RESUMES


def _plain(text: str) -> str:
    """Return a line of printable ASCII without what ends a part, and without quotes, which scontrol would take for its
    own."""
    return _NOT_SHOWN.sub(" ", text).replace(";", ",").replace('"', "").replace("'", "").replace("\\", "/").strip()


_NUMBER = re.compile(r"-[0-9]+$")


class HealthNodes(TypedDict):
    """The hardware that each node of a nodeset must have; `nics` are names, `nic_count` is for types whose names are
    not known; `nvlinks` of each GPU, 0 where some are inactive by design."""

    gpus: int
    nvlinks: int
    nics: list[str]
    nic_count: int
    apertures: bool
    local_ssds: int


class Health(TypedDict):
    """Settings of health checks; `nodes` are by `nodeset_key` of their names."""

    drain: bool
    requeue: bool
    resume_after: int
    skip: list[str]
    seconds: int
    epilog: bool
    limits: dict[str, int]  # disk_free_percent, clock_seconds, ecc_errors, nvlink_errors, nic_mbps (0: none)
    nodes: dict[str, HealthNodes]


def nodeset_key(name: str) -> str:
    """Return the key of a node's settings: its host name without the number; of the controller, its own name."""
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
    """Return an exit code of nvidia-smi in words: `exit code 14 (the infoROM of a GPU is corrupted)`."""
    return f"exit code {code}" + (f" ({SMI_EXIT_CODES[code]})" if code in SMI_EXIT_CODES else "")
