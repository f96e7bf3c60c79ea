"""The check of the kernel log for Xids, SXids of NVSwitches, and GPUs that have fallen off the bus.

Sources: NVIDIA's Xid catalog, docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (column Resolution Bucket,
Immediate Action; guidance classes; decode of Xids 144 to 150), read 2026-11-28; NVIDIA/DCGM 72fa3fe,
dcgmlib/src/DcgmKmsgReader.cpp (the line of a Xid), modules/health/DcgmHealthWatch.cpp, BuildXidMappings; leptonai/gpud
4a8de33, components/accelerator/nvidia/xid/kmsg.go, sxid/README.md (lines of real machines) and sxid/sxid.go (of the
Fabric Manager user guide, DU-09883-001 v1.3, what each SXid calls for). /dev/kmsg:
Documentation/ABI/testing/dev-kmsg of the kernel.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from health.outcome import Finding, Outcome, OutcomeOf, certain, combine, failed, in_container, ok, skipped, warned


class XidRule(NamedTuple):
    """Consequence of an Xid, by the immediate action of NVIDIA's catalog.

    RESET_GPU, RESTART_BM and RESTART_VM are certain; other faults of a GPU drain the node, and its jobs run on. Xids
    without a rule are an application's, or call for nothing (RESTART_APP, IGNORE).
    """

    outcome_of: OutcomeOf
    words: str
    softened: frozenset[int] = frozenset()
    """Xids of the same GPU within TOGETHER_SECONDS, beside which this one is a warning."""


XIDS: Mapping[int, XidRule] = {
    46: XidRule(certain, "the GPU stopped processing"),
    # WORKFLOW_XID_48: alone RESET_GPU. A contained error (94), whose row is remapped (63), ends its own job alone: the
    # GPU may be used until it is reset when convenient (GPU Memory Error Management).
    48: XidRule(certain, "double bit ECC error", softened=frozenset({63, 94})),
    54: XidRule(failed, "the auxiliary power is not connected"),  # CHECK_MECHANICALS
    62: XidRule(certain, "a microcontroller of the GPU halted"),
    63: XidRule(warned, "a row or page is remapped at the next reset"),
    64: XidRule(certain, "a row or page could not be remapped"),
    74: XidRule(certain, "NVLink error"),  # WORKFLOW_NVLINK_ERR
    79: XidRule(certain, "the GPU has fallen off the bus"),
    94: XidRule(warned, "contained memory error"),
    95: XidRule(certain, "uncontained memory error"),
    109: XidRule(certain, "context switch timeout"),
    110: XidRule(certain, "security fault"),
    119: XidRule(certain, "GSP RPC timeout"),
    120: XidRule(certain, "GSP error"),
    136: XidRule(certain, "NVLink training failed"),
    140: XidRule(certain, "unrecovered ECC error"),
    143: XidRule(certain, "the GPU could not be initialized"),
    151: XidRule(certain, "key rotation error"),  # RESTART_VM
    # RESET_GPU, but links that are taken down on purpose are reported too.
    155: XidRule(failed, "an NVLink was taken down"),
    156: XidRule(warned, "a resource is retired at the next reset"),
    157: XidRule(warned, "a resource could not be retired"),
    158: XidRule(certain, "fatal timeout"),
    # The catalog has no action for these yet.
    167: XidRule(failed, "fatal timeout of PCIe"),
    168: XidRule(failed, "the capacity of the memory is reduced"),
    169: XidRule(failed, "the microcontroller SEC2 halted"),
}
OFF_BUS = 79
TOGETHER_SECONDS = 60
"""Seconds within which Xids of one GPU are taken to have one cause (ours)."""
NVLINK5 = range(144, 151)
"""Xids of links from Blackwell on: WORKFLOW_NVLINK5_ERR. The line says whether it is fatal: RESET_GPU; others are
IGNORE or XID_154_EVAL, so that Xid 154 decides."""
_NVLINK5 = re.compile(r"(?P<what>[A-Z][A-Z0-9_/]+) (?P<severity>Fatal|Nonfatal)\b.*?(?P<link>Link -?[0-9]+)")
RECOVERY = 154
"""The Xid by which drivers from 565 on report the action that another Xid requires: `GPU recovery action changed from
0x0 (None) to 0x2 (Node Reboot Required)`."""
ACTIONS: Mapping[str, OutcomeOf] = {
    "GPU Reset Required": certain,
    "Node Reboot Required": certain,
    "Drain and Reset": failed,  # nvidia-smi(1): existing work may end
    "Drain P2P": warned,
}
_RECOVERY = re.compile(r"changed from .* to \S+ \((?P<action>[A-Za-z0-9 ]+)\)")
SUSPECTS = frozenset({13, 31})
"""Xids of an application's faults. WORKFLOW_XID_13 and WORKFLOW_XID_31: if they repeat on the same GPU only, it may be
the GPU: run DCGM's diagnostic."""
SUSPECT_PROCESSES = 3
"""Processes with such an Xid on one GPU, and none on another, from which on it is a warning (ours)."""

KMSG = Path("/dev/kmsg")
BOOT = Path("/proc/sys/kernel/random/boot_id")
_RECORD = re.compile(r"[0-9]+,(?P<sequence>[0-9]+),(?P<microseconds>[0-9]+),[^;]*;(?P<text>.*)")
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9A-Fa-f:.]+)\): (?P<number>[0-9]+),(?P<rest>.*)")
_SXID = re.compile(r"nvidia-nvswitch[0-9]+: SXid \(PCI:(?P<bus>[0-9A-Fa-f:.]+)\): (?P<number>[0-9]+), (?P<rest>.*)")
_OFF_BUS = re.compile(r"NVRM:(?:.*?GPU (?P<bus>[0-9A-Fa-f:]+)\.[0-9a-f]\b)?.*fallen off the bus")
_PROCESS = re.compile(r"\bpid='?(?P<pid>[0-9]+)")
_MOST = 5


