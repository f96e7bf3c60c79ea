"""Plugins of Slurm's commands and steps: plugstack.conf, as a distribution brings it."""

from __future__ import annotations

from pathlib import Path

from system.host import write

ETC = Path("/etc/slurm")
EMPTY = "# Written by the cluster's set-up: there is no SPANK plugin.\n"


def drop_empty_include(etc: Path = ETC) -> bool:
    """Leave out the pattern that Debian 13's plugstack.conf includes while no file is of it; True when that was done.

    slurmctld can't send patterns to machines that fetch their files from it: each of its starts, and each of their
    requests, would be an error in its log (src/common/parse_config.c, from 23.11 on).
    """
    file = etc / "plugstack.conf"
    if not file.is_file() or any((etc / "plugstack.conf.d").glob("*.conf")):
        return False
    said = [line.split() for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    if said != [["include", f"{ETC}/plugstack.conf.d/*.conf"]]:
        return False
    return write(file, EMPTY)
