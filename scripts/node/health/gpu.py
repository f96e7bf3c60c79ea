"""GPUs, as NVIDIA's driver, nvidia-smi and DCGM report them. What they leave out is not checked.

nvidia-smi may hang where a GPU is broken: the caller bounds the time.

Sources: nvidia-smi(1) (options, exit codes); documents of drivers 470 to 595 in influxdata/telegraf,
plugins/inputs/nvidia_smi/testdata; NVIDIA GPU Memory Error Management (a failed remapping and SRAM errors above the
threshold are reasons for an exchange of the GPU; a pending remapping or retirement waits for a reset and does no harm
until then). Of NVIDIA/DCGM 72fa3fe: common/DcgmGPUHardwareLimits.h; modules/health/DcgmHealthWatch.cpp (MonitorNVLink:
recovery and replay errors fail by their difference, CRC errors from 100 a second on; BuildXidMappings: which Xids fail
and which warn); dcgmlib/src/DcgmKmsgReader.cpp (the line of a Xid); testing/python3/dcgm_diag_schema.json and
dcgmlib/dcgm_errors.h (diag, severities). Xids: docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, read
2026-11-23. /dev/kmsg: Documentation/ABI/testing/dev-kmsg of the kernel.
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

from health.kinds import smi_exit
from health.outcome import Outcome, certain, failed, in_container, ok, run_program, skipped, unsure, warned

REMAPPED_MOST = 511
"""DCGM_LIMIT_MAX_ROW_REMAP_UNCORRECTABLE is 512: no row is left to remap to."""
RETIRED_MOST = 62
"""DCGM_LIMIT_MAX_RETIRED_PAGES is 63; GPUs before Ampere, T4 for one, retire pages."""
_ISOLATE, _RESET = 2, 6
"""DCGM_ERROR_ISOLATE and DCGM_ERROR_RESET: the GPU is not to be used. Others: monitor, triage, configure."""
_NEEDS_RESET = "GPU requires reset"  # in place of a value: nvmlErrorString of NVML_ERROR_RESET_REQUIRED
_DOCUMENT = re.compile(r"(?:<\?xml.*?)?(?P<root><nvidia_smi_log>.*</nvidia_smi_log>)", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]+")
_NOT_REPORTED = ("", "N/A", "[N/A]", "Not Supported", "Unknown Error")
_SLOWED = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "hw_power_brake_slowdown": "power brake",
}


class Gpu(NamedTuple):
    """A GPU of the document."""

    number: int
    """The number in nvidia-smi: in the order of bus ids."""
    bus: str
    element: ET.Element

    def text(self, path: str) -> str:
        """Text of an element; empty where it is not reported."""
        found = (self.element.findtext(path) or "").strip()
        return "" if found in _NOT_REPORTED else found

    def number_at(self, path: str) -> int | None:
        """The number at the beginning of an element's text."""
        found = _NUMBER.match(self.text(path))
        return int(found[0]) if found else None

    def total(self, path: str, word: str) -> int | None:
        """Sum of the children whose name has the word; None where none is a number."""
        parent = self.element.find(path)
        counts = [_NUMBER.fullmatch((child.text or "").strip()) for child in parent or () if word in child.tag]
        known = [int(count[0]) for count in counts if count]
        return sum(known) if known else None


def parse_gpus(text: str) -> list[Gpu]:
    """The GPUs of the document; messages may stand around it. None where there is no document."""
    found = _DOCUMENT.search(text)
    try:
        root = ET.fromstring(found["root"] if found else "")  # noqa: S314 - root's own driver
    except ET.ParseError:
        return []
    return [Gpu(number, element.get("id", "?"), element) for number, element in enumerate(root.findall("gpu"))]


def needs_action(gpus: list[Gpu]) -> Outcome | None:
    """Return what the driver itself asks for; None where it asks for nothing."""
    found: list[str] = []
    for gpu in gpus:
        action = gpu.text("gpu_recovery_action")
        if any(_NEEDS_RESET in (child.text or "") for child in gpu.element.iter()) or _yes(
            gpu, "gpu_reset_status/reset_required"
        ):
            found.append(f"GPU {gpu.number} requires a reset")
        elif action not in ("", "None"):
            found.append(f"GPU {gpu.number}: the driver asks for {action}")
    return failed(", ".join(found)) if found else None


