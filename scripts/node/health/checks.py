"""Checks of a node: quick ones, which read local files, and others that may hang, each with a deadline.

The kernel's files are enough to check that GPUs, aperture devices and NICs exist; gpu.py asks the driver.
"""

import os
import re
import shutil
import stat
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from health import gpu, xids
from health import outcome as record
from health.outcome import BUSY, Outcome, failed, in_container, ok, run_program, skipped, unless_running, unsure
from system import mounts
from system.host import SetupError, side_by_side

Outcomes = dict[str, Outcome]
DIAG_SECONDS = 3600


def quick(settings: dict[str, Any]) -> Outcomes:
    """Run the checks that take milliseconds and wait for nothing: before each job, and first in every full run."""
    hardware, limits = settings["mine"], settings["limits"]
    checks: dict[str, Callable[[], Outcome]] = {
        "gpu-count": lambda: gpu_count(hardware["gpus"]),
        "aperture": lambda: (
            skipped("no aperture devices in a container")
            if hardware["apertures"] and in_container()
            else aperture(wanted=hardware["apertures"])
        ),
        "nic": lambda: nic(hardware["nics"], hardware["nic_count"], limits["nic_mbps"]),
        "mount": shared_mounts,
        "local-ssd": lambda: local_ssd(hardware["local_ssds"]),
    }
    return {kind: _run_quick(check) for kind, check in checks.items() if kind not in settings["skip"]}


def all_checks(settings: dict[str, Any]) -> Outcomes:
    """Run all checks; return the outcomes by kind."""
    found, limits, seconds = quick(settings), settings["limits"], settings["seconds"]
    if "disk" not in settings["skip"]:
        found["disk"] = _run_quick(lambda: disk(limits["disk_free_percent"]))
    parts: dict[str, Callable[[], Any]] = {}
    if "mount" not in settings["skip"]:
        parts |= {
            f"mount {path}": (lambda path=path: file_system_answers(path))
            for path in mounts.shared_targets()
            if mounts.is_mounted(path)
        }
    if "clock" not in settings["skip"]:
        parts["clock"] = lambda: clock(limits["clock_seconds"])
    if settings["mine"]["gpus"]:
        parts["gpus"] = lambda: _gpus(settings)
        parts["dcgm"] = _diag
    answers = side_by_side(
        {name: unless_running(name, check, seconds=seconds) for name, check in parts.items()}, seconds=seconds
    )
    mounted = answers.get("mount", {})
    wrong = {path: a for path, a in mounted.items() if a.get("state") != "ok" and a.get("error") != BUSY}
    if wrong and found["mount"]["state"] != "failed":
        text = ", ".join(answer.get("text") or f"{path}: {answer['error']}" for path, answer in wrong.items())
        found["mount"] = unsure(text) if all(map(_is_late, wrong.values())) else failed(text)
    if "clock" in answers:
        # If the controller does not answer, that is not a fault of this node.
        found["clock"] = answers["clock"] if "state" in answers["clock"] else skipped(answers["clock"]["error"])
    if "gpus" in answers:
        found |= {"gpu-xid": _xids(), **_driver(answers["gpus"], seconds)}
        # A late answer of DCGM is not a failure: it may be busy, and finds a lasting fault in the next run.
        found["gpu-diag"] = answers["dcgm"] if "state" in answers["dcgm"] else skipped(answers["dcgm"]["error"])
    return {kind: outcome for kind, outcome in found.items() if kind not in settings["skip"]}


def after_job(settings: dict[str, Any], job: str) -> Outcomes:
    """Check the GPUs after a job: processes that the job has left, and errors that it may have caused."""
    if not settings["mine"]["gpus"] or gpu.why_no_driver():
        return {}
    seconds = settings["seconds"]
    driver = unless_running("gpus", lambda: _gpus(settings), seconds=seconds)
    parts = {"gpus": driver, "gpu-processes": lambda: gpu.leftovers(job)}
    answers = side_by_side(parts, seconds=seconds)
    found = {"gpu-xid": _xids(), **_driver(answers["gpus"], seconds)}
    if "state" in answers["gpu-processes"]:
        found["gpu-processes"] = answers["gpu-processes"]
    return {kind: outcome for kind, outcome in found.items() if kind not in settings["skip"]}


def left(settings: dict[str, Any], job: str) -> Outcomes:
    """Check whether the processes have ended that a job left on GPUs, on a node that an epilog has drained for them."""
    answer = side_by_side({"left": lambda: gpu.leftovers(job)}, seconds=settings["seconds"])["left"]
    return {"gpu-processes": answer if "state" in answer else failed("nvidia-smi does not say whether they have ended")}


