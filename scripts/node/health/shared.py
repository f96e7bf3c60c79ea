"""What the stack's side and the nodes share: the settings of health checks, by which key a node finds its own, and what
nvidia-smi's exit codes mean."""

from __future__ import annotations

import re
from typing import TypedDict

_NUMBER = re.compile(r"-[0-9]+$")


class HealthNodes(TypedDict):
    """What each node of a nodeset must have; `nics` are names, `nic_count` is for types whose names are not known;
    `nvlinks` of each GPU, 0 where some are inactive by design."""

    gpus: int
    nvlinks: int
    nics: list[str]
    nic_count: int
    apertures: bool
    local_ssds: int


class Health(TypedDict):
    """Settings of health checks; `nodes` by what health.settings.key makes of a node's name."""

    drain: bool
    resume_after: int
    skip: list[str]
    seconds: int
    epilog: bool
    limits: dict[str, int]  # disk_free_percent, clock_seconds, ecc_errors, nvlink_errors, nic_mbps (0: none)
    nodes: dict[str, HealthNodes]


def key(name: str) -> str:
    """By which settings are kept for all nodes of a nodeset: the host name without its number; the controller's own
    name where it is a node."""
    return _NUMBER.sub("", name)


SMI_EXIT_CODES = {
    2: "an argument is not valid", 3: "the operation is not available", 4: "no permission", 6: "nothing was found",
    8: "a power cable of a GPU is not attached", 9: "the driver is not loaded", 10: "a GPU has an interrupt issue",
    12: "the NVML library was not found", 13: "the NVML library is of another version",
    14: "the infoROM of a GPU is corrupted", 15: "a GPU has fallen off the bus", 255: "another error of the driver",
}  # fmt: skip
"""Of nvidia-smi(1), RETURN VALUE."""


def smi_exit(code: int) -> str:
    """An exit code of nvidia-smi in words: `exit code 14 (the infoROM of a GPU is corrupted)`."""
    return f"exit code {code}" + (f" ({SMI_EXIT_CODES[code]})" if code in SMI_EXIT_CODES else "")
