"""The rxdm prolog of A3 Mega nodes: judged by its text, patched for Ubuntu 22.04 where it is for Debian 12 only.

It appends exports to NCCL's profile where its check of the operating system holds; without them jobs on two or more
nodes fall back to plain TCP, and nothing says so. A version that is staged runs nowhere before it is judged here.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import prologs
from predicate import OK, PATCH, judge, patch, proven, unpatch
from sources import digest, file_digest
from system import SetupError, say, write

REFUSE = "refuse"


def converge(payload: dict[str, Any]) -> None:
    """Put the staged prolog in its place, patched if it has to be, then link it to its partitions.

    `known` has the verdicts on the versions that are known by their hash; others are judged by their text. Raises
    SetupError, with everything left as it is, for one that cannot be judged.
    """
    live, staged, orig = (prologs.TREE / name for name in prologs.RXDM_FILES[:3])
    source = (
        staged
        if staged.exists()
        else orig
        if orig.exists() and file_digest(live) == prologs.record()["after"]
        else live
    )
    if not source.exists():
        raise SetupError(f"{live} is not there; change something under `slurm.rxdm` and run `up`, which stages it")
    before = file_digest(source)
    data = source.read_bytes()
    text = data.decode(errors="surrogateescape")
    verdict, why = _verdict(payload["known"].get(before), text)
    if verdict == REFUSE:
        raise SetupError(
            f"the rxdm prolog is not one that this program knows how to make right for Ubuntu 22.04: {why}.\n"
            f"  file:   {source}, left as it is; no job runs it\n  sha256: {before}\n"
            "  Leave `url`, `sha256` and `file` of slurm.rxdm out for the newest version that is known to be right; "
            "docs/prologs.md lists all"
        )
    if verdict == PATCH:
        text = patch(text)
        if wrong := proven(text):
            raise SetupError(f"the rxdm prolog (sha256 {before}) could not be patched: {wrong}; it was left as it is")
        write(orig, data, mode=0o755, quiet=True)
    after = replace(live, text.encode(errors="surrogateescape"))
    if verdict != PATCH:
        orig.unlink(missing_ok=True)
    _keep(before=before, after=after, verdict=verdict)
    staged.unlink(missing_ok=True)
    prologs.connect(payload["links"])
    say(f"rxdm: {'patched' if verdict == PATCH else 'already right'} for Ubuntu 22.04 ({why})")
    say(f"rxdm: sha256 {before}" + (f" before, {after} after" if after != before else ""))


def undo() -> None:
    """Put the original back where we patched it. Nothing there, or something of somebody else's, is left alone."""
    live, _, orig = (prologs.TREE / name for name in prologs.RXDM_FILES[:3])
    known = prologs.record()
    if known["verdict"] != PATCH or file_digest(live) != known["after"]:
        say("rxdm: nothing to put back")
        return
    back = orig.read_bytes() if file_digest(orig) == known["before"] else None
    if back is None:
        text = unpatch(live.read_bytes().decode(errors="surrogateescape"))
        back = text.encode(errors="surrogateescape")
    replace(live, back)
    _keep(before=known["before"], after=known["before"], verdict="original")
    orig.unlink(missing_ok=True)
    say(f"rxdm: the original is back, sha256 {known['before']}")


def _verdict(known: str | None, text: str) -> tuple[str, str]:
    if known == REFUSE:
        return REFUSE, "this version writes no exports for NCCL, on any system"
    found, why = judge(text)
    if known == OK:
        return OK, "this version is known"
    if known == PATCH and found == PATCH:
        return PATCH, "this version is known, and checks for Debian 12 only"
    return (found, why) if found in {OK, PATCH} else (REFUSE, why)


def replace(path: Path, data: bytes) -> str:
    """Make a script hold `data`, in one step and with the mode and owner that it had; its hash.

    Where `path` is a link, the file that it leads to is replaced. Raises SetupError when bash cannot read the result.
    """
    real = path.resolve()
    old = real.stat() if real.exists() else None
    if old and real.read_bytes() == data:
        return digest(data)
    handle, temporary = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        check = subprocess.run(["bash", "-n", temporary], capture_output=True, text=True, timeout=30, check=False)
        if check.returncode:
            raise SetupError(f"{path}: bash cannot read it: {check.stderr.strip()}; it was left as it is")
        os.chown(temporary, old.st_uid if old else 0, old.st_gid if old else 0)
        Path(temporary).chmod(old.st_mode & 0o7777 if old else 0o755)
        Path(temporary).replace(real)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    say(f"wrote {real}")
    return digest(data)


def _keep(*, before: str, after: str, verdict: str) -> None:
    told = {"before": before, "after": after, "verdict": verdict}
    write(prologs.TREE / f"{prologs.RXDM}.json", json.dumps(told, indent=1) + "\n", quiet=True)
