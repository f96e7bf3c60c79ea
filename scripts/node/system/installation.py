"""Packages that a machine without a baked image installs at its first boot, and the image of a machine."""

import json
import time
from pathlib import Path
from typing import Any

from system.host import SetupError, log

STATE = Path("/var/lib/hpc/install/state")  # running NAME, failed NAME, done
LOG = Path("/var/log/hpc-install.log")
BOOT = Path("/var/lib/hpc/boot/state")  # written by the start-up script: running, failed: WHY, done
LOG_LINES = 20
IMAGE = Path("/etc/hpc/image.json")  # written by scripts/image/finish/92-image.sh


def wait_until_installed(*, seconds: float = 5400, interval: float = 1) -> None:
    """Wait until the first boot has installed everything, and log each step; return at once if it installs nothing.

    Raises SetupError with the end of the log if a step fails, and after `seconds`.
    """
    end = time.monotonic() + seconds
    logged = ""
    while True:
        state, _, step = _read(STATE).partition(" ")
        if state in ("", "done"):
            return
        if state == "failed":
            raise SetupError(
                f"this machine's first boot failed to install {step}. Log in, mend it, and start it again with "
                f"`systemctl restart hpc-install`; {LOG} ends:\n{_log_tail()}"
            )
        message = f"the machine is being installed: {step}"
        if _read(BOOT).startswith("failed"):
            message += f"; its start-up script says: {_read(BOOT)}"
        if message != logged:
            logged = message
            log(message)
        if time.monotonic() > end:
            raise SetupError(
                f"this machine's first boot is still at `{step}` after {seconds:.0f} s; {LOG} ends:\n{_log_tail()}"
            )
        time.sleep(interval)


def image() -> dict[str, Any]:
    """Return facts of the machine's image, empty without one: recipe, snapshot (of Ubuntu's archive), kernel, made
    (seconds since the epoch), baked."""
    return json.loads(_read(IMAGE) or "{}")


def _log_tail() -> str:
    lines = LOG.read_text(errors="replace").splitlines() if LOG.exists() else ["(there is none)"]
    return "\n".join(lines[-LOG_LINES:])


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
