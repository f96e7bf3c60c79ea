"""Checks of GPUs by what NVIDIA's driver, nvidia-smi and DCGM report. A value that they do not report is not checked.

VALUES and LIMITS judge the document of `nvidia-smi -q -x`; health/nvlink.py and health/xids.py have the tables of links
and of the kernel log. nvidia-smi may hang on a broken GPU, so that the caller bounds the time.

Sources: nvidia-smi(1) (options, elements, exit codes); documents of real machines with drivers 470 to 595 in
influxdata/telegraf, plugins/inputs/nvidia_smi/testdata, and NVIDIA/k8s-test-infra 3b2b865d,
tests/e2e/go/assertions/nvidiasmi/testdata/hardware (A100, H100, B200, GB300, T4, L40S); NVIDIA GPU Memory Error
Management, docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt; of NVIDIA/DCGM 72fa3fe:
common/DcgmGPUHardwareLimits.h, modules/health/DcgmHealthWatch.cpp, testing/python3/dcgm_diag_schema.json,
dcgmlib/dcgm_errors.h and src/dcgm_errors.c.
"""

import json
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, NamedTuple

from health.check_kinds import smi_exit
from health.nvlink import nvlink
from health.outcome import (
    Finding,
    Outcome,
    OutcomeOf,
    certain,
    combine,
    failed,
    in_container,
    ok,
    run_program,
    skipped,
    unsure,
    warned,
)

_ISOLATE, _RESET = 2, 6
"""DCGM_ERROR_ISOLATE and DCGM_ERROR_RESET: the GPU must not be used. Others: monitor, triage, configure."""
_UNTIL_RESET = (6, 85)
"""DCGM_FR_PENDING_PAGE_RETIREMENTS and DCGM_FR_PENDING_ROW_REMAP, which have that severity too, although "this GPU can
still perform workload" (dcgm_errors.h) until the reset."""
_NEEDS_RESET = "GPU requires reset"  # printed in place of a value: nvmlErrorString of NVML_ERROR_RESET_REQUIRED
_DOCUMENT = re.compile(r"(?:<\?xml.*?)?(?P<root><nvidia_smi_log>.*</nvidia_smi_log>)", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]+")
_NOT_REPORTED = (
    "", "N/A", "[N/A]", "Not Supported", "Unknown Error", "Insufficient Permissions",
    "Requested functionality has been deprecated",
)  # fmt: skip


class GpuReading(NamedTuple):
    """A GPU in the document of `nvidia-smi -q -x`."""

    number: int
    """Its number in nvidia-smi, in the order of bus ids."""
    bus: str
    element: ET.Element

    def text(self, path: str) -> str:
        """Return the text of an element; empty if it is not reported. Drivers up to 530 name events `throttle`."""
        found = self.element.findtext(path) or self.element.findtext(path.replace("_event_", "_throttle_"))
        text = (found or "").strip()
        return "" if text in _NOT_REPORTED else text

    def number_at(self, path: str) -> int | None:
        """Return the number at the beginning of an element's text; None if there is none."""
        match = _NUMBER.match(self.text(path))
        return int(match[0]) if match else None

    def sum_of(self, paths: tuple[str, ...]) -> int | None:
        """Return the sum of the numbers at these paths; None if there are none."""
        return _sum([self.number_at(path) for path in paths])

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


def _is(*values: str) -> Callable[[str], bool]:
    return lambda text: text in values


def _is_not(*values: str) -> Callable[[str], bool]:
    return lambda text: text not in values


class OfText(NamedTuple):
    """A judgement of an element's text."""

    kind: str
    outcome_of: OutcomeOf
    path: str
    is_wrong: Callable[[str], bool]
    words: str
    """Text of the finding; `{value}` is that of the element."""


