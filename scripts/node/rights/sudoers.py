"""Who becomes root by sudo: a file of ours beside the system's own, which is never edited.

The whole file follows from the configuration, so somebody who loses the right, or leaves, is not in the next one.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from interface import User
from system.host import SetupError, log, run, write

# sudo reads the files of this folder whose names have no dot (sudoers(5), includedir).
FILE = Path("/etc/sudoers.d/hpc-users")
HEAD = "# Written by the cluster's set-up: users with `sudo: true` in the stack file.\n"


def converge(users: list[User]) -> bool:
    """Have exactly these users of ours in sudoers, those with `sudo`; True when anything changed.

    A machine without sudo is left without the file. Raises SetupError: visudo refuses the file, which is not installed.
    """
    names = sorted(user["name"] for user in users if user.get("sudo"))
    if not installed():
        if names:
            log(f"sudo is not installed on this machine: {', '.join(names)} can't use it here")
        return _remove()
    if not names:
        return _remove()
    text = HEAD + "".join(f"{name} ALL=(ALL:ALL) NOPASSWD: ALL\n" for name in names)
    _check(text)
    changed = write(FILE, text, mode=0o440, quiet=True)
    if changed:
        log(f"sudo: {', '.join(names)}")
    return changed


def named() -> set[str] | None:
    """Users whom our file names; None on a machine without sudo."""
    if not installed():
        return None
    try:
        lines = FILE.read_text().splitlines()
    except FileNotFoundError:
        return set()
    return {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}


def installed() -> bool:
    """Whether this machine has sudo, and visudo, which checks its files."""
    return all(shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") for name in ("sudo", "visudo"))


def _remove() -> bool:
    try:
        FILE.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    log("sudo: nobody")
    return True


def _check(text: str) -> None:
    """A file with an error in it would keep everybody from using sudo."""
    with tempfile.NamedTemporaryFile("w", prefix="hpc-sudoers-") as file:
        file.write(text)
        file.flush()
        try:
            run("visudo", "--check", "--quiet", f"--file={file.name}")
        except SetupError as error:
            raise SetupError(f"sudoers is left as it was: {error}") from None
