"""The lines that a job of this program writes before nccl-tests starts: what the log itself does not have.

    # hpc nccl {"machine_type": "a3-megagpu-8g", "nodes": 2, "collective": "all_gather"}

A report reads `machine_type`, `nodes`, `collective`, `over` ("fabric" if NVLink was not to be used) and `date` (UTC, ISO
8601). A later line adds to the ones before.
"""

import json

MARK = "# hpc nccl "


def parse(line: str) -> dict[str, str]:
    """Facts of a line that begins with MARK, as text; none of a line that is cut short."""
    try:
        found = json.loads(line[len(MARK) :])
    except ValueError:
        return {}
    values = found.items() if isinstance(found, dict) else ()
    return {str(key): str(value) for key, value in values if value not in (None, "")}
