"""Checks of GPUs by what NVIDIA's driver, nvidia-smi and DCGM report. A value that they do not report is not checked.

nvidia-smi may hang on a broken GPU, so that the caller bounds the time.

Sources: nvidia-smi(1) (options, exit codes); documents of drivers 470 to 595 in influxdata/telegraf,
plugins/inputs/nvidia_smi/testdata; NVIDIA GPU Memory Error Management (a failed remapping and SRAM errors above the
threshold are reasons to replace the GPU; a pending remapping or retirement takes effect at the next reset, and is
harmless until then). Of NVIDIA/DCGM 72fa3fe: common/DcgmGPUHardwareLimits.h; modules/health/DcgmHealthWatch.cpp
(MonitorNVLink: recovery and replay errors fail by their difference, CRC errors from 100 a second on; BuildXidMappings:
which Xids fail and which warn); dcgmlib/src/DcgmKmsgReader.cpp (the line of a Xid);
testing/python3/dcgm_diag_schema.json and dcgmlib/dcgm_errors.h (diag, severities). Xids:
docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, read 2026-11-23. /dev/kmsg:
Documentation/ABI/testing/dev-kmsg of the kernel.
"""

import json
import os
import re
import shutil
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from health.check_kinds import smi_exit
from health.outcome import Outcome, certain, failed, in_container, ok, run_program, skipped, unsure, warned

REMAPPED_MOST = 511
"""DCGM_LIMIT_MAX_ROW_REMAP_UNCORRECTABLE is 512: no row is left to remap to."""
RETIRED_MOST = 62
"""DCGM_LIMIT_MAX_RETIRED_PAGES is 63; GPUs before Ampere, T4 for one, retire pages."""
_ISOLATE, _RESET = 2, 6
"""DCGM_ERROR_ISOLATE and DCGM_ERROR_RESET: the GPU must not be used. Others: monitor, triage, configure."""
_NEEDS_RESET = "GPU requires reset"  # printed in place of a value: nvmlErrorString of NVML_ERROR_RESET_REQUIRED
_DOCUMENT = re.compile(r"(?:<\?xml.*?)?(?P<root><nvidia_smi_log>.*</nvidia_smi_log>)", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]+")
_NOT_REPORTED = ("", "N/A", "[N/A]", "Not Supported", "Unknown Error")
_SLOWED = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "hw_power_brake_slowdown": "power brake",
}


class GpuReading(NamedTuple):
    """A GPU in the document of `nvidia-smi -q -x`."""

    number: int
    """Its number in nvidia-smi, in the order of bus ids."""
    bus: str
    element: ET.Element

    def text(self, path: str) -> str:
        """Return the text of an element; empty if it is not reported."""
        text = (self.element.findtext(path) or "").strip()
        return "" if text in _NOT_REPORTED else text

    def number_at(self, path: str) -> int | None:
        """Return the number at the beginning of an element's text; None if there is none."""
        match = _NUMBER.match(self.text(path))
        return int(match[0]) if match else None

    def total(self, path: str, word: str) -> int | None:
        """Return the sum of the children whose name contains the word; None if none is a number."""
        parent = self.element.find(path)
        matches = [_NUMBER.fullmatch((child.text or "").strip()) for child in parent or () if word in child.tag]
        return _sum([int(match[0]) if match else None for match in matches])


