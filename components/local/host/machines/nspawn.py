"""The command that runs a machine, and the end of its console."""

import re
from collections.abc import Sequence
from pathlib import Path

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])|\r")


def command(
    *, machine_id: str, hostname: str, root: Path, bridge: str, binds: Sequence[tuple[Path, str]],
    read_only_binds: Sequence[tuple[Path, str]], uuid: str,
) -> list[str]:  # fmt: skip
    """systemd-nspawn(1) for one machine.

    It is registered nowhere, as there may be no systemd to register it with, and takes nothing from the host but the
    folders bound into it: no resolver, time zone, journal or settings file.
    """
    return [
        "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--settings=no",
        f"--machine={machine_id}", f"--hostname={hostname}", f"--uuid={uuid}", f"--directory={root}",
        f"--network-bridge={bridge}",
        "--console=read-only", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
        # On cgroup v2 a job is kept from other jobs' devices by a BPF program, which slurmstepd loads.
        "--capability=CAP_BPF", "--system-call-filter=bpf",
        *[f"--bind={source}:{target}" for source, target in binds],
        *[f"--bind-ro={source}:{target}" for source, target in read_only_binds],
    ]  # fmt: skip


def console_tail(path: Path, lines: int = 20) -> list[str]:
    """The last `lines` lines of a machine's console, without colours."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - 65536))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [line for line in _ESCAPES.sub("", text).splitlines() if line.strip()][-lines:]
