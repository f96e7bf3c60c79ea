"""Advice for each kind of fault that health checks find: who must act, and how. Pure functions, which `./hpc` uses
too."""

from collections.abc import Mapping
from typing import NamedTuple

from .check_kinds import KINDS, RESUMES, may_resume, parse_reason

ADMIN, SUPPORT = "administrator", "cloud support"
_REBOOT = "./hpc nodes STACK reboot NODE"
_RECREATE = "./hpc up STACK --replace '**::NODE'"
_HOST = "If it fails again after that, report the machine's host to the cloud, and recreate the machine: " + _RECREATE
_RESUME = "./hpc nodes STACK resume NODE"
_AGAIN = f"Then measure again: ./hpc health STACK NODE --run. {_HOST}"


class Advice(NamedTuple):
    """Advice for a kind of fault. STACK and NODE are placeholders."""

    actor: str
    """Who must act: a value of cluster.findings.Actor."""
    todo: str
    note: str = ""

    def of(self, node: str) -> "Advice":
        """Return the advice for a node."""
        return self._replace(todo=self.todo.replace("NODE", node), note=self.note.replace("NODE", node))


# NVIDIA's advice: docs.nvidia.com/deploy/xid-errors and deploy/a100-gpu-mem-error-mgmt (reset for uncorrectable errors,
# exchange for rows that can't be remapped).
ADVICE: Mapping[str, Advice] = {
    "gpu-count": Advice(actor=SUPPORT, todo=_REBOOT, note=_HOST),
    "gpu-driver": Advice(actor=ADMIN, todo=_REBOOT, note=_HOST),
    "gpu-lost": Advice(actor=SUPPORT, todo=_REBOOT, note=_HOST),
    "gpu-xid": Advice(actor=ADMIN, todo=_REBOOT, note=f"docs.nvidia.com/deploy/xid-errors says what it is. {_HOST}"),
    "gpu-state": Advice(
        actor=ADMIN, todo="./hpc ssh STACK NODE -- nvidia-smi -q -d PERFORMANCE,TEMPERATURE", note=_HOST
    ),
    "gpu-ecc": Advice(actor=ADMIN, todo=_REBOOT, note=f"A boot resets the GPU. {_HOST}"),
    "gpu-memory": Advice(
        actor=SUPPORT, todo=_RECREATE, note="The GPU has to be exchanged: report the machine's host first."
    ),
    "gpu-nvlink": Advice(actor=SUPPORT, todo=_REBOOT, note=_HOST),
    "gpu-diag": Advice(actor=SUPPORT, todo=_REBOOT, note=_HOST),
    "gpu-processes": Advice(
        actor=ADMIN, todo="./hpc ssh STACK NODE -- nvidia-smi", note="End the processes that the reason names."
    ),
    "aperture": Advice(actor=SUPPORT, todo=_REBOOT, note=_HOST),
    "nic": Advice(actor=ADMIN, todo="./hpc ssh STACK NODE -- ip -br link"),
    "mount": Advice(actor=ADMIN, todo="./hpc ssh STACK NODE -- mount --all"),
    "disk": Advice(actor=ADMIN, todo="./hpc ssh STACK NODE -- df -h", note="Make room there."),
    "local-ssd": Advice(actor=ADMIN, todo=_REBOOT, note=_HOST),
    "clock": Advice(actor=ADMIN, todo="./hpc ssh STACK NODE -- timedatectl"),
    "network": Advice(actor=SUPPORT, todo=_RESUME, note=_AGAIN),
    "diag": Advice(actor=SUPPORT, todo=_RESUME, note=_AGAIN),
    "nccl": Advice(actor=SUPPORT, todo=_RESUME, note=_AGAIN),
    "fabric": Advice(actor=SUPPORT, todo=_RESUME, note=_AGAIN),
}


def advice(reason: str) -> Advice | None:
    """Return the advice for the worst fault in a node's reason; None if no health check drained the node."""
    named = [kind for kind in KINDS if kind in parse_reason(reason)]
    return ADVICE[next((kind for kind in named if kind not in RESUMES), named[0])] if named else None


def drained(node: str, reason: str) -> tuple[str, str, str] | None:
    """Return what, command and note about a node that a health check drained; None for another reason."""
    found = advice(reason)
    if found is None:
        return None
    figures = "; ".join(f"{kind}: {text}" for kind, text in parse_reason(reason).items())
    after = (
        "The health check resumes the node when it passes again"
        if may_resume(reason)
        else f"When it is mended: ./hpc nodes STACK resume {node}"
    )
    what = f"is drained by a health check, and takes no new jobs: {figures}. Who must act: {found.actor}"
    found = found.of(node)
    return what, found.todo, " ".join(filter(None, (f"{after}.", found.note)))
