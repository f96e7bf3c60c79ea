"""GPUs and aperture devices, by the files that the kernel shows: no driver is asked, so this takes no time."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from health.outcome import Outcome, failed, ok, skipped

_GPU = re.compile(r"nvidia[0-9]+")
_APERTURE = ("0x1ae0", "0x0084")  # vendor and device of A3 Mega's apertures, as in scripts/image/gpu/28-aperture.sh


def gpu_count(wanted: int, dev: Path = Path("/dev")) -> Outcome:
    """Whether every GPU has a device file; Slurm gives jobs those that gres.conf names, whether they are there or
    not."""
    if not wanted:
        return skipped("no GPUs on this machine type")
    there = {path.name for path in dev.glob("nvidia*") if _GPU.fullmatch(path.name) and _is_device(path)}
    missing = [name for name in (f"nvidia{n}" for n in range(wanted)) if name not in there]
    if missing:
        return failed(f"{wanted - len(missing)} of {wanted} GPUs: no device {', '.join(missing)}")
    return ok(f"{wanted} of {wanted} GPUs")


def aperture(
    pci: Path = Path("/sys/bus/pci/devices"), shown: Path = Path("/dev/aperture_devices"), *, wanted: bool
) -> Outcome:
    """Whether every aperture of this machine is shown to jobs: without them NCCL uses plain TCP, or fails."""
    if not wanted:
        return skipped("no aperture devices on this machine type")
    there = sum((_text(device / "vendor"), _text(device / "device")) == _APERTURE for device in pci.glob("*"))
    found = sum(1 for _ in shown.glob("*/resource"))
    if not there:
        return failed("no aperture device on the PCI bus")
    if found < there:
        return failed(f"{found} of {there} aperture devices in {shown}")
    return ok(f"{found} of {there} aperture devices")


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
