"""`./hpc test` that is ended: the machines of its tests end with it, or with the next run at the latest."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cli.commands.test import PLACE
from components.local.host import network
from components.local.host.process import Process
from tests.waiting import PATIENCE, lives, wait_for

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
TEST = """
def test_it(bring_up):
    bring_up("cut", login={"on": "controller"}, nodesets={"cpu": {"count": 1}})
"""


class Suite:
    """A run of `./hpc test` with one test, which creates a cluster; its output is in a file."""

    def __init__(self, folder: Path, *options: str) -> None:
        file = folder / "test_cut.py"
        file.write_text(TEST)
        self._log = folder / "log"
        plugins = (
            "-p",
            "tests.conftest",
            "-p",
            "tests.e2e.conftest",
            f"--rootdir={folder}",
            f"-c{ROOT}/pyproject.toml",
        )
        command = [str(ROOT / "hpc"), "test", "--only", "tests", "--", *plugins, *options, str(file)]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                # Not as under nohup, which has SIGHUP ignored.
                ["setpriv", "--pdeathsig", "KILL", "env", "--default-signal=HUP", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait_for_machine(self) -> tuple[int, Path]:
        """Wait until a machine of the test runs. Returns the process of pytest and the root of its machines."""

        def pytests() -> list[int]:
            suite = Process.of(self.process.pid)
            assert suite, self.output
            return [pid for pid in suite.children() if (PLACE / f"e2e-{pid}").exists()]

        wait_for(pytests, "pytest")
        (pid,) = pytests()
        root = PLACE / f"e2e-{pid}"
        wait_for(lambda: any("systemd-nspawn" in line for line in network.leftovers(root)), "a machine", pace=0.1)
        return pid, root

    def wait(self) -> int:
        return self.process.wait(PATIENCE)


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Callable[..., Suite]]:
    """Starts runs, which end with the test."""
    started: list[Suite] = []

    def start(*options: str) -> Suite:
        started.append(Suite(tmp_path, *options))
        return started[-1]

    yield start
    for run in started:
        with suppress(ProcessLookupError):
            run.process.terminate()
        run.wait()


def is_gone(root: Path) -> bool:
    return not root.exists() and network.leftovers(root) == []


def test_ctrl_c_ends_the_machines_and_the_run_waits_for_that(suite: Callable[..., Suite]) -> None:
    """SIGTERM and SIGHUP interrupt the tests in the same way (tests/cli/commands/test_test.py)."""
    run = suite()
    pid, root = run.wait_for_machine()
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 128 + signal.SIGINT, run.output
    assert "Waiting until these have cleaned up: tests." in run.output
    assert not lives(pid)
    assert is_gone(root), network.leftovers(root)


def test_the_same_signal_again_kills_the_tests_and_removes_their_machines(suite: Callable[..., Suite]) -> None:
    run = suite()
    pid, root = run.wait_for_machine()
    os.kill(pid, signal.SIGSTOP)
    run.process.terminate()
    wait_for(lambda: "Waiting until" in run.output)
    run.process.terminate()
    assert run.wait() == 128 + signal.SIGTERM, run.output
    assert not lives(pid)
    assert f"Removed what a killed run of the tests left: {root}" in run.output
    assert is_gone(root), network.leftovers(root)


def test_the_tests_of_a_killed_run_end_by_themselves(suite: Callable[..., Suite]) -> None:
    run = suite()
    pid, root = run.wait_for_machine()
    run.process.kill()
    wait_for(lambda: not lives(pid), "the end of pytest", pace=0.1)
    assert is_gone(root), network.leftovers(root)


def test_what_killed_tests_left_is_removed_when_the_next_run_begins(suite: Callable[..., Suite]) -> None:
    run = suite()
    pid, root = run.wait_for_machine()
    os.kill(run.process.pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    run.process.kill()
    wait_for(lambda: not lives(pid))
    assert network.leftovers(root) != []
    following = suite("--collect-only")
    assert following.wait() == 0, following.output
    assert is_gone(root), network.leftovers(root)
