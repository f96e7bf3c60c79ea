"""What the stack's side and the nodes share: the settings of health checks, and by which key a node finds its own."""

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
