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
"""Where it looks for the cluster's secrets (munge.py, database.py, rest.py)."""

# Takes {path: [lines]} from standard input into a folder, and removes whatever else is there: files of another version
# of the set-up, what Python has compiled of them, empty folders. A run that was killed is completed by the next.
_UNPACK = """
import contextlib, json, os, pathlib, sys
files = json.load(sys.stdin)
folder = pathlib.Path(sys.argv[1])
for name, lines in files.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name("." + path.name)
    part.write_text("\\n".join(lines) + "\\n")
    part.replace(path)
for parent, folders, names in os.walk(str(folder), topdown=False):
    for path in [pathlib.Path(parent, name) for name in names]:
        if str(path.relative_to(folder)) not in files:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.rmdir(parent)
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
    """Text of every file of the set-up, by its path in the folder."""
    paths = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return {name: (FOLDER / name).read_text() for name in sorted(str(path.relative_to(FOLDER)) for path in paths)}


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
    return f"python3 {TARGET} {phase}"


def as_lines(value: object) -> str:
    """JSON of one value a line, so that a preview shows only the lines that change."""
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
