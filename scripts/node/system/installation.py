"""Wait for a machine's first boot, where that installs what no image brought."""

import json
import time
from pathlib import Path
from typing import Any

from system.host import SetupError, log

STATE = Path("/var/lib/hpc/install/state")  # running NAME, failed NAME, done
LOG = Path("/var/log/hpc-install.log")
BOOT = Path("/var/lib/hpc/boot/state")  # of the start-up script: running, failed: WHY, done
LOG_LINES = 20
IMAGE = Path("/etc/hpc/image.json")  # what scripts/image/finish/92-image.sh writes


def wait_for(*, seconds: float = 5400, interval: float = 1) -> None:
    """Wait until everything is installed, saying which step is at work; nothing on a machine that installs nothing.

    Raises SetupError with the end of the log for a step that failed, and after `seconds`.
    """
    end = time.monotonic() + seconds
    shown = ""
    while True:
        word, _, step = _read(STATE).partition(" ")
        if word in ("", "done"):
            return
        if word == "failed":
            raise SetupError(
                f"this machine's first boot failed to install {step}. Log in, mend it, and start it again with "
                f"`systemctl restart hpc-install`; {LOG} ends:\n{tail()}"
            )
        words = f"the machine is being installed: {step}"
        if _read(BOOT).startswith("failed"):
            words += f"; its start-up script says: {_read(BOOT)}"
        if words != shown:
            shown = words
            log(words)
        if time.monotonic() > end:
            raise SetupError(
                f"this machine's first boot is still at `{step}` after {seconds:.0f} s; {LOG} ends:\n{tail()}"
            )
        time.sleep(interval)


def image() -> dict[str, Any]:
    """The machine's image: recipe, snapshot (of Ubuntu's archive), made (seconds), baked; empty without an image."""
    return json.loads(_read(IMAGE) or "{}")


def tail() -> str:
    """The last lines of the log."""
    lines = LOG.read_text(errors="replace").splitlines() if LOG.exists() else ["(there is none)"]
    return "\n".join(lines[-LOG_LINES:])


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
