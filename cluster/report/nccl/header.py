"""The line that a job of this program writes before nccl-tests starts: what the log itself does not have.

    # hpc: machine_type=a3-megagpu-8g nodes=2 collective=all_gather job=17 date=2026-11-22T09:00:00Z

A report reads `machine_type`, `nodes`, `collective`, `over` (`fabric` if NVLink was not to be used) and `date` (UTC,
ISO 8601). A later line adds to the ones before.
"""

import re

MARK = "# hpc:"
_FACT = re.compile(r"([a-z_]+)=(\S+)")


def parse(line: str) -> dict[str, str]:
    """Facts of a line that begins with MARK; those without a value are left out."""
    return dict(_FACT.findall(line[len(MARK) :]))
