"""A wait for nodes outlives a controller that gives no answer for a while."""

import pytest

from cli.cluster import scheduler as module
from cli.cluster.cluster import from_outputs
from cli.cluster.scheduler import Scheduler
from cli.errors import CliError
from tests.cli.commands.jobs.test_check import NODES
from tests.cli.conftest import OUTPUTS, Tool


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    return Scheduler(from_outputs("dev", OUTPUTS), "dev")


def test_one_that_answers_again_is_waited_for(
    scheduler: Scheduler, tool: Tool, tmp_path: object, capsys: pytest.CaptureFixture[str]
):
    tool("ssh", f"[ -e {tmp_path}/asked ] || {{ touch {tmp_path}/asked; exit 255; }}; echo '{NODES}'")
    assert scheduler.wait(["dev-cpu-0"], lambda node: node.fine, describe=str, seconds=60) == []
    assert "does not answer: exit code 255; asking again ..." in capsys.readouterr().err


def test_one_that_never_answers_again_ends_the_wait(
    scheduler: Scheduler, tool: Tool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    tool("ssh", "exit 255")
    monkeypatch.setattr(module, "_ABSENT_SECONDS", 0.5)
    with pytest.raises(CliError, match="does not answer: exit code 255"):
        scheduler.wait(["dev-cpu-0"], lambda node: node.fine, describe=str, seconds=60)
    assert capsys.readouterr().err.count("asking again") == 1