def _sum(values: list[int | None]) -> int | None:
    """Return the sum of the numbers in `values`; None if there are none."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def parse_gpus(text: str) -> list[GpuReading]:
    """Return the GPUs of the document, which messages may surround; none if there is no document."""
    match = _DOCUMENT.search(text)
    try:
        root = ET.fromstring(match["root"] if match else "")  # noqa: S314 - printed by the machine's own driver
    except ET.ParseError:
        return []
    return [GpuReading(number, element.get("id", "?"), element) for number, element in enumerate(root.findall("gpu"))]


def needs_action(gpus: list[GpuReading]) -> Outcome | None:
    """Return a failure if the driver requests a reset or another action; None if it requests nothing."""
    requests: list[str] = []
    for gpu in gpus:
        action = gpu.text("gpu_recovery_action")
        if any(_NEEDS_RESET in (child.text or "") for child in gpu.element.iter()) or _yes(
            gpu, "gpu_reset_status/reset_required"
        ):
            requests.append(f"GPU {gpu.number} requires a reset")
        elif action not in ("", "None"):
            requests.append(f"GPU {gpu.number}: the driver asks for {action}")
    return failed(", ".join(requests)) if requests else None


def ecc_errors_outcome(gpus: list[GpuReading], most: int) -> Outcome:
    """Check the uncorrectable errors since the driver was loaded."""
    totals = {gpu.number: gpu.total("ecc_errors/volatile", "uncorrectable") for gpu in gpus}
    counts = {number: total for number, total in totals.items() if total is not None}
    if not counts:
        return skipped("the driver reports no ECC errors of these GPUs")
    wrong = [f"GPU {n}: {count} uncorrectable errors, most {most}" for n, count in counts.items() if count > most]
    return failed(", ".join(wrong)) if wrong else ok(f"{sum(counts.values())} uncorrectable errors")


def memory_outcome(gpus: list[GpuReading]) -> Outcome:
    """Check remapped rows, retired pages, and the errors of SRAM over its lifetime."""
    wrong: list[str] = []
    pending: list[str] = []
    is_reported = False
    causes = ("multiple_single_bit_retirement", "double_bit_retirement")
    for gpu in gpus:
        rows = gpu.number_at("remapped_rows/remapped_row_unc")
        pages = _sum([gpu.number_at(f"retired_pages/{cause}/retired_count") for cause in causes])
        is_reported = is_reported or rows is not None or pages is not None
        if _yes(gpu, "remapped_rows/remapped_row_failure"):
            wrong.append(f"GPU {gpu.bus}: a row could not be remapped")
        if rows is not None and rows > REMAPPED_MOST:
            wrong.append(f"GPU {gpu.bus}: {rows} remapped rows, most {REMAPPED_MOST}")
        if pages is not None and pages > RETIRED_MOST:
            wrong.append(f"GPU {gpu.bus}: {pages} retired pages, most {RETIRED_MOST}")
        if _yes(gpu, "ecc_errors/aggregate/sram_threshold_exceeded"):
            wrong.append(f"GPU {gpu.bus}: uncorrectable errors of SRAM are above NVIDIA's threshold")
        if _yes(gpu, "remapped_rows/remapped_row_pending") or _yes(gpu, "retired_pages/pending_retirement"):
            pending.append(gpu.bus)
    if wrong:
        return certain(", ".join(wrong))
    if pending:
        return warned(f"memory is remapped or retired at the next reset: {', '.join(pending)}")
    return ok("no row failed") if is_reported else skipped("the driver reports no remapped rows")


def gpu_state(gpus: list[GpuReading], *, fabric: bool) -> Outcome:
    """Check clocks, temperature, PCIe and persistence mode; with `fabric` also the registration with NVSwitches."""
    widths = [gpu.number_at("pci/pci_gpu_link_info/link_widths/current_link_width") or 0 for gpu in gpus]
    now: list[str] = []
    wrong: list[str] = []
    notes: list[str] = []
    for gpu, width in zip(gpus, widths, strict=True):
        now += [f"GPU {gpu.number}: {what}" for what in (*_slowed(gpu), *_too_hot(gpu))]
        if width < max(widths):
            wrong.append(f"GPU {gpu.number}: PCIe x{width}, others x{max(widths)}")
        registered, status = gpu.text("fabric/state"), gpu.text("fabric/status")
        if fabric and registered not in ("", "Completed"):
            now.append(f"GPU {gpu.number}: fabric state {registered}")
        elif fabric and registered and status not in ("", "Success"):
            wrong.append(f"GPU {gpu.number}: fabric status {status}")
        if gpu.text("persistence_mode") == "Disabled":
            notes.append(f"GPU {gpu.number}: persistence mode is off")
    if wrong:
        return failed(", ".join([*wrong, *now]))
    if now:
        return unsure(", ".join(now))
    if notes:
        return warned(", ".join(notes))
    hottest = max((gpu.number_at("temperature/gpu_temp") or 0 for gpu in gpus), default=0)
    return ok(f"{hottest} C at most") if hottest else skipped("the driver reports no temperature")


def diag(code: int, output: str) -> Outcome:
    """Return the outcome of a diagnostic of DCGM, by its exit code and output.

    A failed test whose severity is neither isolate nor reset is a warning.
    """
    try:
        document = json.loads(output[output.index("{") :])
        report = next(value for name, value in document.items() if name.startswith("DCGM"))
        tests = [test for category in report["test_categories"] for test in category["tests"]]
        results = [(str(test["name"]), result) for test in tests for result in test["results"]]
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return skipped(f"dcgmi diag ended with exit code {code} and without a report")
    wrong: dict[str, bool] = {}
    for name, result in results:
        if str(result.get("status", "")).lower() != "fail":
            continue
        entity = result.get("entity_id", result.get("gpu_id", ""))
        notes = [note for note in result.get("warnings") or () if isinstance(note, dict)]
        text = "; ".join(str(note.get("warning", "")) for note in notes)[:160]
        severe = not notes or any(note.get("error_severity", _ISOLATE) in (_ISOLATE, _RESET) for note in notes)
        wrong[f"{name}{f' of GPU {entity}' if entity != '' else ''}: {text or 'failed'}"] = severe
    if any(wrong.values()):
        return failed(", ".join(text for text, severe in wrong.items() if severe))
    return warned(", ".join(wrong)) if wrong else ok(f"{len(tests)} tests of DCGM")


def _slowed(gpu: GpuReading) -> Iterator[str]:
    """Yield the reasons why the hardware slows the clocks. Up to driver 530 the elements are named `throttle`."""
    for name in ("event", "throttle"):
        for reason, words in _SLOWED.items():
            if gpu.text(f"clocks_{name}_reasons/clocks_{name}_reason_{reason}") == "Active":
                yield words


def _too_hot(gpu: GpuReading) -> Iterator[str]:
    """Yield the temperatures at which the GPU slows its clocks."""
    for what, name, most in (("", "gpu_temp", "gpu_temp_slow"), (" memory", "memory_temp", "gpu_temp_max_mem")):
        degrees, limit = gpu.number_at(f"temperature/{name}"), gpu.number_at(f"temperature/{most}_threshold")
        if degrees is not None and limit is not None and degrees >= limit:
            yield f"{degrees} C{what}, slowed from {limit} C on"
    # Hopper reports the distance to the limit instead.
    margin = gpu.number_at("temperature/gpu_temp_tlimit")
    if margin is not None and margin <= 0:
        yield f"{gpu.text('temperature/gpu_temp')}, at its limit"


def _yes(gpu: GpuReading, path: str) -> bool:
    return gpu.text(path) == "Yes"


Smi = Callable[..., tuple[int, str]]
_LOST = re.compile(r"GPU is lost|unable to determine the device handle|fallen off the bus|Unknown Error", re.IGNORECASE)
_LOST_GPU = re.compile(r"GPU is lost")
"""Message of nvidia-smi for a lost GPU. It may stand in place of a value of the document."""
_GPU = re.compile(r"^GPU (?P<gpu>[0-9]+):")
_ERRORS = re.compile(r"Link (?P<link>[0-9]+): (?P<kind>Replay|Recovery|CRC(?: [A-Za-z]+)?) Errors: (?P<errors>[0-9]+)")
_STATUS = re.compile(r"Link (?P<link>[0-9]+): (?P<state><inactive>|[0-9.]+ GB/s)")
_JOB = re.compile(r"/job_(?P<job>[0-9]+)(?:/|$)", re.MULTILINE)
CRC_A_SECOND = 100
"""DCGM_LIMIT_MAX_NVLINK_CRC_ERROR: links correct fewer CRC errors themselves."""
_MOST_LINKS = 6
_RXDM = ("--num_hops=", "--num_nics=")
"""Arguments of the receive data path manager, which holds all GPUs of a job from a container outside the job."""


def why_no_driver() -> str:
    """Return why this machine has no driver; empty if it has, or should have, one."""
    if in_container() and not shutil.which("nvidia-smi"):
        return "no NVIDIA driver in a container: the GPUs are stand-ins"
    return ""


def nvidia_smi(*arguments: str) -> tuple[int, str]:
    """Run nvidia-smi; return its exit code and its output."""
    return run_program("nvidia-smi", *arguments)


def gpus(
    count: int,
    *,
    ecc_errors: int,
    nvlink_errors: int,
    nvlinks: int = 0,
    before: dict[str, Any] | None = None,
    smi: Smi = nvidia_smi,
) -> dict[str, Outcome]:
    """Run all checks that need the driver; return outcomes by kind. `before`: NVLink's counters at the last run."""
    if not count:
        return {}
    if why := why_no_driver():
        return dict.fromkeys(("gpu-driver", "gpu-ecc", "gpu-memory", "gpu-state", "gpu-nvlink"), skipped(why))
    code, output = smi("-q", "-x")
    listed = parse_gpus(output)
    if failures := _driver_failures(code, output, listed, count):
        return failures
    outcomes = {
        "gpu-driver": ok(f"{len(listed)} GPUs"),
        "gpu-ecc": ecc_errors_outcome(listed, ecc_errors),
        "gpu-memory": memory_outcome(listed),
        "gpu-state": gpu_state(listed, fabric=nvlinks > 0),
    }
    if count > 1:
        status, errors = smi("nvlink", "--status"), smi("nvlink", "--errorcounters")
        outcomes["gpu-nvlink"] = nvlink(status[1], errors[1], most=nvlink_errors, expected=nvlinks, before=before or {})
    return outcomes


