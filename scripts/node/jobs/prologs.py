"""The tree of scripts that slurmd runs before and after jobs, on the shared file system: slurm_mux.sh runs them.

slurm_mux, slurm_prolog, slurm_epilog      the dispatcher, and the two links by which slurmd starts it
etc/slurm_mux.conf                         what it must know of the cluster
etc/hpc.json                               which of the tree's files are ours: no other is ever touched
scripts/NAME                               the scripts
prolog_slurmd.d/NAME.prolog_slurmd         links to them: for every node,
partition-P-prolog_slurmd.d/...            for jobs of a partition,
nodeset-N-prolog_slurmd.d/...              for nodes of a nodeset; and the same with epilog
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from system import host, installation, mounts, state_disk
from system.host import SetupError, folder, link, log, write

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
            f"{origin}: there is no {interpreter!r} on this machine, which its first line names.\n"
            "  Install it in the image, write the script for another program, or end its lines without \\r."
        )
    return data


def _pinned(url: str, sha256: str, there: Path) -> bytes:
    if file_digest(there) == sha256:
        return there.read_bytes()
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
    """Return what stands at an address, redirects followed. Raises SetupError in words when that is nothing."""
    import urllib.error  # with its HTTP client as slow to import as half of the set-up
    import urllib.request

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
    installation.wait_until_installed()
    state_disk.converge(payload.get("state"))
    mounts.mount_all(payload["mounts"])
    conf = (
        "# Written by the cluster's set-up.\n"
        f"cluster={payload['cluster']}\n"
        "# The nodeset of the controller's machine, if it is a node; that of others is in their names.\n"
        f"controller_nodeset={payload['controller_nodeset']}\n"
    )
    files = {"slurm_mux": MUX.read_bytes(), CONF: conf.encode()}
    for name, source in payload["scripts"].items():
        files[f"scripts/{name}"] = obtain(name, source, TREE / "scripts" / name)
    held = bool(payload["rxdm"]) and holds(payload["rxdm"]["sha256"])
    if payload["rxdm"] and not held:
        files[RXDM_STAGED] = obtain("rxdm", payload["rxdm"], TREE / RXDM_STAGED)
    links = {"slurm_prolog": "slurm_mux", "slurm_epilog": "slurm_mux", **payload["links"]}
    wanted = {*files, *links, *(RXDM_FILES if payload["rxdm"] else ())}
    before = ours()
    _refuse_strangers({path: files.get(path) for path in wanted - before}, links)
    host.protect_shared(TREE)
    for path in (TREE.parent, TREE, TREE / "etc"):
        folder(path)
    # Known as ours before they are there: a set-up that is killed leaves nothing that nobody owns.
    _keep(before | wanted)
    for path, data in files.items():
        host.require_root_only((TREE / path).parent)
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
        host.require_root_only((TREE / path).parent)
        folder((TREE / path).parent)
        link(TREE / path, target)


def remove() -> None:
    """Take away what is ours; files of others, and the folders that they are in, stay."""
    paths = ours()
    _clear(paths | {OURS})
    log(f"prologs: {len(paths)} files of ours are gone from {TREE}" if paths else f"prologs: nothing of ours in {TREE}")


def holds(sha256: str) -> bool:
    """Return whether rxdm as it is was made from the original with this hash, and not changed since."""
    known = record()
    return known["before"] == sha256 and file_digest(TREE / RXDM) == known["after"]


def record() -> dict[str, str]:
    """Return what was done to rxdm last (`outcome`), with the hashes before and after; empty texts if nothing was."""
    kept = TREE / f"{RXDM}.json"
    return json.loads(kept.read_text()) if kept.exists() else {"before": "", "after": "", "outcome": ""}


def observe() -> dict[str, str]:
    """Return what is in the tree, by path: `-> TARGET` of a link that leads somewhere, SHA-256 of a file.

    rxdm is there only as it was put in place: one that was changed since is `changed`. A script that can't be
    run, which the dispatcher would skip, is `not executable`.
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
        host.require_root_only((TREE / path).parent)
    return found


def _keep(paths: Collection[str]) -> None:
    write(TREE / OURS, json.dumps({"paths": sorted(paths)}, indent=1) + "\n", quiet=True)


def _leads_to(path: str, target: str) -> Path:
    """Return where a link leads; its own folder need not be there yet."""
    return TREE / os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120 - no pathlib way


def _refuse_strangers(files: dict[str, bytes | None], links: dict[str, str]) -> None:
    """Raises SetupError where something else stands in the place of a file or link of ours."""
    strangers: list[str] = []
    for path, data in files.items():
        there = TREE / path
        if there.is_symlink():
            another = str(there.readlink()) != links.get(path)
        else:
            another = there.exists() and not (there.is_file() and there.read_bytes() == data)
        if another:
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
    for path in sorted(folders, key=lambda parent: len(parent.parts), reverse=True):
        with contextlib.suppress(OSError):  # not empty, or gone
            (TREE / path).rmdir()


ENVIRONMENT = Path("/opt/apps/hpc/env.sh")


def keep_environment(lines: list[str]) -> None:
    """Have env.sh with these lines, where nobody but root can put another in its place; nothing without lines."""
    if not lines:
        return
    host.require_root_only(ENVIRONMENT.parent)
    folder(ENVIRONMENT.parent)
    host.protect_shared(ENVIRONMENT.parent)
    write(ENVIRONMENT, "\n".join(lines) + "\n", mode=0o755)
