"""Users' home folders, each with the authorized_keys of its owner.

Root creates a home completely before its owner can reach it, and never works inside it afterwards: a process that runs
as the user does that.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from system import authorized_keys, text_block
from system.host import SetupError, log

HOMES = Path("/home")
SKELETON = Path("/etc/skel")
PYTHON = "/usr/bin/python3"  # every user may run it
SECONDS = 30  # timeout for the file system of the homes
LONGEST = 400  # characters that are read of a user's process, because the user may have changed what it prints
# Creates the two modules from standard input, since the user need not be able to read the set-up's folder.
_PROGRAM = """
import io, json, sys, types
document = json.load(sys.stdin)
for name, text in document["modules"].items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
sys.stdin = io.StringIO(json.dumps(document["input"]))
sys.exit(sys.modules["system.authorized_keys"].main())
"""


def converge(name: str, uid: int, gid: int, keys: list[str]) -> bool:
    """Create the user's home if it is missing, and write these keys to it; return whether anything changed.

    If the user has put something in the way, it is logged and left alone, so that the keys of other users do not wait.
    """
    home = HOMES / name
    created = _create_home(home, uid, gid)
    try:
        if authorized_keys.is_current(str(home), keys):
            return created
    except (authorized_keys.UnexpectedFileError, OSError):
        pass  # the user's own process reports it
    modules = {module.__name__: Path(str(module.__file__)).read_text() for module in (text_block, authorized_keys)}
    stdin = json.dumps({"modules": modules, "input": {"home": str(home), "keys": keys}})
    try:
        code, problem = run_as_user(home, uid, gid, ["-c", _PROGRAM], stdin=stdin)
    except SetupError as error:
        code, problem = authorized_keys.REFUSED, str(error)
    if code not in (authorized_keys.SAME, authorized_keys.CHANGED, authorized_keys.REFUSED):
        code, problem = authorized_keys.REFUSED, f"{home}: the process that looks after its keys ended with {code}"
    if code == authorized_keys.REFUSED:
        missing = "the SSH keys that the stack gives are not there" if keys else "keys of the stack may still be there"
        log(f"{name}: {problem}; it is left alone, and {missing}. Once it is mended: ./hpc drift STACK --mend")
    return created or code == authorized_keys.CHANGED


def _create_home(home: Path, uid: int, gid: int) -> bool:
    """Create a home from the skeleton, atomically; return False if it exists, also as a link."""
    if os.path.lexists(home):
        return False
    import shutil

    part = home.with_name(f".{home.name}.hpc-new")
    try:
        if os.path.lexists(part):
            shutil.rmtree(part)  # left by a killed run; rmtree follows no links
        part.mkdir(mode=0o700, parents=True)
        shutil.copytree(SKELETON, part, symlinks=True, dirs_exist_ok=True)
        for path in part.rglob("*"):
            os.chown(path, uid, gid, follow_symlinks=False)
        part.chmod(0o700)
        # From here on its owner can enter it, and root does nothing in it any more.
        os.chown(part, uid, gid, follow_symlinks=False)
        part.rename(home)
    except OSError as error:
        raise SetupError(f"{home} can't be made: {error}") from None
    return True


def run_as_user(
    home: Path, uid: int, gid: int, program: list[str], *, stdin: str = "", env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run a Python program as the owner of a home; return its exit code, and the beginning of its output.

    It is started, not forked: a user can read the memory of their own processes. Raises SetupError if it can't be
    started, or does not end in time.
    """
    import tempfile

    with tempfile.TemporaryFile() as out:
        command = [PYTHON, "-I", "-S", *program]
        user: dict[str, Any] = {"user": uid, "group": gid, "extra_groups": [], "cwd": "/", "env": env or {}}
        streams: dict[str, Any] = {"input": stdin.encode(), "stdout": out, "stderr": subprocess.STDOUT}
        try:
            code = subprocess.run(command, timeout=SECONDS, check=False, **streams, **user).returncode
        except subprocess.TimeoutExpired:
            raise SetupError(f"{home} did not answer within {SECONDS} s") from None
        except OSError as error:  # for example if the user has as many processes as allowed
            raise SetupError(f"{home}: no process of that user can be started ({error.strerror})") from None
        out.seek(0)
        return code, out.read(LONGEST).decode(errors="replace")