def _driver_failures(code: int, output: str, listed: list[GpuReading], count: int) -> dict[str, Outcome]:
    """Return failures of the driver itself, by the output of `nvidia-smi -q -x`; empty if there are none."""
    messages = _DOCUMENT.sub("", output)
    for text, pattern in ((messages, _LOST), (output, _LOST_GPU)):
        if pattern.search(text):
            line = next(line.strip() for line in text.splitlines() if pattern.search(line))
            return {"gpu-lost": certain(line[:160])}
    if code:
        first = next((line.strip() for line in messages.splitlines() if line.strip()), "no message")
        return {"gpu-driver": failed(f"nvidia-smi ended with {smi_exit(code)}: {first[:160]}")}
    if request := needs_action(listed):
        return {"gpu-driver": request}
    if len(listed) < count:
        return {"gpu-driver": failed(f"the driver lists {len(listed)} of {count} GPUs")}
    return {}


def nvlink(status: str, errors: str, *, most: int, expected: int, before: dict[str, Any], now: float = 0) -> Outcome:
    """Check links by `nvidia-smi nvlink --status` and `--errorcounters`.

    `expected` is the number of active links per GPU, 0 if some are inactive by design. Only errors since the last run
    count, because the training of a link at boot causes some.
    """
    links = {link: match["state"] for link, match in _links(status, _STATUS)}
    # For a GPU whose links are all inactive, nvidia-smi prints no link (leptonai/gpud, issue 1085).
    gpus = [match["gpu"] for line in status.splitlines() if (match := _GPU.match(line))]
    if not links and not (expected and gpus):
        return skipped("the driver reports no NVLink")
    inactive = [f"{link} is inactive" for link, state in links.items() if expected and state == "<inactive>"]
    for gpu in gpus if expected else ():
        listed = sum(1 for link in links if link.startswith(f"GPU {gpu} "))
        if listed < expected:
            inactive.append(f"GPU {gpu}: {listed} of {expected} links")
    now = now or time.time()
    counts: dict[str, int] = {}
    for link, match in _links(errors, _ERRORS):
        name = f"{link} {match['kind'].lower().split()[0]}"
        counts[name] = counts.get(name, 0) + int(match["errors"])
    wrong, notes = _new_errors(counts, before, most, now)
    if inactive:
        outcome = certain(", ".join([*inactive, *wrong][:_MOST_LINKS]))
    elif wrong:
        outcome = failed(", ".join(wrong[:_MOST_LINKS]))
    elif notes:
        outcome = warned(", ".join(notes[:_MOST_LINKS]))
    else:
        outcome = ok(f"{sum(1 for state in links.values() if state != '<inactive>')} links active")
    outcome["place"] = {"counts": counts, "time": now}
    return outcome


