"""What NVIDIA's driver says of the GPUs. nvidia-smi may hang where a GPU is broken: whoever calls bounds the time.

Sources: nvidia-smi(1) (queries, exit codes: 15 is NVML_ERROR_GPU_IS_LOST); NVIDIA GPU Memory Error Management, which
has the meaning of uncorrectable errors and of remapped rows: a pending remapping does no harm to later work, a failed
one is a reason for an exchange of the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from health.outcome import Outcome, ask, failed, in_container, ok, skipped

Smi = Callable[..., tuple[int, str]]
_LOST = re.compile(r"GPU is lost|unable to determine the device handle|fallen off the bus|Unknown Error", re.IGNORECASE)
_RESET = "GPU requires reset"  # in place of a value: nvmlErrorString of NVML_ERROR_RESET_REQUIRED
_GPU = re.compile(r"^GPU (?P<gpu>[0-9]+):")
_RECOVERY = re.compile(r"Link (?P<link>[0-9]+): Recovery Errors: (?P<errors>[0-9]+)")
_STATUS = re.compile(r"Link (?P<link>[0-9]+): (?P<state><inactive>|[0-9.]+ GB/s)")
_JOB = re.compile(r"/job_(?P<job>[0-9]+)(?:/|$)", re.MULTILINE)
NOT_REPORTED = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "")


def absent() -> str:
    """Why there is no driver to ask; empty where there is one."""
    if in_container():
        return "no NVIDIA driver in a container: the GPUs are stand-ins"
    return ""


def smi(*arguments: str) -> tuple[int, str]:
    """Exit code and output of nvidia-smi."""
    return ask("nvidia-smi", *arguments)


def gpus(count: int, *, ecc_errors: int, nvlink_errors: int, nvlinks: int = 0, smi: Smi = smi) -> dict[str, Outcome]:
    """All that is asked of the driver, by kind."""
    if not count:
        return {}
    if why := absent():
        return dict.fromkeys(("gpu-driver", "gpu-ecc", "gpu-memory", "gpu-nvlink"), skipped(why))
    fields = "index,pci.bus_id,ecc.errors.uncorrected.volatile.total"
    code, said = smi(f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    rows = csv(said, 3)
    if wrong := _wrong(code, said, rows, count):
        return wrong
    found = {"gpu-driver": ok(f"{len(rows)} GPUs"), "gpu-ecc": ecc(rows, ecc_errors)}
    remapped = "gpu_bus_id,remapped_rows.uncorrectable,remapped_rows.pending,remapped_rows.failure"
    code, said = smi(f"--query-remapped-rows={remapped}", "--format=csv,noheader,nounits")
    found["gpu-memory"] = memory(csv(said, 4)) if not code else skipped("the driver reports no remapped rows")
    if count > 1:
        status, errors = smi("nvlink", "--status"), smi("nvlink", "--errorcounters")
        found["gpu-nvlink"] = nvlink(status[1], errors[1], nvlink_errors, nvlinks)
    return found


def _wrong(code: int, said: str, rows: list[list[str]], count: int) -> dict[str, Outcome]:
    """What is wrong with the driver itself, from the first answer of nvidia-smi; empty if nothing is."""
    if _LOST.search(said):
        return {"gpu-lost": failed(_line(said, _LOST))}
    if code:
        return {"gpu-driver": failed(f"nvidia-smi ended with exit code {code}: {_first(said)}")}
    if reset := [row[0] for row in rows if _RESET in row[2]]:
        return {"gpu-driver": failed(f"GPU {', '.join(reset)} requires a reset")}
    if len(rows) < count:
        return {"gpu-driver": failed(f"the driver lists {len(rows)} of {count} GPUs")}
    return {}


def csv(text: str, width: int) -> list[list[str]]:
    """Rows of so many cells; other lines are messages."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [row for row in rows if len(row) == width]


def ecc(rows: list[list[str]], most: int) -> Outcome:
    """The verdict on uncorrectable errors since the driver was loaded; rows are index, bus id, errors."""
    counts = {row[0]: int(row[2]) for row in rows if row[2].isdigit()}
    if not counts:
        return skipped("the driver reports no ECC errors of these GPUs")
    wrong = [
        f"GPU {gpu}: {errors} uncorrectable errors, most {most}" for gpu, errors in counts.items() if errors > most
    ]
    return failed(", ".join(wrong)) if wrong else ok(f"{sum(counts.values())} uncorrectable errors")


def memory(rows: list[list[str]]) -> Outcome:
    """The verdict on remapped rows; rows are bus id, rows, pending, failure."""
    known = [row for row in rows if row[3] not in NOT_REPORTED]
    if not known:
        return skipped("the driver reports no remapped rows")
    wrong = [f"GPU {bus}: a row could not be remapped" for bus, _, _, failure in known if _yes(failure)]
    if wrong:
        return failed(", ".join(wrong))
    pending = [bus for bus, _, waits, _ in known if _yes(waits)]
    return ok(f"remapped at the next reset: {', '.join(pending)}" if pending else "no row failed")


def nvlink(status: str, errors: str, most: int, wanted: int) -> Outcome:
    """The verdict on links, from `nvidia-smi nvlink --status` and `--errorcounters`; `wanted` active ones of each GPU,
    0 where some are inactive by design."""
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
    counted = [(link, int(found["errors"])) for link, found in _links(errors, _RECOVERY)]
    wrong += [f"{link}: {count} recovery errors, most {most}" for link, count in counted if count > most]
    return (
        failed(", ".join(wrong))
        if wrong
        else ok(f"{sum(1 for state in links.values() if state != '<inactive>')} links active")
    )


def leftovers(job: str, *, smi: Smi = smi, proc: Path = Path("/proc")) -> Outcome:
    """Processes that hold a GPU and are of no job, or of the job that has just ended."""
    if why := absent():
        return skipped(why)
    code, said = smi("--query-compute-apps=pid", "--format=csv,noheader,nounits")
    if code:
        return skipped("the driver does not list processes")
    pids = [line.strip() for line in said.splitlines() if line.strip().isdigit()]
    left = [pid for pid in pids if _job(proc, pid) in ("", job) and (proc / pid).exists()]
    return failed(f"processes {', '.join(left[:8])} of no job hold GPUs") if left else ok("no process on a GPU")


def _job(proc: Path, pid: str) -> str:
    """The job whose cgroup a process is in, also after it has left; empty outside any."""
    try:
        found = _JOB.search((proc / pid / "cgroup").read_text())
    except OSError:
        return ""
    return found["job"] if found else ""


def _links(text: str, pattern: re.Pattern[str]) -> Iterable[tuple[str, re.Match[str]]]:
    gpu = "?"
    for line in text.splitlines():
        if found := _GPU.match(line):
            gpu = found["gpu"]
        elif found := pattern.search(line):
            yield f"GPU {gpu} link {found['link']}", found


def _yes(value: str) -> bool:
    return value.lower() in ("yes", "1")


def _line(text: str, pattern: re.Pattern[str]) -> str:
    return next(line.strip() for line in text.splitlines() if pattern.search(line))[:160]


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")[:160]
