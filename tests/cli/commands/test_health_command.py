"""`./hpc health`: results of nodes as a table and as JSON, and machines that don't answer."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.load import parse
from components.deploy import config_text
from tests.cli.conftest import OUTPUTS, Hpc, patch_outputs
from tests.cluster.stacks import load

Lab = Callable[..., None]


def result(state: str = "ok", text: str = "", *, age: float = 5) -> dict[str, Any]:
    return {"time": time.time() - age, "checks": {"mount": {"state": state, "text": text}}}


@pytest.fixture
def lab(asked: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Lets stack `dev` have such health checks, and its controller such results."""

    def make(results: object, checks: dict[str, Any] | None) -> None:
        values = load("dev")
        values["hpc:cluster"]["slurm"] = {"health": checks} if checks is not None else {}
        patch_outputs(monkeypatch, {**OUTPUTS, "config": config_text(parse(values))})
        (tmp_path / "RESULTS").write_text(f"{time.time()}\n{json.dumps(results)}\n")

    return make


def test_results_are_a_table_and_what_is_wrong_comes_with_a_command(hpc: Hpc, lab: Lab):
    lab({"dev-cpu-0": result(), "dev-cpu-1": result("failed", "/home is not mounted")}, {})
    ended = hpc("health", "dev")
    assert ended.code == 1
    rows = [line.split()[:3] for line in ended.out.splitlines()]
    assert ["dev-cpu-0", "mixed", "ok"] in rows
    assert ["dev-cpu-1", "drained", "failed"] in rows
    assert "    > ./hpc ssh dev dev-cpu-1 -- mount --all" in ended.out.splitlines()
    assert "Who must act: administrator" in ended.out


def test_without_run_nothing_is_run(hpc: Hpc, lab: Lab, asked: Callable[[], list[str]]):
    lab({"dev-cpu-0": result()}, {})
    ended = hpc("health", "dev", "cpu-0")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("dev: 1 node, all is well.\n")
    assert not any("hpc-health" in line for line in asked())


def test_old_and_missing_results_are_said(hpc: Hpc, lab: Lab):
    lab({"dev-cpu-0": result(age=9999)}, {})
    document = json.loads(hpc("health", "dev", "--json").out)
    assert [(row["node"], row["result"]) for row in document["nodes"]] == [
        ("dev-cpu-0", "old"),
        ("dev-cpu-1", "no result"),
    ]
    assert not document["ok"]


def test_run_asks_the_chosen_nodes_only(hpc: Hpc, lab: Lab, asked: Callable[[], list[str]]):
    lab({"dev-cpu-0": result()}, {"network": {}})
    assert hpc("health", "dev", "cpu-0", "--run").code == 0
    assert sum("hpc-health now" in line for line in asked()) == 1
    assert not any("hpc-health-measure" in line for line in asked()), "a node with jobs was measured"


@pytest.mark.parametrize(
    ("checks", "words", "said"), [(None, [], "slurm: {health: {}}"), ({}, ["gpu-9"], "no node 'gpu-9'")]
)
def test_errors_say_what_is_missing(hpc: Hpc, lab: Lab, checks: dict[str, Any] | None, words: list[str], said: str):
    lab({}, checks)
    ended = hpc("health", "dev", *words)
    assert (ended.code, said in ended.err) == (1, True), ended.err


@pytest.mark.parametrize("text", ["", "garbage", "1.0\n[]", "1.0\n{\n"])
def test_an_answer_that_is_none_is_an_error_in_words(hpc: Hpc, lab: Lab, text: str, tmp_path: Path):
    lab({}, {})
    (tmp_path / "RESULTS").write_text(text)
    assert "the controller gave no results of health checks" in hpc("health", "dev").error