def _new_errors(counts: dict[str, int], before: dict[str, Any], most: int, now: float) -> tuple[list[str], list[str]]:
    """Return the errors since the last run: those that fail the check, and those for a warning."""
    earlier, seconds = before.get("counts", {}), max(now - before.get("time", now), 1.0)
    wrong: list[str] = []
    notes: list[str] = []
    for name, count in counts.items():
        if name not in earlier:  # the first run only records the counters
            continue
        # The counters start at 0 when the driver is loaded again.
        added = count - earlier[name] if count >= earlier[name] else count
        link, _, kind = name.rpartition(" ")
        if kind == "crc" and added / seconds >= CRC_A_SECOND:
            wrong.append(f"{link}: {added / seconds:.0f} CRC errors a second, most {CRC_A_SECOND}")
        elif kind != "crc" and added > most:
            wrong.append(f"{link}: {added} {kind} errors since the last check, most {most}")
        elif added:
            notes.append(f"{link}: {added} {kind.upper() if kind == 'crc' else kind} errors since the last check")
    return wrong, notes


def leftovers(job: str, *, smi: Smi = nvidia_smi, proc: Path = Path("/proc")) -> Outcome:
    """Check that no process outside a job, or of the job that has just ended, holds a GPU."""
    if why := why_no_driver():
        return skipped(why)
    code, output = smi("--query-compute-apps=pid", "--format=csv,noheader,nounits")
    if code:
        return skipped("the driver does not list processes")
    pids = [line.strip() for line in output.splitlines() if line.strip().isdigit()]
    left = [pid for pid in pids if _job(proc, pid) in ("", job) and (proc / pid).exists() and not _serves(proc, pid)]
    return failed(f"processes {', '.join(left[:8])} of no job hold GPUs") if left else ok("no process on a GPU")


