"""`./hpc nodes`: what it lists, what it refuses, and the commands that it gives slurmctld."""

import json
from pathlib import Path

import pytest

from tests.cli.commands.conftest import NODES, Commands
from tests.cli.conftest import Hpc, Tool


def test_nodes_are_listed_with_their_jobs(hpc: Hpc, commands: Commands):
    lines = hpc("nodes", "dev").out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["dev-cpu-0", "mixed", "-", "-", "7(alice)"],
        ["dev-cpu-1", "drained", "fan", "2026-11-21T05:43:58", "-"],
    ]
    assert json.loads(hpc("nodes", "dev", "--json").out)[0]["jobs"][0]["left"] == "22:58:58"
    assert commands() == []


@pytest.mark.parametrize("action", [["drain", "--reason", "x"], ["reboot"]], ids=lambda action: action[0])
def test_a_node_with_a_running_job_is_refused(hpc: Hpc, commands: Commands, action: list):
    ended = hpc("nodes", "dev", *action, "cpu-[0-1]")
    assert "dev-cpu-0: job 7 (train) of alice on dev-cpu-0: running for 1:02, 22:58:58 left" in ended.error
    assert "--force" in ended.err
    assert "--wait" in ended.err
    assert commands() == []


def test_the_reason_of_a_drain_is_quoted(hpc: Hpc, commands: Commands):
    assert hpc("nodes", "dev", "drain", "cpu-0", "--reason", "it's $HOME", "--force").code == 0
    assert commands() == ["""scontrol update NodeName=dev-cpu-0 State=DRAIN 'Reason=it'"'"'s $HOME'"""]


def test_a_node_in_the_requested_state_is_left_alone(hpc: Hpc, commands: Commands):
    assert "is drained already" in hpc("nodes", "dev", "drain", "cpu-1", "--reason", "other").out
    assert "nothing to resume" in hpc("nodes", "dev", "resume", "cpu-0").out
    assert commands() == []


def test_a_node_that_slurmctld_has_resumed_meanwhile_is_no_error(hpc: Hpc, up: None, tool: Tool, tmp_path: Path):
    (tmp_path / "drained").write_text(NODES)
    (tmp_path / "idle").write_text(NODES.replace("State=IDLE+DRAIN", "State=IDLE"))
    # slurmctld refuses to resume a node that is no longer drained.
    tool(
        "ssh",
        f"cd {tmp_path}; for line; do :; done; case $line in\n"
        '*--oneliner*) cat "$(test -e refused && echo idle || echo drained)" ;;\n'
        "*) touch refused; echo 'Invalid node state specified' >&2; exit 1 ;;\nesac",
    )
    ended = hpc("nodes", "dev", "resume", "cpu-1")
    assert (ended.code, ended.out) == (0, "dev-cpu-1: idle\n"), ended.err


def test_all_errors_of_a_command_line_are_reported_together(hpc: Hpc, commands: Commands):
    ended = hpc("nodes", "dev", "drain", "--json")
    assert all(words in ended.error for words in ("which nodes?", "--reason is needed", "--json is for the list"))
    ended = hpc("nodes", "dev", "resume", "cpu-2", "cpuu-1")
    assert "no node 'cpu-2'. Did you mean" in ended.err
    assert "no node 'cpuu-1'. Did you mean dev-cpu-1?" in ended.err
    assert "a bracket is never closed" in hpc("nodes", "dev", "resume", "cpu-[0").err
    assert commands() == []


def test_the_controller_is_not_rebooted(hpc: Hpc, commands: Commands, tmp_path: Path):
    (tmp_path / "NODES").write_text("NodeName=dev-controller State=IDLE\n--jobs--\n")
    assert "would take the cluster along" in hpc("nodes", "dev", "reboot", "controller", "--force").err
    assert commands() == []


def test_a_controller_that_does_not_answer_is_an_error(hpc: Hpc, up: None, tool: Tool):
    tool("ssh", "echo no route >&2; exit 255")
    assert hpc("nodes", "dev").error == "error: dev-controller: does not answer: no route\n"
