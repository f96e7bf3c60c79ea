"""Reads the state of users on a cluster, as root on a login machine or in the jail.

    python3 users_in_effect.py FOLDER   < {"users": [NAME ...]}   prints JSON, and changes nothing

FOLDER has the modules of scripts/node. It needs Python 3.8.
"""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "node"))

from system import authorized_keys

HOMES = Path("/home")
SECONDS = 20


def observe(names: list[str]) -> dict[str, Any]:
    """Return {"users": {name: {uid, shell, sudo, keys}}, "homes": {name: uid}, "associations": rows, "defaults": rows}.

    `sudo` is None on a machine without sudo, and rows are None if the database does not answer.
    """
    return {
        "users": {name: _user(pwd.getpwnam(name)) for name in names if _exists(name)},
        "homes": _homes(),
        "associations": _rows("association", "user,account,qos,defaultqos"),
        "defaults": _rows("user", "user,defaultaccount"),
    }


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _user(row: pwd.struct_passwd) -> dict[str, Any]:
    return {"uid": row.pw_uid, "shell": row.pw_shell, "sudo": _sudo(row.pw_name), "keys": _keys(row.pw_dir)}


def _sudo(name: str) -> bool | None:
    """Return whether sudo runs any command for the user without a password; None without sudo."""
    rights = _run("sudo", "--non-interactive", "--list", f"--other-user={name}")
    return None if rights is None else "NOPASSWD: ALL" in rights


def _keys(home: str) -> list[str]:
    """Return the lines of authorized_keys, without following links of the user."""
    try:
        text = authorized_keys.text(home)
    except (authorized_keys.UnexpectedFileError, OSError):
        return []
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _homes() -> dict[str, int]:
    try:
        return {
            entry.name: entry.stat(follow_symlinks=False).st_uid
            for entry in os.scandir(HOMES)
            if entry.is_dir(follow_symlinks=False)
        }
    except OSError:
        return {}


def _rows(what: str, fields: str) -> list[list[str]] | None:
    text = _run("sacctmgr", "--noheader", "--parsable2", "show", what, f"format={fields}")
    return None if text is None else [line.split("|") for line in text.splitlines() if line]


def _run(*command: str) -> str | None:
    """Return the output of a command; None if it is missing, fails or hangs."""
    try:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        env = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(command, text=True, errors="replace", timeout=SECONDS, check=False, env=env, **streams)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 or command[0] == "sudo" else None


if __name__ == "__main__":
    sys.stdout.write(json.dumps(observe(json.load(sys.stdin)["users"])) + "\n")
