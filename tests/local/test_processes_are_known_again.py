"""A number alone never gets a process killed: it must have started when ours did, in the same boot of the host."""

import dataclasses
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.local.host.paths import HostError
from components.local.host.process import Process, run


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_it_survives_being_written_down(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    process = Process.of(sleeper.pid)
    assert process is not None
    (tmp_path / "run.json").write_text(json.dumps(dataclasses.asdict(process)))
    assert Process.load(tmp_path / "run.json") == process
    assert process.alive()


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another"}])
def test_another_process_of_that_number_is_left_alone(
    sleeper: subprocess.Popen[bytes], change: dict[str, object]
) -> None:
    process = Process.of(sleeper.pid)
    assert process is not None
    stranger = dataclasses.replace(process, **change)
    assert not stranger.alive()
    assert stranger.end(signal.SIGKILL, wait=1)
    assert sleeper.poll() is None


def test_a_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    process = Process.of(sleeper.pid)
    assert process is not None
    assert process.end(signal.SIGKILL, wait=5)


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}', '{"pid": "x", "started": 1, "boot": "b"}', "[]"])
def test_half_a_record_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert Process.load(tmp_path / "run.json") is None


def test_a_failed_command_says_what_it_said() -> None:
    with pytest.raises(HostError, match=r"sh -c .*: no such luck"):
        run(["sh", "-c", "echo no such luck >&2; exit 3"])
    with pytest.raises(HostError, match="hpc-no-such-command: not found on this machine"):
        run(["hpc-no-such-command"])


@pytest.mark.e2e
def test_the_first_process_of_a_namespace_is_known_from_others(sleeper: subprocess.Popen[bytes]) -> None:
    """systemd-nspawn's helpers are its children too, and must not be taken for the machine."""
    helper = Process.of(sleeper.pid)
    assert helper is not None
    assert not helper.is_first_of_namespace()
    with subprocess.Popen(["unshare", "--fork", "--pid", "sh", "-c", "echo; exec sleep 60"], stdout=-1) as outer:
        assert outer.stdout is not None
        outer.stdout.readline()
        first = Process.of(outer.pid)
        inside = first and Process.of(first.children()[0])
        assert inside is not None
        assert inside.is_first_of_namespace()
        assert inside.end(signal.SIGKILL, wait=5)
        assert not inside.is_first_of_namespace()
