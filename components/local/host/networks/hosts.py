"""/etc/hosts of a stack's machines: one file on the host, bound into every machine."""

import os
from collections.abc import Mapping
from pathlib import Path


def render(hosts: Mapping[str, str], gateway: str) -> str:
    """The file's text: the machines by name, in the order of their addresses."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback", f"{gateway} gateway"]
    by_address = sorted(hosts.items(), key=lambda item: tuple(int(part) for part in item[1].split(".")))
    lines += [f"{address} {name}" for name, address in by_address]
    return "\n".join(lines) + "\n"


def write_in_place(path: Path, text: str) -> None:
    """Give the file new content without making a new file, which the machines it is bound into would not see."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.fchmod(handle, 0o644)
        # The new text first, then the cut: a reader in between sees whole lines of one list or the other.
        os.pwrite(handle, content, 0)
        os.ftruncate(handle, len(content))
    finally:
        os.close(handle)
