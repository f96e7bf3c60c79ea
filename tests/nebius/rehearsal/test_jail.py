"""What the jail shares is written to machines alone, whatever has become of the numbers of their processes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from components.local.host.process import Process
from components.nebius.rehearsal.operator import jail


@pytest.fixture
def written(monkeypatch):
    """The roots that something is written to; nothing is."""
    found = []
    monkeypatch.setattr(jail, "_dress", lambda root: found.append(root.resolve()))
    monkeypatch.setattr(jail, "_copy", lambda _source, target: found.append(target.resolve()))
    monkeypatch.setattr(jail, "_add_keys", lambda root, _keys: found.append(root.resolve()))
    monkeypatch.setattr(jail, "_listen", lambda _process, root, _port: found.append(root.resolve()))
    monkeypatch.setattr(jail.Accounts, "_watch", lambda _self: None)
    return found


def test_the_root_of_a_process_that_runs_is_written_to_once(written):
    process = Process.of(os.getpid())
    assert process is not None
    accounts = jail.Accounts()
    accounts.share({"worker-0": process}, ["key"], 0)
    assert set(written) == {Path("/")}
    written.clear()
    accounts.share({"worker-0": process}, ["key"], 0)
    assert written == []


@pytest.mark.parametrize("names", [("login-0",), ("worker-0",), ("login-0", "login-1", "worker-0")])
def test_a_number_that_another_process_has_by_now_is_left_alone(written, names):
    process = Process.of(os.getpid())
    assert process is not None
    # What is on record started before: its number is that of a process of this host now.
    gone = replace(process, started=process.started - 1)
    jail.Accounts().share(dict.fromkeys(names, gone), ["key"], 0)
    assert written == []