_SLOWED = "clocks_event_reasons/clocks_event_reason_"
VALUES: tuple[OfText, ...] = (
    # nvidia-smi(1): GPU Recovery Action (from driver 560), GPU Reset Status (up to 565: either being Yes indicates that
    # an unrecoverable error has occurred). DCGM, MonitorGpuRecoveryAction: Drain P2P is a warning, the others fail.
    OfText("gpu-driver", failed, "gpu_recovery_action", _is_not("None", "Drain P2P"), "the driver asks for {value}"),
    OfText("gpu-driver", warned, "gpu_recovery_action", _is("Drain P2P"), "the driver asks for {value}"),
    OfText("gpu-driver", failed, "gpu_reset_status/reset_required", _is("Yes"), "a reset is required"),
    OfText(
        "gpu-driver", failed, "gpu_reset_status/drain_and_reset_recommended", _is("Yes"),
        "the driver recommends to drain and reset it",
    ),
    # GPU Memory Error Management: a failed remapping and SRAM errors above the threshold are reasons to replace the
    # GPU; a pending remapping or retirement takes effect at the next reset, and is harmless until then. DCGM,
    # MonitorMemUnrepairableFlag.
    OfText("gpu-memory", certain, "remapped_rows/remapped_row_failure", _is("Yes"), "a row could not be remapped"),
    OfText(
        "gpu-memory", certain, "ecc_errors/aggregate/sram_threshold_exceeded", _is("Yes"),
        "uncorrectable errors of SRAM are above NVIDIA's threshold",
    ),
    OfText("gpu-memory", certain, "ecc_errors/unrepairable_memory", _is("Yes"), "memory that can't be repaired"),
    OfText("gpu-memory", warned, "remapped_rows/remapped_row_pending", _is("Yes"), "a reset has to remap rows"),
    OfText("gpu-memory", warned, "retired_pages/pending_retirement", _is("Yes"), "a reset has to retire pages"),
    OfText("gpu-memory", warned, "ecc_errors/channel_repair_pending", _is("Yes"), "a reset has to repair a channel"),
    OfText("gpu-memory", warned, "ecc_errors/tpc_repair_pending", _is("Yes"), "a reset has to repair a TPC"),
    # nvidia-smi(1), Clocks Event Reasons. DCGM, MonitorThermal: slowed by software because of heat is a warning.
    OfText("gpu-state", unsure, f"{_SLOWED}hw_slowdown", _is("Active"), "hardware slowdown"),
    OfText("gpu-state", unsure, f"{_SLOWED}hw_thermal_slowdown", _is("Active"), "hardware thermal slowdown"),
    OfText("gpu-state", unsure, f"{_SLOWED}hw_power_brake_slowdown", _is("Active"), "power brake"),
    OfText("gpu-state", warned, f"{_SLOWED}sw_thermal_slowdown", _is("Active"), "software thermal slowdown"),
    # nvidia-smi(1): ECC Mode, MIG Mode, Persistence Mode. Xid 168 of NVIDIA's catalog: without ECC no row is remapped.
    OfText("gpu-state", failed, "mig_mode/current_mig", _is("Enabled"), "MIG is on, a job gets a part of the GPU"),
    OfText("gpu-state", warned, "ecc_mode/current_ecc", _is("Disabled"), "ECC is off"),
    OfText("gpu-state", warned, "persistence_mode", _is("Disabled"), "persistence mode is off"),
    # nvidia-smi(1), Fabric; DCGM, MonitorFabricFields. What is in progress may be over in a moment.
    OfText("gpu-state", unsure, "fabric/state", _is_not("Completed"), "fabric state {value}"),
    OfText("gpu-state", failed, "fabric/status", _is_not("Success"), "fabric status {value}"),
    OfText("gpu-nvlink", failed, "fabric/health/bandwidth", _is("Degraded"), "fabric bandwidth {value}"),
    OfText("gpu-nvlink", failed, "fabric/health/route_unhealthy", _is("True"), "a route of the fabric is unhealthy"),
    OfText(
        "gpu-nvlink", failed, "fabric/health/incorrect_configuration", _is_not("None"),
        "incorrect configuration of the fabric: {value}",
    ),
    OfText("gpu-nvlink", unsure, "fabric/health/route_recovery_in_progress", _is("True"), "fabric recovers a route"),
    OfText("gpu-nvlink", unsure, "fabric/health/access_timeout_recovery", _is("True"), "fabric access timed out"),
)  # fmt: skip


class OfNumber(NamedTuple):
    """A judgement of a number."""

    kind: str
    outcome_of: OutcomeOf
    paths: tuple[str, ...]
    """Elements whose sum is judged."""
    is_wrong: Callable[[float, float], bool]
    limit: str | int | None
    """A number, or the path of one. None: the greatest of the machine's GPUs, which are equal."""
    words: str
    """Text of the finding, with `{value}` and `{limit}`."""
    share: float = 1.0
    """Share of the limit from which on the value is wrong."""
    when: Callable[[GpuReading], bool] = lambda _gpu: True


BUSY_PERCENT = 90
"""Use of a GPU from which on its clock is judged (ours)."""


def _should_run_fast(gpu: GpuReading) -> bool:
    """Return whether a GPU is busy and its power does not hold its clocks down."""
    capped = gpu.text(f"{_SLOWED}sw_power_cap") == "Active"
    return not capped and (gpu.number_at("utilization/gpu_util") or 0) >= BUSY_PERCENT


