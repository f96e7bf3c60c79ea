"""GPUs that Compute Engine attaches to machine types without GPUs of their own."""

from dataclasses import dataclass

from cluster.catalog import zones

_DOCS = "cloud.google.com/compute/docs/gpus"


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    type: str
    """Slurm's gres type, and the type in the stack file."""
    name: str
    """Accelerator type of Compute Engine."""
    counts: tuple[int, ...]
    """How many of them one machine can have."""
    open_driver: bool
    """Whether NVIDIA's open kernel modules support it: GPUs before Turing need the proprietary ones (their README)."""
    zones: tuple[str, ...] = ()
    """Zones that have it; empty if unknown."""
    source: str = _DOCS


_ROWS = (
    Accelerator(type="t4", name="nvidia-tesla-t4", counts=(1, 2, 4), open_driver=True, zones=zones.T4),
    Accelerator(type="v100", name="nvidia-tesla-v100", counts=(1, 2, 4, 8), open_driver=False),
    Accelerator(type="p4", name="nvidia-tesla-p4", counts=(1, 2, 4), open_driver=False, zones=zones.P4),
    Accelerator(type="p100", name="nvidia-tesla-p100", counts=(1, 2, 4), open_driver=False),
)

ACCELERATORS: dict[str, Accelerator] = {row.type: row for row in _ROWS}
