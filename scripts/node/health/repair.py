"""Which faults call for a repair of the machine by the reconcile loop: a reboot, another host, or another machine.

One finding is enough where a document of NVIDIA's says that the GPU is not to be used: those outcomes are `certain`.
Any other fault of a machine has to be found twice in one boot, five minutes apart or more: a job that has broken the
driver, or a switch that restarts, is over by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from health.kinds import MACHINE, RESUMES
from health.outcome import Outcome

CONFIRM_SECONDS = 300


def judge(before: Mapping[str, Any], found: Mapping[str, Outcome], *, now: float) -> dict[str, Any]:
    """Return what a run's record says of repair. `before` is the last record of this boot, where the node was held,
    `found` what this run has found. A pure function.

    `faults`: since when each fault of the machine is known; `repair`: those that call for one. What a pass proves
    nothing about stays until the machine has booted again: a Xid is logged once.
    """
    failed = {kind for kind, outcome in found.items() if outcome["state"] == "failed"} & MACHINE
    passed = {kind for kind in found if kind not in failed and kind in RESUMES}
    since: dict[str, float] = {kind: at for kind, at in before.get("faults", {}).items() if kind not in passed}
    since = {**dict.fromkeys(sorted(failed), now), **since}
    called = {kind for kind in before.get("repair", ()) if kind not in passed}
    called |= {kind for kind in failed if found[kind].get("certain") or now - since[kind] >= CONFIRM_SECONDS}
    return {"faults": since, "repair": sorted(called)}
