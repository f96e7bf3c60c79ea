"""Kinds of results of health checks: a failed one is in the reason of the node that it drains, before its figures.

The stack's side reads this too: cluster/observe/health/node_health.py says who must act. Kinds stay from version to
version: programs and people search reasons for them.
"""

from __future__ import annotations

import re

PREFIX = "hpc-health: "
"""Begins the reason of every node that a health check has drained."""
KINDS = (
    "gpu-count", "gpu-driver", "gpu-lost", "gpu-xid", "gpu-ecc", "gpu-memory", "gpu-state", "gpu-nvlink",
    "gpu-diag", "gpu-processes", "aperture", "nic", "mount", "disk", "local-ssd", "clock", "network", "diag", "nccl",
    "fabric",
)  # fmt: skip
"""In the order in which they are shown."""
RESUMES = frozenset({"gpu-state", "gpu-processes", "nic", "mount", "disk", "clock"})
"""Kinds of faults that can be over without anybody having repaired the machine: its node is resumed when the checks
have passed again some times. Of the others a pass proves nothing: GPUs come back after a reset, and fail again; one
slow measurement is followed by a fast one when a neighbour stops."""
LONGEST = 400
"""Characters of a reason, at most; sinfo and squeue show it on one line."""
_NOT_SHOWN = re.compile(r"[^ -~]+")


def reason(failed: dict[str, str]) -> str:
    """The reason of a node on which these checks failed, text by kind: `hpc-health: gpu-count: 7 of 8 GPUs; ...`.

    Every kind is in it, also where the texts are too long for all.
    """
    known = [kind for kind in KINDS if kind in failed]
    room = max(LONGEST // max(len(known), 1), 34)
    parts = [f"{kind}: {_plain(failed[kind])}"[:room].rstrip(" :") for kind in known]
    return PREFIX + "; ".join(parts)


def parts(text: str) -> dict[str, str]:
    """The faults that a reason names: what it says of each, by kind; empty where it is not one of a health check."""
    if not text.startswith(PREFIX):
        return {}
    found = [part.partition(":") for part in text[len(PREFIX) :].split("; ")]
    return {kind.strip(): figures.strip() for kind, _, figures in found if kind.strip() in KINDS}


def kinds(text: str) -> tuple[str, ...]:
    """The kinds that a reason names."""
    return tuple(parts(text))


def resumes(text: str) -> bool:
    """Whether a node with this reason may be resumed once its checks pass."""
    named = kinds(text)
    return bool(named) and set(named) <= RESUMES


def _plain(text: str) -> str:
    """One line of printable ASCII without what ends a part, and without quotes, which scontrol would take for its
    own."""
    return _NOT_SHOWN.sub(" ", text).replace(";", ",").replace('"', "").replace("'", "").replace("\\", "/").strip()
