"""The machine's file systems: lines in /etc/fstab, marked as ours, and mounted.

fstab rather than a mount of our own: the machine mounts them again at every boot, and an operator finds them where they
are looked for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypedDict

from system import SetupError, run, say, succeeds, wait, write
from textblock import with_block


class Mount(TypedDict):
    """One file system: what `mount -t fs_type -o options source target` takes."""

    source: str
    target: str
    fs_type: str
    options: str


def mount_all(mounts: list[Mount], *, fstab: Path = Path("/etc/fstab"), seconds: float = 120) -> bool:
    """Have every mount in fstab and mounted; True when anything had to change.

    A server that is not there yet is waited for, up to `seconds` each. Raises SetupError with the mount's own message.
    """
    changed = write(fstab, with_block(fstab.read_text() if fstab.exists() else "", fstab_lines(mounts)))
    if changed:
        run("systemctl", "daemon-reload")
    # Minimal images leave this target off, and with it every network file system at the next boot.
    if mounts and not succeeds("systemctl", "is-enabled", "--quiet", "remote-fs.target"):
        run("systemctl", "enable", "--quiet", "remote-fs.target")
    # A parent before what lies inside it: /opt before /opt/apps.
    for mount in sorted(mounts, key=lambda m: m["target"].count("/")):
        target = mount["target"]
        if os.path.ismount(target):
            continue
        Path(target).mkdir(parents=True, exist_ok=True)
        if not succeeds("mount", target):
            try:
                wait(f"the mount of {target}", lambda t=target: succeeds("mount", t), seconds=seconds, interval=1)
            except SetupError:
                run("mount", target)  # once more, for its own words
        say(f"mounted {mount['source']} on {target}")
        changed = True
    return changed


def fstab_lines(mounts: list[Mount]) -> list[str]:
    """The fstab lines of `mounts`; a blank in a path is written as fstab(5) wants it."""
    return [
        " ".join(
            field.replace(" ", "\\040")
            for field in (m["source"], m["target"], m["fs_type"], m["options"] or "defaults")
        )
        + " 0 0"
        for m in mounts
    ]
