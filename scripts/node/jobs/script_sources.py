"""What a script is made of: its lines, or an address and a hash. Nothing that is not the script itself gets through."""

from __future__ import annotations

import hashlib
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from system.host import SetupError, log

TIMEOUT = 30  # seconds without an answer
TRIES, PAUSE = 3, 2.0  # against a network that is only just coming up; seconds between
LARGEST = 4 * 2**20  # bytes; a page without end must not fill the controller's memory


def obtain(name: str, source: dict[str, Any], there: Path) -> bytes:
    """The script called `name`: from its lines, from `there` if that is it already, else from its address.

    Raises SetupError for anything that is not a script, for one whose interpreter this machine lacks, and for a
    download that is not the one with the wanted hash.
    """
    if "lines" in source:
        data, origin = "\n".join(source["lines"]).encode(), f"script {name}"
    else:
        data, origin = _pinned(source["url"], source["sha256"], there), source["url"]
    if not data.startswith(b"#!/"):
        raise SetupError(
            f"{origin} is not a script: its first line names no interpreter.\n"
            f"  expected: #!/bin/bash or the like\n  found:    {first_line(data)}\n  sha256:   {digest(data)}"
        )
    interpreter = data[2:].split(b"\n", 1)[0].strip(b" \t").split(b" ")[0].split(b"\t")[0]
    if not Path(os.fsdecode(interpreter)).exists():
        raise SetupError(
            f"{origin}: there is no {interpreter!r} on this machine, by which its first line wants to be run.\n"
            "  Install it in the image, write the script for another program, or end its lines without \\r."
        )
    return data


def _pinned(url: str, sha256: str, there: Path) -> bytes:
    if there.is_file():
        data = there.read_bytes()
        if digest(data) == sha256:
            return data
    data = download(url)
    if digest(data) != sha256:
        raise SetupError(
            f"{url} is not the script that the stack names; nothing was replaced.\n"
            f"  expected sha256: {sha256}\n  found sha256:    {digest(data)}\n  first line:      {first_line(data)}\n"
            "  If the script was meant to change, read the new one and give its sha256; else use an address that "
            "does not change, such as one with a commit in it."
        )
    log(f"downloaded {url}")
    return data


def download(url: str) -> bytes:
    """What stands at an address, redirects followed. Raises SetupError in words when that is nothing."""
    why = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE)
        try:
            # The stack's file lets only https through.
            with urllib.request.urlopen(urllib.request.Request(url), timeout=TIMEOUT) as answer:  # noqa: S310
                data = answer.read(LARGEST + 1)
        except urllib.error.HTTPError as error:
            why = f"the server answered {error.code} {error.reason}"
            if error.code < 500:  # a matter of the address, not of the moment
                break
        except OSError as error:
            why = str(getattr(error, "reason", "") or error or type(error).__name__)
        else:
            if len(data) > LARGEST:
                why = f"it is larger than {LARGEST // 2**20} MiB"
                break
            return data
    raise SetupError(
        f"{url} could not be downloaded: {why}. The controller must reach it; where it has no way out, keep the script "
        "beside the project and name it as `file`"
    )


def first_line(data: bytes) -> str:
    """The first line of what was found, cut short, so that an error page shows itself."""
    line = data.lstrip().split(b"\n", 1)[0][:100].decode(errors="replace").strip()
    return line or "(nothing)"


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file; empty if there is none."""
    return digest(path.read_bytes()) if path.is_file() else ""
