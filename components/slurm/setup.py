"""The set-up that runs on the machines: the files of scripts/node, and the commands that start its phases."""

import hashlib
import json
import shlex
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "scripts" / "node"
TARGET = "/usr/local/lib/hpc/node"
"""Where the set-up lives on every machine."""
MUNGE_KEY, DATABASE_PASSWORD = "/etc/hpc/munge.key", "/etc/hpc/database-password"
TOKEN_KEY = "/etc/hpc/jwt.key"  # noqa: S105 - where it lies
"""Where it looks for the cluster's secrets (munge.py, database.py, rest.py), whoever brings them."""

# Takes {name: [lines]} from standard input into a folder, and away from it what is no longer part of the set-up.
_UNPACK = """
import json, pathlib, sys
files = json.load(sys.stdin)
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, lines in files.items():
    part = folder / ("." + name)
    part.write_text("\\n".join(lines) + "\\n")
    part.replace(folder / name)
for path in folder.iterdir():
    if path.is_file() and path.name not in files:
        path.unlink()
"""
# Takes {path: text} from standard input; nobody but root may read any of it, also while it is written.
_KEEP = """
import json, os, pathlib, sys
os.umask(0o077)
for path, text in json.load(sys.stdin).items():
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name("." + path.name)
    part.write_text(text.rstrip("\\n") + "\\n")
    part.replace(path)
"""
KEEP = f"python3 -c {shlex.quote(_KEEP)}"
"""The shell command that keeps secrets, {path: text} on standard input, each in its file, 0600 and root's."""

UNPACK = f"python3 -c {shlex.quote(_UNPACK)} {TARGET}"
"""The shell command that puts what `packed` gives, on standard input, in its place on a machine."""


@cache
def files() -> dict[str, str]:
    """Name and text of every file of the set-up, sorted by name."""
    return {path.name: path.read_text() for path in sorted(FOLDER.iterdir()) if path.is_file()}


@cache
def version() -> str:
    """A hash of all those files: a machine set up by another version is set up again."""
    whole = hashlib.sha256()
    for name, text in files().items():
        whole.update(f"{name}\0{len(text)}\0{text}".encode())
    return whole.hexdigest()[:16]


@cache
def packed() -> str:
    """The whole set-up as one text, line by line, so that a preview shows which lines of it change."""
    return json.dumps({name: text.removesuffix("\n").split("\n") for name, text in files().items()}, indent=1) + "\n"


def command(phase: str) -> str:
    """The shell command that runs one phase of the set-up."""
    return f"python3 {TARGET} {phase}"
