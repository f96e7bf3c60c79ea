"""Xids of NVIDIA's driver in the kernel's log: errors of GPUs that other checks see later, or not at all.

Source: NVIDIA/DCGM 72fa3fe, modules/health/DcgmHealthWatch.cpp, BuildXidMappings (which fail and which warn), and
dcgmlib/src/DcgmKmsgReader.cpp (the line's form). /dev/kmsg: Documentation/ABI/testing/dev-kmsg of the kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from health.outcome import Outcome, failed, in_container, ok, skipped, warned

FATAL = {
    48: "double bit ECC error", 64: "a row or page could not be remapped", 74: "NVLink error",
    79: "the GPU has fallen off the bus", 95: "uncontained memory error", 119: "GSP RPC timeout", 120: "GSP error",
    140: "unrecovered ECC error",
}  # fmt: skip
WARNING = {63: "a row or page is remapped at the next reset", 94: "contained memory error"}
KMSG = Path("/dev/kmsg")
BOOT = Path("/proc/sys/kernel/random/boot_id")
_RECORD = re.compile(r"[0-9]+,(?P<sequence>[0-9]+),[0-9]+,[^;]*;(?P<text>.*)")
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9A-Fa-f:.]+)\): (?P<number>[0-9]+),(?P<rest>.*)")
_PROCESS = re.compile(r"\bpid='?(?P<pid>[0-9]+)")
_MOST = 5


class Xid(NamedTuple):
    number: int
    bus: str
    pid: str


def xids(before: dict[str, Any], kmsg: Path = KMSG, boot: Path = BOOT) -> Outcome:
    """The verdict on Xids since the last run, whose place in the log is `before`; the outcome has the new place."""
    if in_container():
        return skipped("a container has no kernel log of its own")
    now = boot.read_text().strip()
    # The first run of all takes the place alone: what was before it has been looked at, or nobody knows.
    since = int(before.get("sequence", -1)) if before.get("boot") == now else -1
    last = since
    found: list[Xid] = []
    for sequence, text in records(_lines(kmsg)):
        last = max(last, sequence)
        if before and sequence > since and (xid := parse(text)):
            found.append(xid)
    outcome = verdict(found)
    outcome["place"] = {"boot": now, "sequence": last}
    return outcome


def verdict(found: list[Xid]) -> Outcome:
    """The verdict on Xids: of the others, most are an application's own fault."""
    if fatal := _texts(FATAL, found):
        return failed(", ".join(fatal))
    texts = _texts(WARNING, found)
    return warned(", ".join(texts)) if texts else ok(f"{len(found)} Xids, none of a broken GPU")


def parse(text: str) -> Xid | None:
    """The Xid of a line; None for another line."""
    if not (line := _XID.search(text)):
        return None
    process = _PROCESS.search(line["rest"])
    return Xid(int(line["number"]), line["bus"], process["pid"] if process else "")


def records(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Number and text of each record; lines that go on one have none."""
    for line in lines:
        if record := _RECORD.match(line):
            yield int(record["sequence"]), record["text"]


def _texts(known: dict[int, str], found: Iterable[Xid]) -> list[str]:
    texts = [
        f"Xid {one.number} ({known[one.number]}) of GPU {one.bus}" + (f", process {one.pid}" if one.pid else "")
        for one in found
        if one.number in known
    ]
    return list(dict.fromkeys(texts))[:_MOST]


def _lines(path: Path) -> Iterator[str]:
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
