"""`./hpc health`: results of nodes as a table and as JSON, and machines that don't answer."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.load import parse
from components.deploy import config_text
from tests.cli.commands.conftest import Commands
from tests.cli.conftest import OUTPUTS, Hpc, patch_outputs
from tests.cluster.stacks import load

Setup = Callable[[object, dict[str, Any] | None], None]


def result(state: str = "ok", text: str = "", *, age: float = 5) -> dict[str, Any]:
    return {"time": time.time() - age, "checks": {"mount": {"state": state, "text": text}}}


@pytest.fixture
def set_up(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Sets the results that the controller of stack `dev` has stored, and the health checks in its stack file."""

    def set_results(results: object, checks: dict[str, Any] | None) -> None:
        values = load("dev")
        values["hpc:cluster"]["slurm"] = {"health": checks} if checks is not None else {}
        patch_outputs(monkeypatch, {**OUTPUTS, "config": config_text(parse(values))})
        (tmp_path / "RESULTS").write_text(f"{time.time()}\n{json.dumps(results)}\n")

    return set_results


def test_results_are_a_table_and_findings_have_a_command(hpc: Hpc, set_up: Setup):
    set_up({"dev-cpu-0": result(), "dev-cpu-1": result("failed", "/home is not mounted")}, {})
    ended = hpc("health", "dev")
    assert ended.code == 1
    rows = [line.split()[:3] for line in ended.out.splitlines()]
    assert ["dev-cpu-0", "mixed", "ok"] in rows
    assert ["dev-cpu-1", "drained", "failed"] in rows
    assert "    > ./hpc ssh dev dev-cpu-1 -- mount --all" in ended.out.splitlines()
    assert "Who must act: administrator" in ended.out


def test_without_run_no_check_is_run(hpc: Hpc, set_up: Setup, commands: Commands):
    set_up({"dev-cpu-0": result()}, {})
    ended = hpc("health", "dev", "cpu-0")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("dev: 1 node, all is well.\n")
    assert not any("hpc-health" in line for line in commands())


def test_old_and_missing_results_are_findings(hpc: Hpc, set_up: Setup):
    set_up({"dev-cpu-0": result(age=9999)}, {})
    document = json.loads(hpc("health", "dev", "--json").out)
    assert [(row["node"], row["result"]) for row in document["nodes"]] == [
        ("dev-cpu-0", "old"),
        ("dev-cpu-1", "no result"),
    ]
    assert not document["ok"]


def test_run_checks_only_the_chosen_nodes(hpc: Hpc, set_up: Setup, commands: Commands):
    set_up({"dev-cpu-0": result()}, {"network": {}})
    assert hpc("health", "dev", "cpu-0", "--run").code == 0
    assert sum("hpc-health now" in line for line in commands()) == 1
    assert not any("hpc-health-measure" in line for line in commands()), "a node with jobs was measured"


@pytest.mark.parametrize(
    ("checks", "names", "message"), [(None, [], "slurm: {health: {}}"), ({}, ["gpu-9"], "no node 'gpu-9'")]
)
def test_a_stack_without_checks_and_an_unknown_node_are_refused(
    hpc: Hpc, set_up: Setup, checks: dict[str, Any] | None, names: list[str], message: str
):
    set_up({}, checks)
    assert message in hpc("health", "dev", *names).error


@pytest.mark.parametrize("text", ["", "garbage", "1.0\n[]", "1.0\n{\n"])
def test_an_invalid_answer_of_the_controller_is_an_error(hpc: Hpc, set_up: Setup, text: str, tmp_path: Path):
    set_up({}, {})
    (tmp_path / "RESULTS").write_text(text)
    assert "the controller gave no results of health checks" in hpc("health", "dev").error