def ecc_errors_outcome(gpus: list[Gpu], most: int) -> Outcome:
    """Check uncorrectable errors since the driver was loaded."""
    known = [(gpu, count) for gpu in gpus if (count := gpu.total("ecc_errors/volatile", "uncorrectable")) is not None]
    if not known:
        return skipped("the driver reports no ECC errors of these GPUs")
    wrong = [f"GPU {gpu.number}: {count} uncorrectable errors, most {most}" for gpu, count in known if count > most]
    return failed(", ".join(wrong)) if wrong else ok(f"{sum(count for _, count in known)} uncorrectable errors")


def memory_outcome(gpus: list[Gpu]) -> Outcome:
    """Check rows that were remapped, pages that were retired, and the errors of SRAM over its life."""
    wrong: list[str] = []
    pending: list[str] = []
    known = False
    for gpu in gpus:
        rows, pages = gpu.number_at("remapped_rows/remapped_row_unc"), _retired(gpu)
        known = known or rows is not None or pages is not None
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
    return ok("no row failed") if known else skipped("the driver reports no remapped rows")


def gpu_state(gpus: list[Gpu], *, fabric: bool) -> Outcome:
    """Check what slows a GPU down. `fabric`: whether it must be registered with NVSwitches."""
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


def diag(code: int, said: str) -> Outcome:
    """The outcome of a diagnostic of DCGM. A test that failed for how the machine is set up is a warning."""
    try:
        document = json.loads(said[said.index("{") :])
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


def _slowed(gpu: Gpu) -> Iterator[str]:
    """Return why the hardware slows its clocks. Until driver 530 the elements have another name."""
    for name in ("event", "throttle"):
        for reason, words in _SLOWED.items():
            if gpu.text(f"clocks_{name}_reasons/clocks_{name}_reason_{reason}") == "Active":
                yield words


def _too_hot(gpu: Gpu) -> Iterator[str]:
    for what, name, most in (("", "gpu_temp", "gpu_temp_slow"), (" memory", "memory_temp", "gpu_temp_max_mem")):
        degrees, limit = gpu.number_at(f"temperature/{name}"), gpu.number_at(f"temperature/{most}_threshold")
        if degrees is not None and limit is not None and degrees >= limit:
            yield f"{degrees} C{what}, slowed from {limit} C on"
    # Hopper reports how far it is from there instead.
    margin = gpu.number_at("temperature/gpu_temp_tlimit")
    if margin is not None and margin <= 0:
        yield f"{gpu.text('temperature/gpu_temp')}, at its limit"


def _retired(gpu: Gpu) -> int | None:
    causes = ("multiple_single_bit_retirement", "double_bit_retirement")
    counts = [gpu.number_at(f"retired_pages/{cause}/retired_count") for cause in causes]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _yes(gpu: Gpu, path: str) -> bool:
    return gpu.text(path) == "Yes"


Smi = Callable[..., tuple[int, str]]
_LOST = re.compile(r"GPU is lost|unable to determine the device handle|fallen off the bus|Unknown Error", re.IGNORECASE)
_GONE = re.compile(r"GPU is lost")
"""Message of nvidia-smi without a GPU, also in place of a value of the document."""
_GPU = re.compile(r"^GPU (?P<gpu>[0-9]+):")
_ERRORS = re.compile(r"Link (?P<link>[0-9]+): (?P<kind>Replay|Recovery|CRC(?: [A-Za-z]+)?) Errors: (?P<errors>[0-9]+)")
_STATUS = re.compile(r"Link (?P<link>[0-9]+): (?P<state><inactive>|[0-9.]+ GB/s)")
_JOB = re.compile(r"/job_(?P<job>[0-9]+)(?:/|$)", re.MULTILINE)
CRC_A_SECOND = 100
"""DCGM_LIMIT_MAX_NVLINK_CRC_ERROR: links correct CRC errors themselves."""
_MOST_LINKS = 6
_RXDM = ("--num_hops=", "--num_nics=")
"""Arguments of the receive data path manager, which holds all GPUs of a job in a container of its own."""