def _gpus(settings: dict[str, Any]) -> Outcomes:
    limits, hardware, before = settings["limits"], settings["mine"], _place("gpu-nvlink")
    most = {name: limits[name] for name in ("ecc_errors", "nvlink_errors")}
    # A check may run after new programs have come to a node and before their settings have.
    links = {name: hardware.get(name, 0) for name in ("nvlinks", "nvlink_gbps")}
    return gpu.gpus(hardware["gpus"], before=before, **links, **most)


def _diag() -> Outcome:
    """Run DCGM's tests of the first level once an hour. They take seconds and do not disturb jobs."""
    if gpu.why_no_driver() or not shutil.which("dcgmi"):
        return skipped(gpu.why_no_driver() or "DCGM is not installed")
    last, place = record.last_record().get("checks", {}).get("gpu-diag"), _place("gpu-diag")
    if last and time.time() - place.get("time", 0) < DIAG_SECONDS:
        return last
    found = gpu.diag(*run_program("dcgmi", "diag", "-r", "1", "-j"))
    found["place"] = {"time": time.time()}
    return found


def _xids() -> Outcome:
    # Without nvidia-smi: if it hangs, the Xids say why.
    return _run_quick(lambda: xids.xids(_place("gpu-xid")))


def _place(kind: str) -> dict[str, Any]:
    """Return the `place` that the last check of this kind has recorded (outcome.py)."""
    place = record.last_record().get("places", {}).get(kind)
    return place if isinstance(place, dict) else {}


def _driver(answer: dict[str, Any], seconds: int) -> Outcomes:
    """Return the outcomes of the checks that need the driver, or one for the error of the part that ran them."""
    if "error" not in answer:
        return answer
    if answer["error"] == BUSY:
        return {"gpu-driver": skipped(BUSY)}
    late = unsure(f"nvidia-smi did not answer in {seconds} s")
    return {"gpu-driver": late if _is_late(answer) else failed(answer["error"])}


def _is_late(answer: dict[str, Any]) -> bool:
    return str(answer.get("error", "")).startswith("no answer")


def _run_quick(check: Callable[[], Outcome]) -> Outcome:
    """Run a quick check, which fails if a file can't be read."""
    try:
        return check()
    except OSError as error:
        return failed(f"{error.filename or 'a file'}: {error.strerror}")


NET = Path("/sys/class/net")
_GPU = re.compile(r"nvidia[0-9]+")
_APERTURE = ("0x1ae0", "0x0084")  # vendor and device of A3 Mega's apertures, as in scripts/image/gpu/28-aperture.sh


def gpu_count(wanted: int, dev: Path = Path("/dev")) -> Outcome:
    """Check that every GPU has a device file. Slurm allocates those in gres.conf, whether they exist or not."""
    if not wanted:
        return skipped("no GPUs on this machine type")
    devices = {path.name for path in dev.glob("nvidia*") if _GPU.fullmatch(path.name) and path.is_char_device()}
    missing = [name for name in (f"nvidia{n}" for n in range(wanted)) if name not in devices]
    if missing:
        return failed(f"{wanted - len(missing)} of {wanted} GPUs: no device {', '.join(missing)}")
    return ok(f"{wanted} of {wanted} GPUs")


def aperture(
    pci: Path = Path("/sys/bus/pci/devices"), shown: Path = Path("/dev/aperture_devices"), *, wanted: bool
) -> Outcome:
    """Check that jobs see every aperture of this machine: without them NCCL uses plain TCP, or fails."""
    if not wanted:
        return skipped("no aperture devices on this machine type")
    ids = [(_read_text(device / "vendor"), _read_text(device / "device")) for device in pci.glob("*")]
    on_bus = ids.count(_APERTURE)
    in_shown = sum(1 for _ in shown.glob("*/resource"))
    if not on_bus:
        return failed("no aperture device on the PCI bus")
    if in_shown < on_bus:
        return failed(f"{in_shown} of {on_bus} aperture devices in {shown}")
    return ok(f"{in_shown} of {on_bus} aperture devices")


def nic(names: list[str], count: int, mbps: int, *, net: Path = NET, container: bool | None = None) -> Outcome:
    """Check the NICs by their names, or by their number if there are no names. `mbps`: the least speed, 0 for any."""
    if in_container() if container is None else container:
        # The interfaces of a container have no hardware. One of them must be up.
        interfaces = [path.name for path in net.iterdir() if path.name != "lo"]
        up = [name for name in interfaces if _is_up(net / name)]
        if up:
            return ok(f"{len(up)} up")
        return failed(f"no interface is up ({', '.join(sorted(interfaces)) or 'there is none'})")
    nics = sorted(path.name for path in net.iterdir() if (path / "device").exists())
    wanted = names or nics
    wrong = [f"{name} is missing" for name in wanted if not (net / name).exists()]
    if not names and len(nics) < count:
        wrong.append(f"{len(nics)} of {count} NICs: {', '.join(nics) or 'none'}")
    wrong += [f"{name} has no link" for name in wanted if (net / name).exists() and not _is_up(net / name)]
    speeds = {name: _speed(net / name) for name in wanted if (net / name).exists()}
    wrong += [f"{name} runs at {speed} Mbit/s, least {mbps}" for name, speed in speeds.items() if 0 < speed < mbps]
    if wrong:
        return failed(", ".join(wrong))
    if not wanted:
        return skipped("no NIC is expected")
    return ok(f"{len(wanted)} NICs up")


