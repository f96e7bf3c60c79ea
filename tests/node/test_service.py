"""A unit is enabled exactly where systemd is to start it by itself at a boot."""

import pytest
from system import host


@pytest.mark.parametrize(
    ("now", "wanted", "asked"),
    [
        (False, True, [("enable", "slurmd")]),
        (True, False, [("disable", "slurmd")]),
        (True, True, []),
        (False, False, []),
    ],
)
def test_enabled_as_wanted(now, wanted, asked, tmp_path, monkeypatch):
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(host, "STARTED", tmp_path)
    monkeypatch.setattr(host, "write", lambda *_, **__: True)
    monkeypatch.setattr(host, "succeeds", lambda *command, **_: command[1] == "is-enabled" and now)
    monkeypatch.setattr(host, "run", lambda *command, **_: seen.append((command[1], command[-1])) or "inactive\n")
    assert host.service("slurmd", settings="", enabled=wanted)
    assert [one for one in seen if one[0] != "is-active"] == [*asked, ("start", "slurmd")]


@pytest.mark.parametrize(("state", "verb"), [("inactive", "start"), ("activating", "restart"), ("failed", "start")])
def test_one_that_systemd_is_just_starting_is_started_with_what_is_there_now(state, verb, tmp_path, monkeypatch):
    """It may have read its key or its settings before they were written."""
    done: list[str] = []

    def run(*command: str, **_: object) -> str:
        done.append(command[1])
        return f"{state}\n"

    monkeypatch.setattr(host, "STARTED", tmp_path)
    monkeypatch.setattr(host, "write", lambda *_, **__: True)
    monkeypatch.setattr(host, "succeeds", lambda *command, **_: command[1] == "is-enabled")
    monkeypatch.setattr(host, "run", run)
    host.service("munge", settings="key")
    assert done == ["is-active", verb]