def why_no_driver() -> str:
    """Return why there is no driver to ask; empty where there is one."""
    if in_container() and not shutil.which("nvidia-smi"):
        return "no NVIDIA driver in a container: the GPUs are stand-ins"
    return ""


def nvidia_smi(*arguments: str) -> tuple[int, str]:
    """Exit code and output of nvidia-smi."""
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
    """Run every check that asks the driver; outcomes by kind. `before`: counters of NVLink at the last run."""
    if not count:
        return {}
    if why := why_no_driver():
        return dict.fromkeys(("gpu-driver", "gpu-ecc", "gpu-memory", "gpu-state", "gpu-nvlink"), skipped(why))
    code, said = smi("-q", "-x")
    found = parse_gpus(said)
    if wrong := _driver_failures(code, said, found, count):
        return wrong
    outcomes = {
        "gpu-driver": ok(f"{len(found)} GPUs"),
        "gpu-ecc": ecc_errors_outcome(found, ecc_errors),
        "gpu-memory": memory_outcome(found),
        "gpu-state": gpu_state(found, fabric=nvlinks > 0),
    }
    if count > 1:
        status, errors = smi("nvlink", "--status"), smi("nvlink", "--errorcounters")
        outcomes["gpu-nvlink"] = nvlink(status[1], errors[1], most=nvlink_errors, wanted=nvlinks, before=before or {})
    return outcomes


def _driver_failures(code: int, said: str, found: list[Gpu], count: int) -> dict[str, Outcome]:
    """Return failures of the driver itself, from the first answer of nvidia-smi; empty if it has none."""
    around = _DOCUMENT.sub("", said)
    for text, pattern in ((around, _LOST), (said, _GONE)):
        if pattern.search(text):
            line = next(line.strip() for line in text.splitlines() if pattern.search(line))
            return {"gpu-lost": certain(line[:160])}
    if code:
        first = next((line.strip() for line in around.splitlines() if line.strip()), "no message")
        return {"gpu-driver": failed(f"nvidia-smi ended with {smi_exit(code)}: {first[:160]}")}
    if asked := needs_action(found):
        return {"gpu-driver": asked}
    if len(found) < count:
        return {"gpu-driver": failed(f"the driver lists {len(found)} of {count} GPUs")}
    return {}


def nvlink(status: str, errors: str, *, most: int, wanted: int, before: dict[str, Any], now: float = 0) -> Outcome:
    """Check links by `nvidia-smi nvlink --status` and `--errorcounters`; `wanted` active ones of each GPU,
    0 where some are inactive by design. Errors count from the last run on: training a link at boot makes some."""
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
    gone = bool(wrong)
    now = now or time.time()
    counts: dict[str, int] = {}
    for link, found in _links(errors, _ERRORS):
        name = f"{link} {found['kind'].lower().split()[0]}"
        counts[name] = counts.get(name, 0) + int(found["errors"])
    more, noted = _added(counts, before, most, now)
    wrong += more
    if wrong:
        outcome = (certain if gone else failed)(", ".join(wrong[:_MOST_LINKS]))
    elif noted:
        outcome = warned(", ".join(noted[:_MOST_LINKS]))
    else:
        outcome = ok(f"{sum(1 for state in links.values() if state != '<inactive>')} links active")
    outcome["place"] = {"counts": counts, "time": now}
    return outcome


def _added(counts: dict[str, int], before: dict[str, Any], most: int, now: float) -> tuple[list[str], list[str]]:
    """The errors since the last run: those that fail the check, and those that are worth a note."""
    earlier, seconds = before.get("counts", {}), max(now - before.get("time", now), 1.0)
    wrong: list[str] = []
    noted: list[str] = []
    for name, count in counts.items():
        if name not in earlier:  # the first run takes the counters alone
            continue
        # A driver that was loaded again counts from 0.
        added = count - earlier[name] if count >= earlier[name] else count
        link, _, kind = name.rpartition(" ")
        if kind == "crc" and added / seconds >= CRC_A_SECOND:
            wrong.append(f"{link}: {added / seconds:.0f} CRC errors a second, most {CRC_A_SECOND}")
        elif kind != "crc" and added > most:
            wrong.append(f"{link}: {added} {kind} errors since the last check, most {most}")
        elif added:
            noted.append(f"{link}: {added} {kind.upper() if kind == 'crc' else kind} errors since the last check")
    return wrong, noted


