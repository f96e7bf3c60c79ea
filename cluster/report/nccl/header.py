"""The line that a job of this program writes before nccl-tests starts: what the log itself does not have.

    # hpc: machine_type=a3-megagpu-8g nodes=2 collective=all_gather job=17 date=2026-11-22T09:00:00Z

Keys that a report reads: `machine_type`, `nodes`, `collective`, `nodelist`, `job`, `date` (UTC). Others are kept.
"""

import re

MARK = "# hpc:"
_WORD = re.compile(r"([a-z_]+)=(\S*)")


def header(**facts: str | int) -> str:
    """The line; values may not have blanks."""
    return " ".join([MARK, *(f"{key}={value}" for key, value in facts.items())])


def parse(line: str) -> dict[str, str]:
    """Facts of a line that begins with MARK; empty values are left out."""
    return {key: value for key, value in _WORD.findall(line[len(MARK) :]) if value}
