"""All checks of a node: quick ones, which ask nobody, and those that may hang, each with a deadline."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any

from health import clock, devices, gpu, record, storage
from health.outcome import BUSY, Outcome, ask, failed, in_container, once, skipped, unsure
from side_by_side import side_by_side
from system import disk_usage
from system.mounts import mounted

Outcomes = dict[str, Outcome]
DIAG_SECONDS = 3600


def quick(settings: dict[str, Any]) -> Outcomes:
    """Checks that take milliseconds and wait for nobody: before each job, and as the first part of every run."""
    mine, limits = settings["mine"], settings["limits"]
    found: dict[str, Callable[[], Outcome]] = {
        "gpu-count": lambda: devices.gpu_count(mine["gpus"]),
        "aperture": lambda: (
            skipped("no aperture devices in a container")
            if mine["apertures"] and in_container()
            else devices.aperture(wanted=mine["apertures"])
        ),
        "nic": lambda: devices.nic(mine["nics"], mine["nic_count"], limits["nic_mbps"]),
        "mount": storage.mounts,
        "local-ssd": lambda: storage.local_ssd(mine["local_ssds"]),
    }
    return {kind: _bounded(check) for kind, check in found.items() if kind not in settings["skip"]}


def all_checks(settings: dict[str, Any]) -> Outcomes:
    """Every check, by kind."""
    found, limits, seconds = quick(settings), settings["limits"], settings["seconds"]
    if "disk" not in settings["skip"]:
        found["disk"] = _bounded(lambda: storage.disk(limits["disk_free_percent"]))
    parts: dict[str, Callable[[], Any]] = {}
    if "mount" not in settings["skip"]:
        parts |= {
            f"mount {path}": (lambda path=path: storage.answers(path)) for path in disk_usage.mounts() if mounted(path)
        }
    if "clock" not in settings["skip"]:
        parts["clock"] = lambda: clock.clock(limits["clock_seconds"])
    if settings["mine"]["gpus"]:
        parts["gpus"] = lambda: _gpus(settings)
        parts["dcgm"] = _diag
    answers = side_by_side({name: once(name, check, seconds=seconds) for name, check in parts.items()}, seconds=seconds)
    wrong = {path: one for path, one in answers.get("mount", {}).items() if not _well(one)}
    if wrong and found["mount"]["state"] != "failed":
        text = ", ".join(_said(one) or f"{path}: {one['error']}" for path, one in wrong.items())
        found["mount"] = unsure(text) if all(_late(one) for one in wrong.values()) else failed(text)
    if "clock" in answers:
        # A controller that does not answer is no fault of this node.
        found["clock"] = answers["clock"] if "state" in answers["clock"] else skipped(answers["clock"]["error"])
    if "gpus" in answers:
        found |= {"gpu-xid": _xids(), **_driver(answers["gpus"], seconds)}
        # One that is late has other work; what it looks for does not pass.
        found["gpu-diag"] = answers["dcgm"] if "state" in answers["dcgm"] else skipped(answers["dcgm"]["error"])
    return {kind: one for kind, one in found.items() if kind not in settings["skip"]}


def after_job(settings: dict[str, Any], job: str) -> Outcomes:
    """Checks of GPUs after a job: what it has left there, and errors that it may have met."""
    if not settings["mine"]["gpus"] or gpu.absent():
        return {}
    seconds = settings["seconds"]
    parts = {
        "gpus": once("gpus", lambda: _gpus(settings), seconds=seconds), "gpu-processes": lambda: gpu.leftovers(job),
    }  # fmt: skip
    answers = side_by_side(parts, seconds=seconds)
    found = {"gpu-xid": _xids(), **_driver(answers["gpus"], seconds)}
    if "state" in answers["gpu-processes"]:
        found["gpu-processes"] = answers["gpu-processes"]
    return {kind: one for kind, one in found.items() if kind not in settings["skip"]}


def left(settings: dict[str, Any], job: str) -> Outcomes:
    """Whether processes that a job left on GPUs are still there; for a node that an epilog has drained for them."""
    answer = side_by_side({"left": lambda: gpu.leftovers(job)}, seconds=settings["seconds"])["left"]
    return {"gpu-processes": answer if "state" in answer else failed("nvidia-smi does not say whether they have ended")}


def _gpus(settings: dict[str, Any]) -> Outcomes:
    limits, mine = settings["limits"], settings["mine"]
    return gpu.gpus(
        mine["gpus"], ecc_errors=limits["ecc_errors"], nvlink_errors=limits["nvlink_errors"],
        nvlinks=mine.get("nvlinks", 0), before=_place("gpu-nvlink"),
    )  # fmt: skip


def _diag() -> Outcome:
    """DCGM's tests of the first level, which take seconds and leave jobs alone: once an hour."""
    if gpu.absent() or not shutil.which("dcgmi"):
        return skipped(gpu.absent() or "DCGM is not installed")
    last, place = record.last().get("checks", {}).get("gpu-diag"), _place("gpu-diag")
    if last and time.time() - place.get("time", 0) < DIAG_SECONDS:
        return last
    found = gpu.diag(*ask("dcgmi", "diag", "-r", "1", "-j"))
    found["place"] = {"time": time.time()}
    return found


def _xids() -> Outcome:
    """Xids since the last run. Here, and not beside nvidia-smi: where it hangs, they say why."""
    return _bounded(lambda: gpu.xids(_place("gpu-xid")))


def _place(kind: str) -> dict[str, Any]:
    """What the last run left for the next one's check of this kind."""
    found = record.last().get("places", {}).get(kind)
    return found if isinstance(found, dict) else {}


def _driver(answer: dict[str, Any], seconds: int) -> Outcomes:
    """Outcomes of the driver, or its silence as one."""
    if "error" not in answer:
        return answer
    if answer["error"] == BUSY:
        return {"gpu-driver": skipped(BUSY)}
    late = unsure(f"nvidia-smi did not answer in {seconds} s")
    return {"gpu-driver": late if _late(answer) else failed(answer["error"])}


def _late(one: dict[str, Any]) -> bool:
    return str(one.get("error", "")).startswith("no answer")


def _well(one: dict[str, str]) -> bool:
    return one.get("state") == "ok" or one.get("error") == BUSY


def _said(one: dict[str, str]) -> str:
    return one.get("text", "")


def _bounded(check: Callable[[], Outcome]) -> Outcome:
    """What a quick check found; a file that can't be read fails it."""
    try:
        return check()
    except OSError as error:
        return failed(f"{error.filename or 'a file'}: {error.strerror}")