def leftovers(job: str, *, smi: Smi = nvidia_smi, proc: Path = Path("/proc")) -> Outcome:
    """Check that no process holds a GPU that is of no job, or of the job that has just ended."""
    if why := why_no_driver():
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
    """Return whether a process outside any job is there for jobs: the receive data path manager, or CUDA's MPS."""
    try:
        words = (proc / pid / "cmdline").read_text(errors="replace").split("\0")
        name = (proc / pid / "comm").read_text().strip()
    except OSError:
        return False
    rxdm = all(any(word.startswith(option) for word in words) for option in _RXDM)
    return not _job(proc, pid) and (rxdm or name.startswith("nvidia-cuda-mps"))


def _links(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    gpu = "?"
    for line in text.splitlines():
        if found := _GPU.match(line):
            gpu = found["gpu"]
        elif found := pattern.search(line):
            yield f"GPU {gpu} link {found['link']}", found


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
GPUs from A100 on. Others than these, WARNING and 154 are most often an application's own fault."""
WARNING = {
    63: "a row or page is remapped at the next reset",
    94: "contained memory error",
    156: "a resource is retired at the next reset",
    157: "a resource could not be retired",
}
RECOVERY = 154
"""The Xid by which the driver, from 565 on, says what another one calls for: `GPU recovery action changed from 0x0
(None) to 0x2 (Node Reboot Required)`."""
_RECOVERY = re.compile(r"changed from .* to \S+ \((?P<action>[A-Za-z0-9 ]+)\)")
_REQUIRED = ("GPU Reset Required", "Node Reboot Required", "Drain and Reset")
KMSG = Path("/dev/kmsg")
BOOT = Path("/proc/sys/kernel/random/boot_id")
_RECORD = re.compile(r"[0-9]+,(?P<sequence>[0-9]+),[0-9]+,[^;]*;(?P<text>.*)")
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9A-Fa-f:.]+)\): (?P<number>[0-9]+),(?P<rest>.*)")
_PROCESS = re.compile(r"\bpid='?(?P<pid>[0-9]+)")
_MOST = 5


def xids(before: dict[str, Any], kmsg: Path = KMSG, boot: Path = BOOT) -> Outcome:
    """Check Xids since the last run, whose place in the log is `before`; the outcome has the new place."""
    if in_container():
        return skipped("a container has no kernel log of its own")
    now = boot.read_text().strip()
    # The first run of all takes the place alone: what was before it has been looked at, or is unknown.
    since = int(before.get("sequence", -1)) if before.get("boot") == now else -1
    last = since
    found: list[re.Match[str]] = []
    for record in filter(None, map(_RECORD.match, _kernel_lines(kmsg))):  # lines that go on a record have no number
        sequence = int(record["sequence"])
        last = max(last, sequence)
        if before and sequence > since and (xid := _XID.search(record["text"])):
            found.append(xid)
    if texts := _xid_texts(FATAL, found):
        outcome = certain(", ".join(texts))
    elif texts := _xid_texts(WARNING, found):
        outcome = warned(", ".join(texts))
    else:
        outcome = ok(f"{len(found)} Xids, none of a broken GPU")
    outcome["place"] = {"boot": now, "sequence": last}
    return outcome


def _xid_texts(known: dict[int, str], found: list[re.Match[str]]) -> list[str]:
    texts: dict[str, None] = {}
    for xid in found:
        number, process = int(xid["number"]), _PROCESS.search(xid["rest"])
        what = known.get(number, "")
        if number == RECOVERY and known is FATAL and (action := _RECOVERY.search(xid["rest"])):
            what = action["action"].lower() if action["action"] in _REQUIRED else ""
        if what:
            who = f", process {process['pid']}" if process else ""
            texts[f"Xid {number} ({what}) of GPU {xid['bus']}{who}"] = None
    return list(texts)[:_MOST]


def _kernel_lines(path: Path) -> Iterator[str]:
    """Records that the kernel has now: each read returns one; where some were lost, the next read goes on."""
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
