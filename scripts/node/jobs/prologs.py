"""The tree of scripts that slurmd runs before and after jobs, on the shared file system: slurm_mux.sh runs them.

slurm_mux, slurm_prolog, slurm_epilog      the dispatcher, and the two links by which slurmd starts it
etc/slurm_mux.conf                         what it must know of the cluster
etc/hpc.json                               which of the tree's files are ours: no other is ever touched
scripts/NAME                               the scripts
prolog_slurmd.d/NAME.prolog_slurmd         links to them: for every node,
partition-P-prolog_slurmd.d/...            for jobs of a partition,
nodeset-N-prolog_slurmd.d/...              for nodes of a nodeset; and the same with epilog
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from jobs.script_sources import file_digest, obtain
from system import installation, mounts, root_only, state_disk
from system.host import SetupError, folder, link, log, write

TREE = Path("/opt/apps/adm/slurm")
MUX = Path(__file__).with_name("slurm_mux.sh")
CONF, OURS = "etc/slurm_mux.conf", "etc/hpc.json"
RXDM = "scripts/rxdm"
RXDM_STAGED = f"{RXDM}.staged"  # as obtained, for the phase `rxdm` to check before it runs anywhere
RXDM_FILES = (RXDM, RXDM_STAGED, f"{RXDM}.orig", f"{RXDM}.json")


def stage(payload: dict[str, Any]) -> None:
    """Make the tree as `payload` says, and take from it what was ours and is no longer wanted.

    Everything is obtained and looked at before anything is replaced. Raises SetupError for a script that is not what
    it should be, and for files of others in the places of ours.
    """
    installation.wait_for()
    state_disk.keep(payload.get("state"))
    mounts.mount_all(payload["mounts"])
    files = {"slurm_mux": MUX.read_bytes(), CONF: _conf(payload).encode()}
    for name, source in payload["scripts"].items():
        files[f"scripts/{name}"] = obtain(name, source, TREE / "scripts" / name)
    held = bool(payload["rxdm"]) and holds(payload["rxdm"]["sha256"])
    if payload["rxdm"] and not held:
        files[RXDM_STAGED] = obtain("rxdm", payload["rxdm"], TREE / RXDM_STAGED)
    links = {"slurm_prolog": "slurm_mux", "slurm_epilog": "slurm_mux", **payload["links"]}
    wanted = {*files, *links, *(RXDM_FILES if payload["rxdm"] else ())}
    before = ours()
    _refuse_strangers({path: files.get(path) for path in wanted - before}, links)
    root_only.protect(TREE)
    for path in (TREE.parent, TREE, TREE / "etc"):
        folder(path)
    # Known as ours before they are there: a set-up that is killed leaves nothing that nobody owns.
    _keep(before | wanted)
    for path, data in files.items():
        root_only.check((TREE / path).parent)
        folder((TREE / path).parent)
        write(TREE / path, data, mode=0o644 if path == CONF else 0o755)
    # The links of a script that is still to be checked come with it: a link to nothing would drain nodes.
    connect({path: target for path, target in links.items() if _leads_to(path, target).exists()})
    # One that was staged, and then taken back in the stack, is not checked any more.
    _clear((before - wanted) | ({RXDM_STAGED} if held else set()))
    _keep(wanted)


def connect(links: dict[str, str]) -> None:
    """Have links in the tree, by their path in it."""
    for path, target in links.items():
        root_only.check((TREE / path).parent)
        folder((TREE / path).parent)
        link(TREE / path, target)


def remove() -> None:
    """Take away what is ours; files of others, and the folders that they are in, stay."""
    paths = ours()
    _clear(paths | {OURS})
    log(f"prologs: {len(paths)} files of ours are gone from {TREE}" if paths else f"prologs: nothing of ours in {TREE}")


def holds(sha256: str) -> bool:
    """Whether rxdm as it is was made from the original with this hash, and not changed since."""
    known = record()
    return known["before"] == sha256 and file_digest(TREE / RXDM) == known["after"]


def record() -> dict[str, str]:
    """What was done to rxdm last: hashes before and after, and the verdict; empty texts if nothing was."""
    kept = TREE / f"{RXDM}.json"
    return json.loads(kept.read_text()) if kept.exists() else {"before": "", "after": "", "verdict": ""}


def observe() -> dict[str, str]:
    """What is in the tree, by path: `-> TARGET` of a link that leads somewhere, SHA-256 of a file.

    rxdm is there only as it was put in place: one that was changed since is told as `changed`. A script that can't be
    run, which the dispatcher would skip, is told as `not executable`.
    """
    found: dict[str, str] = {}
    runnable = {name for name in ours() if name.startswith("scripts/")} - set(RXDM_FILES[1:]) | {"slurm_mux"}
    for path in sorted(TREE.rglob("*")):
        name = str(path.relative_to(TREE))
        if path.is_symlink() and path.exists():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            runs = path.stat().st_mode & 0o100 or name not in runnable
            found[name] = file_digest(path) if runs else "not executable"
    if found.get(RXDM, "not executable") != "not executable" and found[RXDM] != record()["after"]:
        found[RXDM] = "changed"
    return found


def ours() -> set[str]:
    """Paths in the tree, relative to it, of what we made or were about to make."""
    kept = TREE / OURS
    found = set(json.loads(kept.read_text())["paths"]) if kept.exists() else set()
    for path in found:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise SetupError(f"{kept} was changed: it names {path}. Look at what is there, and remove the file")
        root_only.check((TREE / path).parent)
    return found


def _keep(paths: Collection[str]) -> None:
    write(TREE / OURS, json.dumps({"paths": sorted(paths)}, indent=1) + "\n", quiet=True)


def _leads_to(path: str, target: str) -> Path:
    """Where a link leads; its own folder need not be there yet."""
    return TREE / os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120 - no pathlib way


def _conf(payload: dict[str, Any]) -> str:
    return (
        "# Written by the cluster's set-up.\n"
        f"cluster={payload['cluster']}\n"
        "# The nodeset of the controller's machine, if it is a node; that of others is in their names.\n"
        f"controller_nodeset={payload['controller_nodeset']}\n"
    )


def _refuse_strangers(files: dict[str, bytes | None], links: dict[str, str]) -> None:
    """What stands where ours is to go and is not the very same, we did not make."""
    strangers: list[str] = []
    for path, data in files.items():
        there = TREE / path
        if there.is_symlink():
            same = str(there.readlink()) == links.get(path)
        else:
            same = not there.exists() or (there.is_file() and data is not None and there.read_bytes() == data)
        if not same:
            strangers.append(str(there))
    if strangers:
        raise SetupError(
            f"not made by this program, and in the place of scripts of the stack: {', '.join(sorted(strangers))}; "
            "move them away, or give the scripts of the stack other names"
        )


def _clear(paths: Collection[str]) -> None:
    for path in sorted(paths):
        there = TREE / path
        if there.is_symlink() or there.is_file():
            there.unlink()
            if path != OURS:
                log(f"removed {there}")
    folders = {parent for path in paths for parent in Path(path).parents}
    for one in sorted(folders, key=lambda parent: len(parent.parts), reverse=True):
        with contextlib.suppress(OSError):  # not empty, or gone
            (TREE / one).rmdir()
