"""What `nvidia-smi -q -x` and `dcgmi diag -j` print of GPUs, and the verdicts on it. What is left out is not checked.

Sources: nvidia-smi(1); NVIDIA GPU Memory Error Management (a failed remapping and SRAM errors above the threshold are
reasons for an exchange of the GPU; a pending remapping or retirement waits for a reset and does no harm until then);
limits of NVIDIA/DCGM 72fa3fe, common/DcgmGPUHardwareLimits.h; documents of drivers 470 to 595 in
influxdata/telegraf, plugins/inputs/nvidia_smi/testdata. Of diag: DCGM's testing/python3/dcgm_diag_schema.json, and
dcgmlib/dcgm_errors.h (severities).
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import NamedTuple

from health.outcome import Outcome, failed, ok, skipped, unsure, warned

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
    """As nvidia-smi numbers them: in the order of their bus ids."""
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
        counts = [_NUMBER.fullmatch((one.text or "").strip()) for one in parent or () if word in one.tag]
        known = [int(one[0]) for one in counts if one]
        return sum(known) if known else None


def parse(text: str) -> list[Gpu]:
    """The GPUs of the document; messages may stand around it. none where there is no document."""
    found = _DOCUMENT.search(text)
    try:
        root = ET.fromstring(found["root"] if found else "")  # noqa: S314 - root's own driver
    except ET.ParseError:
        return []
    return [Gpu(number, one.get("id", "?"), one) for number, one in enumerate(root.findall("gpu"))]


def messages(text: str) -> str:
    """What stands around the document."""
    return _DOCUMENT.sub("", text)


def needs_action(gpus: list[Gpu]) -> Outcome | None:
    """What the driver itself asks for; None where it asks for nothing."""
    found: list[str] = []
    for gpu in gpus:
        action = gpu.text("gpu_recovery_action")
        if any(_NEEDS_RESET in (one.text or "") for one in gpu.element.iter()) or _yes(
            gpu, "gpu_reset_status/reset_required"
        ):
            found.append(f"GPU {gpu.number} requires a reset")
        elif action not in ("", "None"):
            found.append(f"GPU {gpu.number}: the driver asks for {action}")
    return failed(", ".join(found)) if found else None


def ecc(gpus: list[Gpu], most: int) -> Outcome:
    """The verdict on uncorrectable errors since the driver was loaded."""
    known = [(gpu, count) for gpu in gpus if (count := gpu.total("ecc_errors/volatile", "uncorrectable")) is not None]
    if not known:
        return skipped("the driver reports no ECC errors of these GPUs")
    wrong = [f"GPU {gpu.number}: {count} uncorrectable errors, most {most}" for gpu, count in known if count > most]
    return failed(", ".join(wrong)) if wrong else ok(f"{sum(count for _, count in known)} uncorrectable errors")


def memory(gpus: list[Gpu]) -> Outcome:
    """The verdict on rows that were remapped, pages that were retired, and the life's errors of SRAM."""
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
        return failed(", ".join(wrong))
    if pending:
        return warned(f"memory is remapped or retired at the next reset: {', '.join(pending)}")
    return ok("no row failed") if known else skipped("the driver reports no remapped rows")


def state(gpus: list[Gpu], *, fabric: bool) -> Outcome:
    """The verdict on what slows a GPU down. `fabric`: whether it must be registered with NVSwitches."""
    widths = [gpu.number_at("pci/pci_gpu_link_info/link_widths/current_link_width") or 0 for gpu in gpus]
    now: list[str] = []
    wrong: list[str] = []
    notes: list[str] = []
    for gpu, width in zip(gpus, widths, strict=True):
        now += [f"GPU {gpu.number}: {what}" for what in (*_slowed(gpu), *_hot(gpu))]
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
    """The verdict on a diagnostic of DCGM. A test that failed for how the machine is set up is a warning."""
    try:
        document = json.loads(said[said.index("{") :])
        report = next(value for name, value in document.items() if name.startswith("DCGM"))
        tests = [test for one in report["test_categories"] for test in one["tests"]]
        results = [(str(test["name"]), result) for test in tests for result in test["results"]]
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return skipped(f"dcgmi diag ended with exit code {code} and without a report")
    wrong: dict[str, bool] = {}
    for name, result in results:
        if str(result.get("status", "")).lower() != "fail":
            continue
        entity = result.get("entity_id", result.get("gpu_id", ""))
        notes = [one for one in result.get("warnings") or () if isinstance(one, dict)]
        text = "; ".join(str(one.get("warning", "")) for one in notes)[:160]
        severe = not notes or any(one.get("error_severity", _ISOLATE) in (_ISOLATE, _RESET) for one in notes)
        wrong[f"{name}{f' of GPU {entity}' if entity != '' else ''}: {text or 'failed'}"] = severe
    if any(wrong.values()):
        return failed(", ".join(text for text, severe in wrong.items() if severe))
    return warned(", ".join(wrong)) if wrong else ok(f"{len(tests)} tests of DCGM")


def _slowed(gpu: Gpu) -> Iterator[str]:
    """Why the hardware slows its clocks. Until driver 530 the elements have another name."""
    for name in ("event", "throttle"):
        for reason, words in _SLOWED.items():
            if gpu.text(f"clocks_{name}_reasons/clocks_{name}_reason_{reason}") == "Active":
                yield words


def _hot(gpu: Gpu) -> Iterator[str]:
    for what, path, most in (
        ("", "temperature/gpu_temp", "temperature/gpu_temp_slow_threshold"),
        (" memory", "temperature/memory_temp", "temperature/gpu_temp_max_mem_threshold"),
    ):
        degrees, limit = gpu.number_at(path), gpu.number_at(most)
        if degrees is not None and limit is not None and degrees >= limit:
            yield f"{degrees} C{what}, slowed from {limit} C on"
    # Hopper reports how far it is from there instead.
    margin = gpu.number_at("temperature/gpu_temp_tlimit")
    if margin is not None and margin <= 0:
        yield f"{gpu.text('temperature/gpu_temp')}, at its limit"


def _retired(gpu: Gpu) -> int | None:
    counts = [
        gpu.number_at(f"retired_pages/{cause}/retired_count")
        for cause in ("multiple_single_bit_retirement", "double_bit_retirement")
    ]
    known = [one for one in counts if one is not None]
    return sum(known) if known else None


def _yes(gpu: Gpu, path: str) -> bool:
    return gpu.text(path) == "Yes"