def _job(proc: Path, pid: str) -> str:
    """Return the job whose cgroup a process is in, also after the end of the job; empty outside of jobs."""
    try:
        match = _JOB.search((proc / pid / "cgroup").read_text())
    except OSError:
        return ""
    return match["job"] if match else ""


def _serves(proc: Path, pid: str) -> bool:
    """Return whether a process outside of jobs serves jobs: the receive data path manager, or CUDA's MPS."""
    try:
        words = (proc / pid / "cmdline").read_text(errors="replace").split("\0")
        name = (proc / pid / "comm").read_text().strip()
    except OSError:
        return False
    rxdm = all(any(word.startswith(option) for word in words) for option in _RXDM)
    return not _job(proc, pid) and (rxdm or name.startswith("nvidia-cuda-mps"))


def _links(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the name of a link, and the match, for each line of a link in the output of `nvidia-smi nvlink`."""
    gpu = "?"
    for line in text.splitlines():
        if match := _GPU.match(line):
            gpu = match["gpu"]
        elif match := pattern.search(line):
            yield f"GPU {gpu} link {match['link']}", match


FATAL = {
    46: "the GPU stopped processing",
    48: "double bit ECC error",
    62: "a microcontroller of the GPU halted",
    64: "a row or page could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    95: "uncontained memory error",
    109: "context switch timeout",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    136: "NVLink training failed",
    140: "unrecovered ECC error",
    143: "the GPU could not be initialized",
    158: "fatal timeout",
}
"""Xids whose immediate action in NVIDIA's catalog is RESET_GPU, RESTART_BM or a workflow that begins with either, on
GPUs from A100 on. Most others, but for WARNING and 154, are faults of an application."""
WARNING = {
    63: "a row or page is remapped at the next reset",
    94: "contained memory error",
    156: "a resource is retired at the next reset",
    157: "a resource could not be retired",
}
RECOVERY = 154
"""The Xid by which drivers from 565 on report the action that another Xid requires: `GPU recovery action changed from
0x0 (None) to 0x2 (Node Reboot Required)`."""
_RECOVERY = re.compile(r"changed from .* to \S+ \((?P<action>[A-Za-z0-9 ]+)\)")
_REQUIRED = ("GPU Reset Required", "Node Reboot Required", "Drain and Reset")
KMSG = Path("/dev/kmsg")
BOOT = Path("/proc/sys/kernel/random/boot_id")
_RECORD = re.compile(r"[0-9]+,(?P<sequence>[0-9]+),[0-9]+,[^;]*;(?P<text>.*)")
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9A-Fa-f:.]+)\): (?P<number>[0-9]+),(?P<rest>.*)")
_PROCESS = re.compile(r"\bpid='?(?P<pid>[0-9]+)")
_MOST = 5


def xids(before: dict[str, Any], kmsg: Path = KMSG, boot: Path = BOOT) -> Outcome:
    """Check the Xids in the kernel log since the position `before`; the outcome has the new position."""
    if in_container():
        return skipped("a container has no kernel log of its own")
    boot_id = boot.read_text().strip()
    # The very first run only records the position: earlier Xids were handled already, or are unknown.
    since = int(before.get("sequence", -1)) if before.get("boot") == boot_id else -1
    last = since
    matches: list[re.Match[str]] = []
    for record in filter(None, map(_RECORD.match, _kernel_lines(kmsg))):  # continuation lines have no number
        sequence = int(record["sequence"])
        last = max(last, sequence)
        if before and sequence > since and (xid := _XID.search(record["text"])):
            matches.append(xid)
    if texts := _xid_texts(FATAL, matches):
        outcome = certain(", ".join(texts))
    elif texts := _xid_texts(WARNING, matches):
        outcome = warned(", ".join(texts))
    else:
        outcome = ok(f"{len(matches)} Xids, none of a broken GPU")
    outcome["place"] = {"boot": boot_id, "sequence": last}
    return outcome


def _xid_texts(meanings: dict[int, str], xids: list[re.Match[str]]) -> list[str]:
    """Return a text for each of the Xids that is in `meanings`, without duplicates."""
    texts: dict[str, None] = {}
    for xid in xids:
        number, process = int(xid["number"]), _PROCESS.search(xid["rest"])
        what = meanings.get(number, "")
        if number == RECOVERY and meanings is FATAL and (action := _RECOVERY.search(xid["rest"])):
            what = action["action"].lower() if action["action"] in _REQUIRED else ""
        if what:
            who = f", process {process['pid']}" if process else ""
            texts[f"Xid {number} ({what}) of GPU {xid['bus']}{who}"] = None
    return list(texts)[:_MOST]


def _kernel_lines(path: Path) -> Iterator[str]:
    """Yield the lines of the kernel log. A read returns one record; after lost records (EPIPE) the next one works."""
    kmsg = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                block = os.read(kmsg, 8192)
            except BrokenPipeError:
                continue
            except BlockingIOError:
                return
            if not block:
                return
            yield from block.decode(errors="replace").splitlines()
    finally:
        os.close(kmsg)
