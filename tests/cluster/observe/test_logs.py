"""Logs are read completely and in order, by scripts that leave no process behind."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.observe.logs import LOGS_BY_NAME, Line, LineClock, Log, parse_time, script
from tests import programs
from tests.waiting import PATIENCE

MACHINE = st.lists(
    st.one_of(st.integers(0, 99).map(lambda s: f"[2026-11-21T05:00:{s % 60:02d}.000] x"), st.just("  at y"))
)


def merge_logs(logs: dict[str, list[str]]) -> list[Line]:
    clocks = {name: LineClock(name) for name in logs}
    return sorted(clocks[name].line(text) for name, log in logs.items() for text in log)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), MACHINE, max_size=3))
def test_merging_loses_no_line_and_keeps_each_machines_order(logs: dict[str, list[str]]):
    lines = merge_logs(logs)
    assert {name: [line.text for line in lines if line.machine == name] for name in logs} == logs


def test_lines_are_merged_by_time_and_lines_without_a_time_follow_their_predecessor():
    slurm = ["[2026-11-21T05:00:01.500] one", "  more of one", "[2026-11-21T05:00:03.000] three"]
    journal = ["2026-11-21T05:00:02.000001+0000 n systemd[1]: two"]
    munge = ["2026-11-21 05:00:02 +0000 Info: and"]
    texts = [line.text for line in merge_logs({"a": slurm, "b": journal, "c": munge})]
    assert texts == [*slurm[:2], *munge, *journal, slurm[2]]
    assert parse_time("no time") == ""


def lines(file: Path, **options: object) -> tuple[list[str], str]:
    log = Log(roles=("node",), file=str(file))
    done = programs.run(["sh", "-c", script(log, **options)], check=True)  # type: ignore[arg-type]
    return done.stdout.splitlines(), done.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A log of five lines that was rotated after the third."""
    (tmp_path / "x.log.1").write_text("".join(f"[2026-10-2{day}T00:00:00.000] {day}\n  more\n" for day in (1, 2, 3)))
    path = tmp_path / "x.log"
    path.write_text("".join(f"[2026-10-2{day}T00:00:00.000] {day}\n" for day in (4, 5)))
    return path


def test_the_last_lines_reach_into_the_rotated_file(file: Path):
    assert [text[-1] for text in lines(file, lines=2)[0]] == ["4", "5"]
    assert [text.split()[-1] for text in lines(file, lines=4)[0]] == ["3", "more", "4", "5"]


def test_lines_since_a_moment(file: Path):
    found, _ = lines(file, lines=None, since="2026-10-22T12:00:00")
    assert [text.split()[-1] for text in found] == ["3", "more", "4", "5"]
    assert lines(file, lines=1, since="2026-10-22T12:00:00")[0] == ["[2026-10-25T00:00:00.000] 5"]
    assert lines(file, lines=None, since="2026-10-26T00:00:00")[0] == []


def test_a_missing_or_empty_log_is_reported(tmp_path: Path):
    path = tmp_path / "x.log"
    assert lines(path, lines=5) == ([], f"there is no {path}\n")
    path.touch()
    assert lines(path, lines=5) == ([], f"{path} is empty\n")


@contextmanager
def following(file: Path) -> Iterator[tuple[IO[str], IO[str]]]:
    """Follow a log; yields standard output and standard error. At the end of its input, the script ends as well."""
    command = ["sh", "-c", script(Log(roles=("node",), file=str(file)), lines=1, follow=True)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        yield process.stdout, process.stderr
        process.stdin.close()
        assert process.stdout.read() == "", "no process holds the output open"
        assert process.wait(PATIENCE) == 0


def test_following_shows_each_line_once_and_ends_with_its_input(file: Path):
    with following(file) as (output, _):
        assert output.readline().endswith("5\n")
        with file.open("a") as log_file:
            log_file.write("six\n")
        assert output.readline() == "six\n"


def test_following_waits_for_a_log_that_does_not_exist(tmp_path: Path):
    path = tmp_path / "x.log"
    with following(path) as (output, errors):
        assert errors.readline() == f"there is no {path}\n"
        time.sleep(0.2)
        path.write_text("first\n")
        assert output.readline() == "first\n"


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("since", ["", "2026-10-22T12:00:00"])
@pytest.mark.parametrize("what", LOGS_BY_NAME)
def test_every_script_is_bash(what: str, since: str, follow: bool):
    inner = script(LOGS_BY_NAME[what], lines=None if since else 5, since=since, follow=follow)
    subprocess.run(["sh", "-c", f'set -- {inner.removeprefix("exec ")}; bash -n -c "$3"'], check=True)
