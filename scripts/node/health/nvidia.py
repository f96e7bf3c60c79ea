"""What NVIDIA's driver says of the GPUs. nvidia-smi may hang where a GPU is broken: whoever calls bounds the time.

Sources: nvidia-smi(1) (options, exit codes); NVIDIA/DCGM 72fa3fe, modules/health/DcgmHealthWatch.cpp, MonitorNVLink
(recovery and replay errors fail by their difference, CRC errors from 100 a second on).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from health import gpu_report
from health.kinds import smi_exit
from health.outcome import Outcome, ask, failed, in_container, ok, skipped, warned

Smi = Callable[..., tuple[int, str]]
_LOST = re.compile(r"GPU is lost|unable to determine the device handle|fallen off the bus|Unknown Error", re.IGNORECASE)
_GONE = re.compile(r"GPU is lost")
"""Also in place of a value of the document."""
_GPU = re.compile(r"^GPU (?P<gpu>[0-9]+):")
_ERRORS = re.compile(r"Link (?P<link>[0-9]+): (?P<kind>Replay|Recovery|CRC(?: [A-Za-z]+)?) Errors: (?P<errors>[0-9]+)")
_STATUS = re.compile(r"Link (?P<link>[0-9]+): (?P<state><inactive>|[0-9.]+ GB/s)")
_JOB = re.compile(r"/job_(?P<job>[0-9]+)(?:/|$)", re.MULTILINE)
CRC_A_SECOND = 100
"""DCGM_LIMIT_MAX_NVLINK_CRC_ERROR: links correct CRC errors themselves."""
_MOST_LINKS = 6
_RXDM = ("--num_hops=", "--num_nics=")
"""Arguments of the receive data path manager, which holds all GPUs of a job in a container of its own."""


def absent() -> str:
    """Why there is no driver to ask; empty where there is one."""
    if in_container():
        return "no NVIDIA driver in a container: the GPUs are stand-ins"
    return ""


def smi(*arguments: str) -> tuple[int, str]:
    """Exit code and output of nvidia-smi."""
    return ask("nvidia-smi", *arguments)


def gpus(
    count: int,
    *,
    ecc_errors: int,
    nvlink_errors: int,
    nvlinks: int = 0,
    before: dict[str, Any] | None = None,
    smi: Smi = smi,
) -> dict[str, Outcome]:
    """All that is asked of the driver, by kind. `before`: counters of NVLink at the last run."""
    if not count:
        return {}
    if why := absent():
        return dict.fromkeys(("gpu-driver", "gpu-ecc", "gpu-memory", "gpu-state", "gpu-nvlink"), skipped(why))
    code, said = smi("-q", "-x")
    found = gpu_report.parse(said)
    if wrong := _wrong(code, said, found, count):
        return wrong
    outcomes = {
        "gpu-driver": ok(f"{len(found)} GPUs"),
        "gpu-ecc": gpu_report.ecc(found, ecc_errors),
        "gpu-memory": gpu_report.memory(found),
        "gpu-state": gpu_report.state(found, fabric=nvlinks > 0),
    }
    if count > 1:
        status, errors = smi("nvlink", "--status"), smi("nvlink", "--errorcounters")
        outcomes["gpu-nvlink"] = nvlink(status[1], errors[1], most=nvlink_errors, wanted=nvlinks, before=before or {})
    return outcomes


def _wrong(code: int, said: str, found: list[gpu_report.Gpu], count: int) -> dict[str, Outcome]:
    """What is wrong with the driver itself, from the first answer of nvidia-smi; empty if nothing is."""
    messages = gpu_report.messages(said)
    for text, pattern in ((messages, _LOST), (said, _GONE)):
        if pattern.search(text):
            return {"gpu-lost": failed(_line(text, pattern))}
    if code:
        return {"gpu-driver": failed(f"nvidia-smi ended with {smi_exit(code)}: {_first(messages)}")}
    if asked := gpu_report.needs_action(found):
        return {"gpu-driver": asked}
    if len(found) < count:
        return {"gpu-driver": failed(f"the driver lists {len(found)} of {count} GPUs")}
    return {}


def nvlink(status: str, errors: str, *, most: int, wanted: int, before: dict[str, Any], now: float = 0) -> Outcome:
    """The verdict on links, from `nvidia-smi nvlink --status` and `--errorcounters`; `wanted` active ones of each GPU,
    0 where some are inactive by design. Errors are judged by what was added since the last run: training a link at boot
    counts some."""
    links = {link: found["state"] for link, found in _links(status, _STATUS)}
    # Of a GPU whose links are all inactive it prints no link (leptonai/gpud, issue 1085).
    gpus = [found["gpu"] for line in status.splitlines() if (found := _GPU.match(line))]
    if not links and not (wanted and gpus):
        return skipped("the driver reports no NVLink")
    wrong = [f"{link} is inactive" for link, state in links.items() if wanted and state == "<inactive>"]
    for gpu in gpus if wanted else ():
        there = sum(1 for link in links if link.startswith(f"GPU {gpu} "))
        if there < wanted:
            wrong.append(f"GPU {gpu}: {there} of {wanted} links")
    now = now or time.time()
    counts: dict[str, int] = {}
    for link, found in _links(errors, _ERRORS):
        name = f"{link} {found['kind'].lower().split()[0]}"
        counts[name] = counts.get(name, 0) + int(found["errors"])
    more, noted = _added(counts, before, most, now)
    wrong += more
    if wrong:
        outcome = failed(", ".join(wrong[:_MOST_LINKS]))
    elif noted:
        outcome = warned(", ".join(noted[:_MOST_LINKS]))
    else:
        outcome = ok(f"{sum(1 for state in links.values() if state != '<inactive>')} links active")
    outcome["place"] = {"counts": counts, "time": now}
    return outcome


def _added(counts: dict[str, int], before: dict[str, Any], most: int, now: float) -> tuple[list[str], list[str]]:
    """What failed and what is worth a note among the errors that came since the last run."""
    earlier, seconds = before.get("counts", {}), max(now - before.get("time", now), 1.0)
    wrong: list[str] = []
    noted: list[str] = []
    for name, count in counts.items():
        if name not in earlier:  # the first run takes the counters alone
            continue
        # A driver that was loaded anew counts from 0.
        added = count - earlier[name] if count >= earlier[name] else count
        link, _, kind = name.rpartition(" ")
        if kind == "crc" and added / seconds >= CRC_A_SECOND:
            wrong.append(f"{link}: {added / seconds:.0f} CRC errors a second, most {CRC_A_SECOND}")
        elif kind != "crc" and added > most:
            wrong.append(f"{link}: {added} {kind} errors since the last check, most {most}")
        elif added:
            noted.append(f"{link}: {added} {kind.upper() if kind == 'crc' else kind} errors since the last check")
    return wrong, noted


def leftovers(job: str, *, smi: Smi = smi, proc: Path = Path("/proc")) -> Outcome:
    """Processes that hold a GPU and are of no job, or of the job that has just ended."""
    if why := absent():
        return skipped(why)
    code, said = smi("--query-compute-apps=pid", "--format=csv,noheader,nounits")
    if code:
        return skipped("the driver does not list processes")
    pids = [line.strip() for line in said.splitlines() if line.strip().isdigit()]
    left = [pid for pid in pids if _job(proc, pid) in ("", job) and (proc / pid).exists() and not _serves(proc, pid)]
    return failed(f"processes {', '.join(left[:8])} of no job hold GPUs") if left else ok("no process on a GPU")


def _job(proc: Path, pid: str) -> str:
    """The job whose cgroup a process is in, also after it has left; empty outside any."""
    try:
        found = _JOB.search((proc / pid / "cgroup").read_text())
    except OSError:
        return ""
    return found["job"] if found else ""


def _serves(proc: Path, pid: str) -> bool:
    """Whether a process outside any job is there for jobs: the receive data path manager, or CUDA's MPS."""
    try:
        words = (proc / pid / "cmdline").read_text(errors="replace").split("\0")
        name = (proc / pid / "comm").read_text().strip()
    except OSError:
        return False
    rxdm = all(any(word.startswith(option) for word in words) for option in _RXDM)
    return not _job(proc, pid) and (rxdm or name.startswith("nvidia-cuda-mps"))


def _links(text: str, pattern: re.Pattern[str]) -> Iterable[tuple[str, re.Match[str]]]:
    gpu = "?"
    for line in text.splitlines():
        if found := _GPU.match(line):
            gpu = found["gpu"]
        elif found := pattern.search(line):
            yield f"GPU {gpu} link {found['link']}", found


def _line(text: str, pattern: re.Pattern[str]) -> str:
    return next(line.strip() for line in text.splitlines() if pattern.search(line))[:160]


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")[:160]