REMAPPED_MOST = 511
"""DCGM_LIMIT_MAX_ROW_REMAP_UNCORRECTABLE is 512: no row is left to remap to."""
RETIRED_MOST = 62
"""DCGM_LIMIT_MAX_RETIRED_PAGES is 63; GPUs before Ampere, T4 for one, retire pages."""
LIMITS: tuple[OfNumber, ...] = (
    OfNumber(
        "gpu-memory", certain, ("remapped_rows/remapped_row_unc",), gt, REMAPPED_MOST,
        "{value} remapped rows, most {limit}",
    ),
    OfNumber(
        "gpu-memory", certain,
        ("retired_pages/multiple_single_bit_retirement/retired_count",
         "retired_pages/double_bit_retirement/retired_count"),
        gt, RETIRED_MOST, "{value} retired pages, most {limit}",
    ),
    # A lost site of HBM is a fifth of the memory or more; ECC takes a sixteenth of a T4's (its 15360 of 16384 MiB).
    OfNumber(
        "gpu-memory", failed, ("fb_memory_usage/total",), lt, None, "{value} MiB of memory, others {limit} MiB",
        share=0.9,
    ),
    OfNumber(
        "gpu-state", failed, ("pci/pci_gpu_link_info/link_widths/current_link_width",), lt, None,
        "PCIe x{value}, others x{limit}",
    ),
    # nvidia-smi(1), Temperature: from Slowdown on the hardware slows the GPU. Hopper and later report
    # T.Limit, the distance to the greatest temperature of operation, and its slowdown as such a distance (H100: -2 C).
    OfNumber(
        "gpu-state", unsure, ("temperature/gpu_temp",), ge, "temperature/gpu_temp_slow_threshold",
        "{value} C, slowed from {limit} C on",
    ),
    OfNumber(
        "gpu-state", unsure, ("temperature/memory_temp",), ge, "temperature/gpu_temp_max_mem_threshold",
        "{value} C memory, slowed from {limit} C on",
    ),
    OfNumber(
        "gpu-state", unsure, ("temperature/gpu_temp_tlimit",), le, "temperature/gpu_temp_slow_tlimit_threshold",
        "T.Limit {value} C, slowed from {limit} C on",
    ),
    # nvidia-smi(1), Power Readings and Clocks: lower than by default, as somebody or the host has set it.
    # oracle/oci-dr-hpc-v2, internal/level1_tests, validateGPUClockSpeeds: 90 % of the greatest clock.
    OfNumber(
        "gpu-state", warned, ("gpu_power_readings/current_power_limit",), lt, "gpu_power_readings/default_power_limit",
        "power limit of {value} W, by default {limit} W",
    ),
    OfNumber(
        "gpu-state", warned, ("clocks/sm_clock",), lt, "max_clocks/sm_clock",
        "busy with an SM clock of {value} of {limit} MHz", share=0.9, when=_should_run_fast,
    ),
)  # fmt: skip


def judge(gpus: list[GpuReading], *, fabric: bool) -> dict[str, list[Finding]]:
    """Return the findings about these GPUs by kind of check; with `fabric` also those about their NVSwitches."""
    found: dict[str, list[Finding]] = {}
    for gpu in gpus:
        # The GPU has to be exchanged for a fault of its memory: its bus id stays when another GPU is lost.
        name = {"gpu-memory": f"GPU {gpu.bus}"}
        if any(_NEEDS_RESET in (child.text or "") for child in gpu.element.iter()):
            found.setdefault("gpu-driver", []).append((failed, f"GPU {gpu.number}: a reset is required"))
        for row in VALUES:
            text = gpu.text(row.path) if fabric or not row.path.startswith("fabric/") else ""
            if text and row.is_wrong(text):
                words = f"{name.get(row.kind, f'GPU {gpu.number}')}: {row.words.format(value=text)}"
                found.setdefault(row.kind, []).append((row.outcome_of, words))
        for limit in LIMITS:
            value, most = gpu.sum_of(limit.paths), _limit_of(limit, gpu, gpus)
            if value is not None and most is not None and limit.is_wrong(value, most * limit.share) and limit.when(gpu):
                words = f"{name.get(limit.kind, f'GPU {gpu.number}')}: {limit.words.format(value=value, limit=most)}"
                found.setdefault(limit.kind, []).append((limit.outcome_of, words))
    return found


