"""Users' home folders, and in each the keys that let its owner in.

Root makes a home whole before its owner can reach it, and never works inside it afterwards: that is done by a process
which is nobody but the user.
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
PYTHON = "/usr/bin/python3"  # which every user may run
SECONDS = 30  # for the file system of the homes to answer
LONGEST = 400  # characters that are read of a user's process: its owner may have changed what it prints
# Imports the two modules from its input.
_START = """
import io, json, sys, types
given = json.load(sys.stdin)
for name, text in given["modules"].items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
sys.stdin = io.StringIO(json.dumps(given["asked"]))
sys.exit(sys.modules["system.authorized_keys"].main())
"""


def converge(name: str, uid: int, gid: int, keys: list[str]) -> bool:
    """Have a home for this user with these keys of ours in it; True when anything changed.

    What a user has put in the way is said and left alone: nobody else's keys wait for it.
    """
    home = HOMES / name
    made = _make(home, uid, gid)
    try:
        if authorized_keys.right(str(home), keys):
            return made
    except (authorized_keys.StrangeError, OSError):
        pass  # the user's own process says it
    # The user need not be able to read where the set-up lies.
    modules = {module.__name__: Path(str(module.__file__)).read_text() for module in (text_block, authorized_keys)}
    given = json.dumps({"modules": modules, "asked": {"home": str(home), "keys": keys}})
    try:
        code, said = run_as_user(home, uid, gid, ["-c", _START], given=given)
    except SetupError as error:
        code, said = authorized_keys.REFUSED, str(error)
    if code not in (authorized_keys.SAME, authorized_keys.CHANGED, authorized_keys.REFUSED):
        code, said = authorized_keys.REFUSED, f"{home}: the process that looks after its keys ended with {code}"
    if code == authorized_keys.REFUSED:
        missing = "the SSH keys that the stack gives are not there" if keys else "keys of the stack may still be there"
        log(f"{name}: {said}; it is left alone, and {missing}. Once it is mended: ./hpc drift STACK --mend")
    return made or code == authorized_keys.CHANGED


def _make(home: Path, uid: int, gid: int) -> bool:
    """Make a home out of the skeleton, whole or not at all; True when there was none, not even a link to one."""
    if os.path.lexists(home):
        return False
    import shutil

    part = home.with_name(f".{home.name}.hpc-new")
    try:
        if os.path.lexists(part):
            shutil.rmtree(part)  # of a run that was killed; follows no links
        part.mkdir(mode=0o700, parents=True)
        shutil.copytree(SKELETON, part, symlinks=True, dirs_exist_ok=True)
        for path in part.rglob("*"):
            os.chown(path, uid, gid, follow_symlinks=False)
        part.chmod(0o700)
        # Its owner can enter it from here on, and nothing is done in it any more.
        os.chown(part, uid, gid, follow_symlinks=False)
        part.rename(home)
    except OSError as error:
        raise SetupError(f"{home} can't be made: {error}") from None
    return True


def run_as_user(
    home: Path, uid: int, gid: int, program: list[str], *, given: str = "", env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run a program of Python as the owner of a home; its exit code, and the begin of what it prints.

    A process of its own, which has nothing of this one's memory: a user can look into their own processes. Raises
    SetupError where none can be started, or it does not end in time.
    """
    import tempfile

    with tempfile.TemporaryFile() as out:
        command = [PYTHON, "-I", "-S", *program]
        user: dict[str, Any] = {"user": uid, "group": gid, "extra_groups": [], "cwd": "/", "env": env or {}}
        try:
            code = subprocess.run(
                command,
                input=given.encode(),
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=False,
                **user,
            ).returncode
        except subprocess.TimeoutExpired:
            raise SetupError(f"{home} did not answer within {SECONDS} s") from None
        except OSError as error:  # one with as many processes as they may have
            raise SetupError(f"{home}: no process of that user can be started ({error.strerror})") from None
        out.seek(0)
        return code, out.read(LONGEST).decode(errors="replace")