class Event(NamedTuple):
    """A line of the kernel log about a GPU or an NVSwitch."""

    sequence: int
    seconds: float
    """Time since boot."""
    name: str
    """`Xid 79`, or `SXid 20034`."""
    number: int
    """Number of the Xid; 0 for an SXid."""
    bus: str
    """Bus id of the GPU or the NVSwitch; empty if the line has none."""
    rest: str

    def process(self) -> str:
        """Return the number of the process in the line; empty if there is none."""
        match = _PROCESS.search(self.rest)
        return match["pid"] if match else ""


def xids(before: dict[str, Any], kmsg: Path = KMSG, boot: Path = BOOT) -> Outcome:
    """Check the kernel log since the position `before`; the outcome has the new position."""
    if in_container():
        return skipped("a container has no kernel log of its own")
    boot_id = boot.read_text().strip()
    # The very first run only records the position: earlier Xids were handled already, or are unknown.
    since = int(before.get("sequence", -1)) if before.get("boot") == boot_id else -1
    records = [record for line in _kernel_lines(kmsg) if (record := _RECORD.match(line))]  # others continue a record
    last = max((int(record["sequence"]) for record in records), default=-1)
    log = list(_events(records))
    new = [event for event in log if before and event.sequence > since]
    outcome = combine(list(_findings(log, new)), most=_MOST) or ok(f"{len(new)} Xids, none of a broken GPU")
    outcome["place"] = {"boot": boot_id, "sequence": max(last, since)}
    return outcome


def _events(records: list[re.Match[str]]) -> Iterator[Event]:
    """Yield the events of the log. A GPU that has fallen off the bus counts once if it has its Xid too."""
    lost: list[Event] = []
    reported: set[str] = set()
    for record in records:
        when, text = (int(record["sequence"]), int(record["microseconds"]) / 1e6), record["text"]
        if match := _XID.search(text):
            number = int(match["number"])
            reported |= {match["bus"]} if number == OFF_BUS else set()
            yield Event(*when, f"Xid {number}", number, match["bus"], match["rest"])
        elif match := _SXID.search(text):
            yield Event(*when, f"SXid {match['number']}", 0, match["bus"], match["rest"])
        elif match := _OFF_BUS.search(text):
            lost.append(Event(*when, "no Xid", OFF_BUS, match["bus"] or "", ""))
    yield from (event for event in lost if event.bus not in reported and (event.bus or not reported))


def _findings(log: list[Event], new: list[Event]) -> Iterator[Finding]:
    """Yield a finding for each fault of each device that has a new event, with how often it has happened since boot."""
    seen: set[tuple[str, str, OutcomeOf]] = set()
    for event in reversed(new):
        finding = _judge(event, log)
        if finding is None or (event.name, event.bus, finding[0]) in seen:
            continue
        outcome_of, words = finding
        seen.add((event.name, event.bus, outcome_of))
        count = sum(1 for other in log if (other.name, other.bus) == (event.name, event.bus))
        where = f" of {'NVSwitch' if not event.number else 'GPU'} {event.bus}" if event.bus else ""
        who = f", process {event.process()}" if event.process() else ""
        yield outcome_of, f"{event.name} ({words}){where}{who}{f', {count} times' if count > 1 else ''}"


def _judge(event: Event, log: list[Event]) -> Finding | None:
    """Return the finding about an event; None if it says nothing against the machine."""
    if not event.number:
        return _judge_switch(event)
    if event.number == RECOVERY:
        return _judge_recovery(event)
    if event.number in NVLINK5:
        return _judge_link(event)
    if event.number in SUSPECTS:
        return _judge_suspect(event, log)
    rule = XIDS.get(event.number)
    if rule is None:
        return None
    return (warned if _has_beside(event, rule.softened, log) else rule.outcome_of), rule.words


def _judge_switch(event: Event) -> Finding | None:
    # After a fatal SXid the virtual machine has to be restarted. Others are corrected, or come with a fatal one.
    severity, _, what = event.rest.partition(", ")
    return (certain, what) if severity == "Fatal" else None


def _judge_recovery(event: Event) -> Finding | None:
    match = _RECOVERY.search(event.rest)
    outcome_of = ACTIONS.get(match["action"]) if match else None
    return (outcome_of, match["action"].lower()) if match and outcome_of else None


def _judge_link(event: Event) -> Finding:
    match = _NVLINK5.search(event.rest)
    if not match:
        return warned, "NVLink"
    return (certain if match["severity"] == "Fatal" else warned), f"NVLink, {match['what']}, {match['link']}"


def _judge_suspect(event: Event, log: list[Event]) -> Finding | None:
    alike = [other for other in log if other.number == event.number]
    processes = {other.process() for other in alike}
    if len(processes) < SUSPECT_PROCESSES or len({other.bus for other in alike}) > 1:
        return None
    return warned, f"in {len(processes)} processes on this GPU alone, so that it may be the GPU: dcgmi diag -r 3"


def _has_beside(event: Event, numbers: frozenset[int], log: list[Event]) -> bool:
    """Return whether the same GPU has one of these Xids at about the same time."""
    near = (other for other in log if abs(other.seconds - event.seconds) <= TOGETHER_SECONDS)
    return any(other.bus == event.bus and other.number in numbers for other in near)


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
