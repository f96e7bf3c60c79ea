"""A unit is enabled exactly where systemd is to start it by itself at a boot."""

import pytest
import system


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
    monkeypatch.setattr(system, "STARTED", tmp_path)
    monkeypatch.setattr(system, "write", lambda *_, **__: True)
    monkeypatch.setattr(system, "succeeds", lambda *command, **_: command[1] == "is-enabled" and now)
    monkeypatch.setattr(system, "run", lambda *command, **_: seen.append((command[1], command[-1])))
    assert system.service("slurmd", settings="", enabled=wanted)
    assert seen == [*asked, ("start", "slurmd")]
