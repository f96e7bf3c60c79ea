"""The check of NVLinks by the output of `nvidia-smi nvlink`: inactive and slow links, and errors since the last check.

Sources: NVIDIA/DCGM 72fa3fe, modules/health/DcgmHealthWatch.cpp (MonitorNVLink4Fields, MonitorNVLink5Fields,
MonitorNVLinkErrorFields, MonitorNVLinkStatus) and common/DcgmGPUHardwareLimits.h. Names of counters: of Hopper the
output of driver 550 in stas00/ml-engineering; of Blackwell that of driver 595.91.07 on a p6-b300.48xlarge of AWS, the
same names as in Google's GPU check for GKE (2026, TestParseNVLinkErrorLine). marin-community/marin, issue 9086: on 320
sound GPUs they stayed at 0; a link with recoveries that succeeded failed days later.
"""

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from health.check_kinds import REPAIRED_A_SECOND
from health.outcome import Finding, Outcome, certain, combine, failed, ok, skipped, warned

_GPU = re.compile(r"^GPU (?P<gpu>[0-9]+):")
_COUNTER = re.compile(r"Link (?P<link>[0-9]+): (?P<name>[A-Z][A-Za-z ]+): (?P<errors>[0-9]+)\s*$")
_STATUS = re.compile(r"Link (?P<link>[0-9]+): (?P<state><inactive>|(?P<gbps>[0-9.]+) GB/s)")
_MOST_LINKS = 6
Meaning = Literal["repaired", "lost", "noted"]
COUNTERS: Mapping[str, Meaning] = {
    # Up to Hopper. A link that receives a packet with a wrong checksum has it sent again: a replay. In a recovery it is
    # trained again, and jobs wait.
    "CRC Errors": "repaired",
    "Replay Errors": "repaired",
    "Recovery Errors": "lost",
    # From Blackwell on. Effective errors are those that are left after forward error correction, and their packets are
    # sent again; symbol errors are left after that. Remote errors and discards have their cause at the other end. FEC
    # errors, bit error rates and totals are no faults, or are counted here already.
    "Effective Errors": "repaired",
    "Symbol Errors": "lost",
    "Malformed packet Errors": "lost",
    "Buffer overrun Errors": "lost",
    "Rx Errors": "lost",
    "Rx General Errors": "lost",
    "Local link integrity Errors": "lost",
    "Link recovery failed events": "lost",
    "Link recovery successful events": "noted",
    "Rx remote Errors": "noted",
    "Tx discards": "noted",
}
"""Counters: those that the link repairs fail from REPAIRED_A_SECOND on, lost ones above the stack's limit, and noted
ones never. Below that each new error is a warning."""


def nvlink(
    status: str,
    errors: str,
    *,
    most: int,
    expected: int,
    before: dict[str, Any],
    gbps: float = 0,
    found: list[Finding] | None = None,
    now: float = 0,
) -> Outcome:
    """Check links by `nvidia-smi nvlink --status` and `--errorcounters`, beside what was `found` about the fabric.

    `expected` is the number of active links per GPU, 0 if some are inactive by design; `gbps` is the speed of each, 0
    for that of the fastest. Only errors since the last run count, because the training of a link at boot causes some.
    """
    links = dict(_links(status, _STATUS))
    # For a GPU whose links are all inactive, nvidia-smi prints no link (leptonai/gpud, issue 1085).
    gpus = [match["gpu"] for line in status.splitlines() if (match := _GPU.match(line))]
    if not links and not (expected and gpus) and not found:
        return skipped("the driver reports no NVLink")
    findings: list[Finding] = list(found or ())
    for gpu in gpus if expected else ():
        listed = sum(1 for link in links if link.startswith(f"GPU {gpu} "))
        if listed < expected:
            findings.append((certain, f"GPU {gpu}: {listed} of {expected} links"))
    speeds = {link: float(match["gbps"]) for link, match in links.items() if match["gbps"]}
    findings += [(certain, f"{link} is inactive") for link in links if expected and link not in speeds]
    least = gbps or max(speeds.values(), default=0)
    findings += [
        (failed, f"{link} runs at {speed:g} GB/s, least {least:g}") for link, speed in speeds.items() if speed < least
    ]
    now = now or time.time()
    counts: dict[str, int] = {}
    for link, match in _links(errors, _COUNTER):
        name = "CRC Errors" if match["name"].startswith("CRC ") else match["name"]
        if name in COUNTERS:
            counts[f"{link} {name}"] = counts.get(f"{link} {name}", 0) + int(match["errors"])
    findings += _new_errors(counts, before, most, now)
    outcome = combine(findings, most=_MOST_LINKS) or ok(f"{len(speeds)} links active")
    outcome["place"] = {"counts": counts, "time": now}
    return outcome


def _new_errors(counts: dict[str, int], before: dict[str, Any], most: int, now: float) -> Iterator[Finding]:
    """Yield findings about the errors since the last run."""
    earlier, seconds = before.get("counts", {}), max(now - before.get("time", now), 1.0)
    for counter, count in counts.items():
        # The first run only records the counters. They start at 0 when the driver is loaded again.
        added = count - earlier.get(counter, count) if count >= earlier.get(counter, count) else count
        if not added:
            continue
        link, name = _split(counter)
        meaning = COUNTERS[name]
        if meaning == "repaired" and added / seconds >= REPAIRED_A_SECOND:
            yield failed, f"{link}: {added / seconds:.0f} {name} a second, most {REPAIRED_A_SECOND}"
        elif meaning == "lost" and added > most:
            yield failed, f"{link}: {added} {name} since the last check, most {most}"
        else:
            yield warned, f"{link}: {added} {name} since the last check"


def _split(counter: str) -> tuple[str, str]:
    """Return the link and the name in `GPU 0 link 3 Replay Errors`."""
    words = counter.split(" ")
    return " ".join(words[:4]), " ".join(words[4:])


def _links(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the name of a link, and the match, for each line of a link in the output of `nvidia-smi nvlink`."""
    gpu = "?"
    for line in text.splitlines():
        if match := _GPU.match(line):
            gpu = match["gpu"]
        elif match := pattern.search(line):
            yield f"GPU {gpu} link {match['link']}", match
