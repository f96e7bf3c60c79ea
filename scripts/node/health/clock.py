"""The clock of this node beside that of the controller, which MUNGE and every file's time depend on."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone

from health.outcome import Outcome, ask, ok, unsure
from system.host import SetupError

# slurmctld fills the time in when it is asked (src/slurmctld/read_config.c, fill_ctld_conf).
_ASKED = re.compile(r"^Configuration data as of (\S+)$", re.MULTILINE)


def clock(most: int) -> Outcome:
    """Compare the clocks, within the second that slurmctld prints. Raises SetupError: slurmctld does not answer."""
    before = time.time()
    code, said = ask("scontrol", "show", "config")
    after = time.time()
    found = _ASKED.search(said)
    if code or not found:
        raise SetupError("slurmctld does not answer")
    return compare(found[1], before, after, most)


def compare(theirs: str, before: float, after: float, most: int) -> Outcome:
    """The verdict on a time that slurmctld printed, in UTC, between two times of this node."""
    there = datetime.fromisoformat(theirs).replace(tzinfo=timezone.utc).timestamp()
    # It printed a whole second, which had begun less than one ago.
    ahead = before - (there + 1) if before > there + 1 else min(after - there, 0.0)
    if abs(ahead) > most:
        return unsure(f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the controller, most {most} s")
    return ok(f"within {max(abs(ahead), 1.0):.0f} s of the controller")
