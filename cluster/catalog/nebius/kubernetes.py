"""Versions of Kubernetes that Nebius creates clusters of, and what NVIDIA drivers its node images have with each.

A dated copy for previews: `up` asks Nebius itself before it creates anything (components/nebius/preflight).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

LOOKED = "2026-09-23"
SOURCE = (
    f"ListControlPlaneVersions as seen on {LOOKED} (nebius/api, mk8s/v1/cluster_service.proto); driver presets: "
    "nebius-solutions-library, soperator/installations/example/driver_presets.tf"
)
DEFAULT = "1.35"
"""The newest but one: the newest has the fewest months of use."""
NEWEST_PRESET = "cuda13.0"


@dataclass(frozen=True, kw_only=True)
class KubernetesVersion:
    """One minor version."""

    name: str
    deprecated: bool = False
    """Whether Nebius creates no clusters of it any more; those that are up stay."""
    end_of_life: str = ""
    """Day from which Nebius upgrades clusters of it by itself, where it was given."""
    drivers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Presets of drivers, by platform; empty where they are not known."""


_HOPPER = ("gpu-l40s-a", "gpu-l40s-d", "gpu-h100-sxm", "gpu-h200-sxm")
_B200 = ("gpu-b200-sxm", "gpu-b200-sxm-a")
_NEWEST = ("gpu-b300-sxm", "gpu-rtx6000")
_ONLY_13: Mapping[str, tuple[str, ...]] = dict.fromkeys((*_HOPPER, *_B200, *_NEWEST), (NEWEST_PRESET,))

_ROWS = (
    KubernetesVersion(
        name="1.30",
        drivers=dict.fromkeys((*_HOPPER, "gpu-b200-sxm"), ("cuda12",)),
    ),
    KubernetesVersion(
        name="1.31",
        deprecated=True,
        end_of_life="2026-09-01",
        drivers={
            **dict.fromkeys(_HOPPER, ("cuda12", "cuda12.4", "cuda12.8")),
            "gpu-b200-sxm": ("cuda12", "cuda12.8"),
            "gpu-b200-sxm-a": ("cuda12.8",),
        },
    ),
    KubernetesVersion(
        name="1.32",
        drivers={**_ONLY_13, **dict.fromkeys((*_HOPPER, *_B200), ("cuda12", "cuda12.8", NEWEST_PRESET))},
    ),
    KubernetesVersion(name="1.33", drivers={**_ONLY_13, "gpu-b200-sxm-a": ("cuda12.8", NEWEST_PRESET)}),
    KubernetesVersion(name="1.34"),
    KubernetesVersion(name="1.35", drivers=_ONLY_13),
    KubernetesVersion(name="1.36", drivers=_ONLY_13),
)

VERSIONS: Mapping[str, KubernetesVersion] = {row.name: row for row in _ROWS}
"""Oldest first."""
PRESETS = ("cuda12", "cuda12.4", "cuda12.8", NEWEST_PRESET)
"""Presets of drivers that are known; Nebius adds others."""
_CUDA = ("12.9.0", "13.0.2")
"""Versions of CUDA that Soperator has images of jails and checks for (activeCheckImageTags of
helm-soperator-activechecks, 4.1.0 to 4.1.7)."""
_CUDA_13_DRIVER = 580
"""The first release of NVIDIA's driver that runs programs of CUDA 13 (docs.nvidia.com/cuda/cuda-toolkit-release-notes,
table 3)."""


def creatable() -> list[str]:
    """Versions that clusters are created of, oldest first."""
    return [one.name for one in VERSIONS.values() if not one.deprecated]


def cuda_of_preset(preset: str) -> str:
    """The version of CUDA of Soperator's images that runs with a preset of drivers."""
    return _CUDA[0] if preset.startswith("cuda12") else _CUDA[1]


def cuda_of_driver(version: str) -> str:
    """The version of CUDA of Soperator's images that runs with a release of NVIDIA's driver."""
    major = version.partition(".")[0]
    return _CUDA[0] if major.isdecimal() and int(major) < _CUDA_13_DRIVER else _CUDA[1]
