"""A user whose removal did not end, and who is wanted again, can log in again."""

import grp
import pwd
from types import SimpleNamespace

import pytest
from interface import User
from system import users

ALICE: User = {"name": "alice", "uid": 2001, "gid": 2001, "groups": [], "shell": "/bin/bash", "keys": []}


@pytest.mark.parametrize(("expires", "changed"), [("", False), ("1", True), ("20000", False)])
def test_only_an_account_that_a_removal_closed_is_opened(monkeypatch, tmp_path, expires, changed):
    shadow = tmp_path / "shadow"
    shadow.write_text(f"root:*:1:0:99999:7:::\nalice2:!:1:0:99999:7::1:\nalice:!:20000:0:99999:7::{expires}:\n")
    calls = []
    monkeypatch.setattr(users, "SHADOW", shadow)
    monkeypatch.setattr(users, "run", lambda *words: calls.append(words))
    monkeypatch.setattr(
        pwd, "getpwnam", lambda _: SimpleNamespace(pw_uid=2001, pw_gid=2001, pw_shell="/bin/bash", pw_name="alice")
    )
    monkeypatch.setattr(grp, "getgrall", list)
    assert users._user(ALICE) is changed
    assert [words[-3:] for words in calls] == ([("--expiredate", "", "alice")] if changed else [])
