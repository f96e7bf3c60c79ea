"""Network interfaces: whether all are there, have a link, and run at the speed that they should."""

from __future__ import annotations

from pathlib import Path

from health.outcome import Outcome, failed, in_container, ok, skipped

NET = Path("/sys/class/net")


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
