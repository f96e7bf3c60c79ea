"""GPUs, aperture devices and NICs, by the files that the kernel shows: no driver is asked, so this takes no time."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from health.outcome import Outcome, failed, in_container, ok, skipped

NET = Path("/sys/class/net")
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


def nic(names: list[str], count: int, mbps: int, *, net: Path = NET, container: bool | None = None) -> Outcome:
    """Check the NICs by name where the names are known, else by their number. `mbps`: least speed, 0 for any."""
    if in_container() if container is None else container:
        # The interfaces of a container have no hardware behind them; it must have one that is up.
        there = [path.name for path in net.iterdir() if path.name != "lo"]
        up = [name for name in there if _up(net / name)]
        return (
            ok(f"{len(up)} up") if up else failed(f"no interface is up ({', '.join(sorted(there)) or 'there is none'})")
        )
    there = sorted(path.name for path in net.iterdir() if (path / "device").exists())
    wanted = names or there
    wrong = [f"{name} is missing" for name in wanted if not (net / name).exists()]
    if not names and len(there) < count:
        wrong.append(f"{len(there)} of {count} NICs: {', '.join(there) or 'none'}")
    wrong += [f"{name} has no link" for name in wanted if (net / name).exists() and not _up(net / name)]
    speeds = {name: _speed(net / name) for name in wanted if (net / name).exists()}
    wrong += [f"{name} runs at {speed} Mbit/s, least {mbps}" for name, speed in speeds.items() if 0 < speed < mbps]
    if wrong:
        return failed(", ".join(wrong))
    if not wanted:
        return skipped("no NIC is expected")
    return ok(f"{len(wanted)} NICs up")


def _up(nic: Path) -> bool:
    """As operstates are (Documentation/ABI/testing/sysfs-class-net): drivers that report none are `unknown`."""
    try:
        return (nic / "operstate").read_text().strip() in ("up", "unknown")
    except OSError:
        return False


def _speed(nic: Path) -> int:
    """Mbit/s; 0 where the driver does not say, for which sysfs has -1 or refuses to be read."""
    try:
        return max(int((nic / "speed").read_text()), 0)
    except (OSError, ValueError):
        return 0


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
