"""The tree of scripts that slurmd runs before and after jobs, on the shared file system: slurm_mux.sh runs them.

slurm_mux, slurm_prolog, slurm_epilog      the dispatcher, and the two links by which slurmd starts it
etc/slurm_mux.conf                         the dispatcher's settings
etc/hpc.json                               paths of the files that this program made: it changes no others
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
TRIES, PAUSE_SECONDS = 3, 2.0  # the network may only just be coming up
MAX_BYTES = 4 * 2**20  # a page without end must not fill the controller's memory


def obtain(name: str, source: dict[str, Any], file: Path) -> bytes:
    """Return the script called `name`: from its lines, from `file` if that has the pinned hash, else from its address.

    Raises SetupError for a text that is not a script, for an interpreter that this machine does not have, and for a
    download with another hash.
    """
    if "lines" in source:
        data, origin = "\n".join(source["lines"]).encode(), f"script {name}"
    else:
        data, origin = _obtain_pinned(source["url"], source["sha256"], file), source["url"]
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


def _obtain_pinned(url: str, sha256: str, file: Path) -> bytes:
    if file_digest(file) == sha256:
        return file.read_bytes()
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
    """Return the content of an address; redirects are followed. Raises SetupError if it can't be downloaded."""
    import urllib.error  # with its HTTP client as slow to import as half of the set-up
    import urllib.request

    why = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_SECONDS)
        try:
            # The checks of stack files allow https only.
            with urllib.request.urlopen(urllib.request.Request(url), timeout=TIMEOUT) as answer:  # noqa: S310
                data = answer.read(MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            why = f"the server answered {error.code} {error.reason}"
            if error.code < 500:  # another try would fail too
                break
        except OSError as error:
            why = str(getattr(error, "reason", "") or error or type(error).__name__)
        else:
            if len(data) > MAX_BYTES:
                why = f"it is larger than {MAX_BYTES // 2**20} MiB"
                break
            return data
    raise SetupError(
        f"{url} could not be downloaded: {why}. The controller must reach it; where it has no way out, keep the script "
        "beside the project and name it as `file`"
    )


def first_line(data: bytes) -> str:
    """Return the beginning of the first line of a text, which shows an error page as one."""
    line = data.lstrip().split(b"\n", 1)[0][:100].decode(errors="replace").strip()
    return line or "(nothing)"


def digest(data: bytes) -> str:
    """Return the SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file; empty if there is none."""
    return digest(path.read_bytes()) if path.is_file() else ""


TREE = Path("/opt/apps/adm/slurm")
MUX = Path(__file__).with_name("slurm_mux.sh")
CONF, OWN_PATHS = "etc/slurm_mux.conf", "etc/hpc.json"
RXDM = "scripts/rxdm"
RXDM_STAGED = f"{RXDM}.staged"  # as obtained; phase `rxdm` checks it before it runs anywhere
RXDM_FILES = (RXDM, RXDM_STAGED, f"{RXDM}.orig", f"{RXDM}.json")


def stage(payload: dict[str, Any]) -> None:
    """Make the tree as `payload` says, and delete files that this program made and that are not wanted any more.

    Everything is obtained and checked before anything is replaced. Raises SetupError for a script that `obtain`
    refuses, and for files of others in the places of its own.
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
    is_live = bool(payload["rxdm"]) and is_unchanged_rxdm(payload["rxdm"]["sha256"])
    if payload["rxdm"] and not is_live:
        files[RXDM_STAGED] = obtain("rxdm", payload["rxdm"], TREE / RXDM_STAGED)
    links = {"slurm_prolog": "slurm_mux", "slurm_epilog": "slurm_mux", **payload["links"]}
    wanted = {*files, *links, *(RXDM_FILES if payload["rxdm"] else ())}
    before = own_paths()
    _refuse_files_of_others({path: files.get(path) for path in wanted - before}, links)
    host.protect_shared(TREE)
    for path in (TREE.parent, TREE, TREE / "etc"):
        folder(path)
    # The paths are recorded before the files exist, so that a killed set-up leaves no file that is not recorded.
    _record_paths(before | wanted)
    for path, data in files.items():
        host.require_root_only((TREE / path).parent)
        folder((TREE / path).parent)
        write(TREE / path, data, mode=0o644 if path == CONF else 0o755)
    # A link to nothing would drain nodes: phase `rxdm` makes those to a script that is not checked yet.
    targets = {path: os.path.normpath(TREE / Path(path).parent / target) for path, target in links.items()}
    make_links({path: target for path, target in links.items() if Path(targets[path]).exists()})
    # Another version that was staged before is not wanted any more.
    _delete((before - wanted) | ({RXDM_STAGED} if is_live else set()))
    _record_paths(wanted)


def make_links(links: dict[str, str]) -> None:
    """Make links in the tree, by their path in it."""
    for path, target in links.items():
        host.require_root_only((TREE / path).parent)
        folder((TREE / path).parent)
        link(TREE / path, target)


def remove() -> None:
    """Delete the files that this program made. Files of others, and the folders that they are in, stay."""
    paths = own_paths()
    _delete(paths | {OWN_PATHS})
    log(f"prologs: {len(paths)} files of ours are gone from {TREE}" if paths else f"prologs: nothing of ours in {TREE}")


def is_unchanged_rxdm(sha256: str) -> bool:
    """Return whether the rxdm that runs was made from the original with this hash, and not changed since."""
    record = rxdm_record()
    return record["before"] == sha256 and file_digest(TREE / RXDM) == record["after"]


def rxdm_record() -> dict[str, str]:
    """Return what was done to rxdm last (`outcome`), with the hashes before and after; empty texts if nothing was."""
    file = TREE / f"{RXDM}.json"
    return json.loads(file.read_text()) if file.exists() else {"before": "", "after": "", "outcome": ""}


def observe() -> dict[str, str]:
    """Return the content of the tree, by path: `-> TARGET` for a link to an existing file, the SHA-256 for a file.

    An rxdm that somebody has changed is `changed`. A script that can't be run, which the dispatcher would skip, is `not
    executable`.
    """
    entries: dict[str, str] = {}
    scripts = {name for name in own_paths() if name.startswith("scripts/")} - set(RXDM_FILES[1:]) | {"slurm_mux"}
    for path in sorted(TREE.rglob("*")):
        name = str(path.relative_to(TREE))
        if path.is_symlink() and path.exists():
            entries[name] = f"-> {path.readlink()}"
        elif path.is_file():
            is_right = path.stat().st_mode & 0o100 or name not in scripts
            entries[name] = file_digest(path) if is_right else "not executable"
    if entries.get(RXDM, "not executable") != "not executable" and entries[RXDM] != rxdm_record()["after"]:
        entries[RXDM] = "changed"
    return entries


def own_paths() -> set[str]:
    """Return the paths in the tree, relative to it, of the files that this program made or was about to make."""
    file = TREE / OWN_PATHS
    paths = set(json.loads(file.read_text())["paths"]) if file.exists() else set()
    for path in paths:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise SetupError(f"{file} was changed: it names {path}. Look at what is there, and remove the file")
        host.require_root_only((TREE / path).parent)
    return paths


def _record_paths(paths: Collection[str]) -> None:
    write(TREE / OWN_PATHS, json.dumps({"paths": sorted(paths)}, indent=1) + "\n", quiet=True)


def _refuse_files_of_others(files: dict[str, bytes | None], links: dict[str, str]) -> None:
    """Raise SetupError if something else stands in the place of a file or link of this program."""
    others: list[str] = []
    for path, data in files.items():
        entry = TREE / path
        if entry.is_symlink():
            differs = str(entry.readlink()) != links.get(path)
        else:
            differs = entry.exists() and not (entry.is_file() and entry.read_bytes() == data)
        if differs:
            others.append(str(entry))
    if others:
        raise SetupError(
            f"not made by this program, and in the place of scripts of the stack: {', '.join(sorted(others))}; "
            "move them away, or give the scripts of the stack other names"
        )


def _delete(paths: Collection[str]) -> None:
    for path in sorted(paths):
        entry = TREE / path
        if entry.is_symlink() or entry.is_file():
            entry.unlink()
            if path != OWN_PATHS:
                log(f"removed {entry}")
    folders = {parent for path in paths for parent in Path(path).parents}
    for path in sorted(folders, key=lambda parent: len(parent.parts), reverse=True):
        with contextlib.suppress(OSError):  # not empty, or gone
            (TREE / path).rmdir()


ENVIRONMENT = Path("/opt/apps/hpc/env.sh")


def keep_environment(lines: list[str]) -> None:
    """Write env.sh with these lines, in folders that only root can write to; nothing without lines."""
    if not lines:
        return
    host.require_root_only(ENVIRONMENT.parent)
    folder(ENVIRONMENT.parent)
    host.protect_shared(ENVIRONMENT.parent)
    write(ENVIRONMENT, "\n".join(lines) + "\n", mode=0o755)
