"""The program that reads what is in effect of users, on this host."""

import json
import os
import pwd
import subprocess
import sys

import pytest

from cli import users
from components.slurm.payload import run_sent

ME = pwd.getpwuid(os.geteuid())
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl carol@laptop"


def look(*names: str, start: str = "") -> users.ClusterUsers:
    asked = json.dumps({"files": dict(users._files()), "payload": {"users": list(names)}})
    _, option, code, program = run_sent("users_in_effect.py")
    command = [sys.executable, option, start + code, program]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    return users.parse_in_effect(json.loads(done.stdout))


def test_users_who_are_there_are_read_without_slurm() -> None:
    seen = look(ME.pw_name, "nobody-of-this-name")
    assert set(seen.users) == {ME.pw_name}
    one = seen.users[ME.pw_name]
    assert (one.uid, one.shell, one.account, one.qos) == (ME.pw_uid, ME.pw_shell, "", [])
    assert not any(link in seen.homes for link in ("", ".", ".."))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (KEY, "SHA256:"),
        (f'from="10.0.0.1" {KEY}', "(another line)"),
        ("\x1b[2J", "(another line)"),
    ],
)
def test_lines_of_users_are_fingerprints_or_nothing_at_all(line: str, shown: str) -> None:
    assert users.fingerprint(line).startswith(shown)
