"""How a machine asks whether the Lustre file system is up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.config.lustre import Lustre

SCRIPT = Path(__file__).parents[4] / "scripts" / "lustre" / "ready.sh"
SECONDS: dict[str, int] = {"exascaler": 1800, "managed": 300}
"""How long it is waited for. EXAScaler's servers format their disks one after the other; Google's are up when made."""


def probe(lustre: Lustre, address: str) -> str:
    """A shell command that waits, within bounds, until the file system at `address` answers, and says what is missing.

    Runs anywhere in the system network; needs bash alone, and changes nothing.
    """
    web = " --web" if lustre.kind == "exascaler" else ""
    return f"bash -s -- {address} {SECONDS[lustre.kind]}{web} <<'LUSTRE_READY'\n{SCRIPT.read_text()}LUSTRE_READY\n"
