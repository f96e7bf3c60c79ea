"""The rxdm prolog of A3 Mega nodes: checked by its text, and patched for Ubuntu 22.04 where it is for Debian 12 only.

It appends exports to NCCL's profile where its check of the operating system holds; without them jobs on two or more
nodes fall back to plain TCP, and nothing says so. A version that is staged runs nowhere before it is checked here.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from jobs import prologs, rxdm_trial
from jobs.os_check import OK, PATCH, classify, patch, proven, unpatch
from jobs.script_sources import digest, file_digest
from system.host import SetupError, log, write

REFUSE = "refuse"


def converge(payload: dict[str, Any]) -> None:
    """Put the prolog with the hash `sha256` in its place, patched if it has to be, then link it to its partitions.

    `known` has the results for known versions, by hash; others are checked by their text, then tried.
    Nothing is written before all is checked, and what an interrupted run wrote is recognised by its hash, so that this
    can be ended at any point. Raises SetupError, with everything left as it is, for one that is not understood.
    """
    live, staged, orig = (prologs.TREE / name for name in prologs.RXDM_FILES[:3])
    before = payload["sha256"]
    data = _original(before)
    text = data.decode(errors="surrogateescape")
    known = payload["known"].get(before)
    verdict, why = _verdict(known, text)
    if verdict == REFUSE:
        raise SetupError(
            f"the rxdm prolog is not one that this program knows how to make right for Ubuntu 22.04: {why}.\n"
            f"  file:   {staged if staged.exists() else live}, left as it is; no job runs it\n  sha256: {before}\n"
            "  Leave `url`, `sha256` and `file` of slurm.rxdm out for the newest version that is known to be right; "
            "docs/guides/prologs.md lists all"
        )
    if verdict == PATCH:
        text = patch(text)
    wrong = (proven(text) if verdict == PATCH else "") or _unreadable(text) or ("" if known else rxdm_trial.wrong(text))
    if wrong:
        raise SetupError(f"the rxdm prolog (sha256 {before}) can't be used: {wrong}; it was left as it is")
    if verdict == PATCH:
        write(orig, data, mode=0o755, quiet=True)
    after = replace(live, text.encode(errors="surrogateescape"))
    _keep(before=before, after=after, verdict=verdict)
    if verdict != PATCH:
        orig.unlink(missing_ok=True)
    staged.unlink(missing_ok=True)
    prologs.connect(payload["links"])
    log(f"rxdm: {'patched' if verdict == PATCH else 'already right'} for Ubuntu 22.04 ({why})")
    log(f"rxdm: sha256 {before}" + (f" before, {after} after" if after != before else ""))


def undo() -> None:
    """Put the original back where we patched it. Nothing there, or something of somebody else's, is left alone."""
    live, _, orig = (prologs.TREE / name for name in prologs.RXDM_FILES[:3])
    known = prologs.record()
    if known["verdict"] != PATCH or file_digest(live) != known["after"]:
        log("rxdm: nothing to put back")
        return
    replace(live, _original(known["before"]))
    _keep(before=known["before"], after=known["before"], verdict="original")
    orig.unlink(missing_ok=True)
    log(f"rxdm: the original is back, sha256 {known['before']}")


def _original(sha256: str) -> bytes:
    """The version with this hash: as staged, as it was kept, as it runs, or as it runs without the patch.

    A file is known by its hash alone: what a run that failed left in one of these places may be another version.
    """
    live, staged, orig = (prologs.TREE / name for name in prologs.RXDM_FILES[:3])
    for path in (staged, orig, live):
        if file_digest(path) == sha256:
            return path.read_bytes()
    if live.is_file():
        data = unpatch(live.read_bytes().decode(errors="surrogateescape")).encode(errors="surrogateescape")
        if digest(data) == sha256:
            return data
    raise SetupError(
        f"none of the files {live}* is the version of the rxdm prolog with sha256 {sha256}; "
        "`./hpc drift STACK --mend` stages it again"
    )


def _verdict(known: str | None, text: str) -> tuple[str, str]:
    if known == REFUSE:
        return REFUSE, "this version writes no exports for NCCL, on any system"
    found, why = classify(text)
    if known == OK:
        return OK, "this version is known"
    if known == PATCH and found == PATCH:
        return PATCH, "this version is known, and checks for Debian 12 only"
    return (found, why) if found in {OK, PATCH} else (REFUSE, why)


def _unreadable(text: str) -> str:
    """What bash has against a script; nothing if it can read it."""
    check = subprocess.run(
        ["bash", "-n"], input=text.encode(errors="surrogateescape"), capture_output=True, timeout=30, check=False
    )
    return f"bash cannot read it: {check.stderr.decode(errors='replace').strip()}" if check.returncode else ""


def replace(path: Path, data: bytes) -> str:
    """Make a script hold `data`, in one step and with the owner and mode that it had; its hash.

    Where `path` is a link, the file that it leads to is replaced. A mode that lets nobody run it becomes 0755.
    """
    real = path.resolve()
    old = real.stat() if real.exists() else None
    mode = old.st_mode & 0o7777 if old and old.st_mode & 0o100 else 0o755
    if old and real.read_bytes() == data:
        if old.st_mode & 0o7777 != mode:
            real.chmod(mode)
            log(f"made {real} executable")
        return digest(data)
    handle, temporary = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chown(temporary, old.st_uid if old else 0, old.st_gid if old else 0)
        Path(temporary).chmod(mode)
        Path(temporary).replace(real)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    log(f"wrote {real}")
    return digest(data)


def _keep(*, before: str, after: str, verdict: str) -> None:
    told = {"before": before, "after": after, "verdict": verdict}
    write(prologs.TREE / f"{prologs.RXDM}.json", json.dumps(told, indent=1) + "\n", quiet=True)
