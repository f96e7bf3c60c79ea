"""`./hpc nodes`: what it lists, refuses and asks slurmctld."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands.conftest import NODES
from tests.cli.conftest import Hpc, Tool

Asked = Callable[[], list[str]]


def test_they_are_listed_with_their_jobs(hpc: Hpc, asked: Asked):
    lines = hpc("nodes", "dev").out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["dev-cpu-0", "mixed", "-", "-", "7(alice)"],
        ["dev-cpu-1", "drained", "fan", "2026-11-21T05:43:58", "-"],
    ]
    assert json.loads(hpc("nodes", "dev", "--json").out)[0]["jobs"][0]["left"] == "22:58:58"
    assert asked() == []


@pytest.mark.parametrize("action", [["drain", "--reason", "x"], ["reboot"]], ids=lambda action: action[0])
def test_one_with_a_running_job_is_refused_in_words(hpc: Hpc, asked: Asked, action: list):
    ended = hpc("nodes", "dev", *action, "cpu-[0-1]")
    assert "dev-cpu-0: job 7 (train) of alice: running for 1:02, 22:58:58 left" in ended.error
    assert "--force" in ended.err
    assert "--wait" in ended.err
    assert asked() == []


def test_a_drain_is_one_command_with_its_reason_quoted(hpc: Hpc, asked: Asked):
    assert hpc("nodes", "dev", "drain", "cpu-0", "--reason", "it's $HOME", "--force").code == 0
    assert asked() == ["""scontrol update NodeName=dev-cpu-0 State=DRAIN 'Reason=it'"'"'s $HOME'"""]


def test_what_is_as_wanted_is_left_alone(hpc: Hpc, asked: Asked):
    assert "is drained already" in hpc("nodes", "dev", "drain", "cpu-1", "--reason", "other").out
    assert "nothing to resume" in hpc("nodes", "dev", "resume", "cpu-0").out
    assert asked() == []


def test_a_node_that_slurmctld_resumed_by_itself_meanwhile_is_as_wanted(hpc: Hpc, up: None, tool: Tool, tmp_path: Path):
    idle = NODES.replace("State=IDLE+DRAIN", "State=IDLE")
    (tmp_path / "drained").write_text(NODES)
    (tmp_path / "idle").write_text(idle)
    # Between our look and our word the node came back: slurmctld refuses the word.
    tool(
        "ssh",
        f"cd {tmp_path}; for line; do :; done; case $line in\n"
        '*--oneliner*) cat "$(test -e told && echo idle || echo drained)" ;;\n'
        "*) touch told; echo 'Invalid node state specified' >&2; exit 1 ;;\nesac",
    )
    ended = hpc("nodes", "dev", "resume", "cpu-1")
    assert (ended.code, ended.out) == (0, "dev-cpu-1: idle\n"), ended.err


def test_all_errors_come_at_once(hpc: Hpc, asked: Asked):
    ended = hpc("nodes", "dev", "drain", "--json")
    assert all(words in ended.error for words in ("which nodes?", "--reason is needed", "--json is for the list"))
    ended = hpc("nodes", "dev", "resume", "cpu-2", "cpuu-1")
    assert "no node 'cpu-2'. Did you mean" in ended.err
    assert "no node 'cpuu-1'. Did you mean dev-cpu-1?" in ended.err
    assert "a bracket is never closed" in hpc("nodes", "dev", "resume", "cpu-[0").err
    assert asked() == []


def test_the_controllers_machine_is_not_rebooted(hpc: Hpc, asked: Asked, tmp_path: Path):
    (tmp_path / "NODES").write_text("NodeName=dev-controller State=IDLE\n--jobs--\n")
    assert "would take the cluster along" in hpc("nodes", "dev", "reboot", "controller", "--force").err
    assert asked() == []


def test_a_controller_that_does_not_answer_is_named(hpc: Hpc, up: None, tool: Tool):
    tool("ssh", "echo no route >&2; exit 255")
    ended = hpc("nodes", "dev")
    assert (ended.code, ended.err) == (1, "error: dev-controller: does not answer: no route\n")