def _limit_of(limit: OfNumber, gpu: GpuReading, gpus: list[GpuReading]) -> int | None:
    if isinstance(limit.limit, str):
        return gpu.number_at(limit.limit)
    if limit.limit is None:
        return max((value for other in gpus if (value := other.sum_of(limit.paths)) is not None), default=None)
    return limit.limit


def judged_outcomes(gpus: list[GpuReading], found: dict[str, list[Finding]], *, ecc_errors: int) -> dict[str, Outcome]:
    """Return the outcomes of the checks that need the document alone, with its findings."""
    hottest = max((gpu.number_at("temperature/gpu_temp") or 0 for gpu in gpus), default=0)
    has_memory = any(
        gpu.text(path)
        for gpu in gpus
        for path in ("remapped_rows/remapped_row_unc", "retired_pages/pending_retirement")
    )
    return {
        "gpu-driver": combine(found.get("gpu-driver", [])) or ok(f"{len(gpus)} GPUs"),
        "gpu-ecc": ecc_errors_outcome(gpus, ecc_errors),
        "gpu-memory": combine(found.get("gpu-memory", []))
        or (ok("no row failed") if has_memory else skipped("the driver reports no remapped rows")),
        "gpu-state": combine(found.get("gpu-state", []))
        or (ok(f"{hottest} C at most") if hottest else skipped("the driver reports no temperature")),
    }


def ecc_errors_outcome(gpus: list[GpuReading], most: int) -> Outcome:
    """Check the uncorrectable errors since the driver was loaded.

    A GPU that remaps rows contains an error or reports Xid 95, and its driver asks for a reset if it needs one; after a
    contained error it may be used until its next reset (NVIDIA GPU Memory Error Management).
    """
    totals = [(gpu, gpu.total("ecc_errors/volatile", "uncorrectable")) for gpu in gpus]
    counts = [(gpu, total) for gpu, total in totals if total is not None]
    if not counts:
        return skipped("the driver reports no ECC errors of these GPUs")
    findings: list[Finding] = []
    for gpu, count in counts:
        if count > most and gpu.text("remapped_rows/remapped_row_unc"):
            findings.append((warned, f"GPU {gpu.number}: {count} uncorrectable errors, remapped at the next reset"))
        elif count > most:
            findings.append((failed, f"GPU {gpu.number}: {count} uncorrectable errors, most {most}"))
    return combine(findings) or ok(f"{sum(count for _, count in counts)} uncorrectable errors")


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
        severe = not notes or any(map(_is_severe, notes))
        wrong[f"{name}{f' of GPU {entity}' if entity != '' else ''}: {text or 'failed'}"] = severe
    if any(wrong.values()):
        return failed(", ".join(text for text, severe in wrong.items() if severe))
    return warned(", ".join(wrong)) if wrong else ok(f"{len(tests)} tests of DCGM")


def _is_severe(note: dict[str, Any]) -> bool:
    """Return whether a warning of DCGM says that the GPU must not be used."""
    return note.get("error_severity", _ISOLATE) in (_ISOLATE, _RESET) and note.get("error_id") not in _UNTIL_RESET


Smi = Callable[..., tuple[int, str]]
_LOST = re.compile(r"GPU is lost|unable to determine the device handle|fallen off the bus|Unknown Error", re.IGNORECASE)
_LOST_GPU = re.compile(r"GPU is lost")
"""Message of nvidia-smi for a lost GPU. It may stand in place of a value of the document."""
_JOB = re.compile(r"/job_(?P<job>[0-9]+)(?:/|$)", re.MULTILINE)
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
    nvlink_gbps: float = 0,
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
    found = judge(listed, fabric=nvlinks > 0)
    outcomes = judged_outcomes(listed, found, ecc_errors=ecc_errors)
    if outcomes["gpu-driver"]["state"] == "failed":
        return {"gpu-driver": outcomes["gpu-driver"]}
    if any(gpu.text("mig_mode/current_mig") == "Enabled" for gpu in listed):
        # NVML reports them as down then (DCGM, MonitorNVLinkStatus).
        outcomes["gpu-nvlink"] = skipped("NVLinks do not work with MIG")
    elif count > 1:
        status, errors = smi("nvlink", "--status"), smi("nvlink", "--errorcounters")
        outcomes["gpu-nvlink"] = nvlink(
            status[1], errors[1], most=nvlink_errors, expected=nvlinks, gbps=nvlink_gbps, before=before or {},
            found=found.get("gpu-nvlink", []),
        )  # fmt: skip
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
    if len(listed) < count:
        return {"gpu-driver": failed(f"the driver lists {len(listed)} of {count} GPUs")}
    return {}


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