def _is_up(nic: Path) -> bool:
    """Return whether a NIC is up, by its operstate; drivers without one report `unknown` (sysfs-class-net)."""
    return _read_text(nic / "operstate") in ("up", "unknown")


def _speed(nic: Path) -> int:
    """Return the speed in Mbit/s; 0 if the driver reports none: sysfs has -1, or can't be read."""
    speed = _read_text(nic / "speed")
    return int(speed) if speed.isdigit() else 0


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


LOCAL_SSDS = Path("/mnt/localssd")  # scripts/image/storage/50-localssd.sh
LOCAL = ("/", "/var", "/var/log", "/var/spool/slurmd", "/tmp", str(LOCAL_SSDS))  # noqa: S108 - only read


def shared_mounts() -> Outcome:
    """Check that all shared file systems are mounted, by the kernel's table: no server is contacted."""
    wanted = mounts.shared_targets()
    missing = [path for path in wanted if not mounts.is_mounted(path)]
    if missing:
        return failed(", ".join(f"{path} is not mounted" for path in missing))
    return ok(f"{len(wanted)} file systems mounted") if wanted else skipped("no shared file systems")


def file_system_answers(path: str) -> Outcome:
    """Check that a file system answers, and accepts writes if it should. It hangs if the server is gone."""
    usage = mounts.shared_usage(path)
    if not usage["mounted"]:
        return failed(f"{path} is not mounted")
    return failed(f"{path} is read only") if usage["read_only"] else ok()


def disk(least: int, paths: tuple[str, ...] = LOCAL) -> Outcome:
    """Check that local file systems have at least `least` percent of their space and of their inodes free."""
    devices: set[int] = set()
    wrong: list[str] = []
    smallest = 100.0
    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112 - beside statvfs
            continue
        usage = mounts.disk_usage(path)
        if usage["device"] in devices or not usage["size"]:
            continue
        devices.add(usage["device"])
        if usage["read_only"]:
            wrong.append(f"{path} is read only")
        for what, free, whole in (
            ("free", usage["free"], usage["used"] + usage["free"]),
            ("of inodes free", usage["inodes_free"], usage["inodes"]),
        ):
            percent = 100 * free / whole if whole else 100.0
            smallest = min(smallest, percent)
            if percent < least:
                wrong.append(f"{path} has {percent:.1f} % {what}, least {least} %")
    return failed(", ".join(wrong)) if wrong else ok(f"{smallest:.0f} % free or more")


def local_ssd(wanted: int) -> Outcome:
    """Check that the local SSDs are mounted and that users can write there, as enroot does."""
    if not wanted:
        return skipped("no local SSDs on this machine type")
    if in_container():
        return skipped("a container has no local SSDs")
    if not mounts.is_mounted(str(LOCAL_SSDS)):
        return failed(f"{LOCAL_SSDS} is not mounted: {wanted} local SSDs")
    mode = stat.S_IMODE(LOCAL_SSDS.stat().st_mode)
    return ok(f"{wanted} local SSDs") if mode == 0o1777 else failed(f"{LOCAL_SSDS} has mode {mode:04o}, not 1777")


# slurmctld prints the time of the request (src/slurmctld/read_config.c, fill_ctld_conf).
_CONTROLLER_TIME = re.compile(r"^Configuration data as of (\S+)$", re.MULTILINE)


def clock(most: int) -> Outcome:
    """Compare the node's clock with the controller's, to a second. Raises SetupError if slurmctld does not answer."""
    before = time.time()
    code, output = run_program("scontrol", "show", "config")
    after = time.time()
    match = _CONTROLLER_TIME.search(output)
    if code or not match:
        raise SetupError("slurmctld does not answer")
    return compare_clocks(match[1], before, after, most)


def compare_clocks(printed: str, before: float, after: float, most: int) -> Outcome:
    """Compare a time that slurmctld printed, in UTC, with this node's times before and after the request."""
    controller = datetime.fromisoformat(printed).replace(tzinfo=timezone.utc).timestamp()
    # slurmctld prints whole seconds: its time was less than a second later.
    ahead = before - (controller + 1) if before > controller + 1 else min(after - controller, 0.0)
    if abs(ahead) > most:
        return unsure(f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the controller, most {most} s")
    return ok(f"within {max(abs(ahead), 1.0):.0f} s of the controller")
