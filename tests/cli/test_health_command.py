"""`./hpc health`: results of nodes as a table and as JSON, and machines that don't answer."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.load.parse import parse
from components.deploy import config_text
from tests.cli.conftest import Hpc, stand_for_state
from tests.cli.test_day_two import OUTPUTS
from tests.cluster.stacks import load

Tool = Callable[[str, str], Path]
NODES = """\
NodeName=dev-cpu-0 State=MIXED
NodeName=dev-cpu-1 State=IDLE+DRAIN Reason=hpc-health: mount: /home is not mounted [root@2026-11-21T05:43:58]
--jobs--
"""
# A controller and its nodes: what they are asked, by what stands in the line.
MACHINES = """\
for line; do :; done
printf '%s\\n' "$line" >>"$LOG"
case $line in
    *"scontrol --oneliner"*)
        mark=${line##* && echo }
        sed "s/--jobs--/${mark%% *}/" "$NODES"
        ;;
    *health-results*) cat "$RESULTS" ;;
    *"hpc-health now"*) echo '{}' ;;
esac
"""


def result(state: str = "ok", text: str = "", *, age: float = 5) -> dict[str, Any]:
    return {"time": time.time() - age, "checks": {"mount": {"state": state, "text": text}}}


@pytest.fixture
def lab(
    root: Path, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Callable[[], list[str]]]:
    """Stack `dev` is up, with such health checks and such results; gives the lines that its machines were given."""

    def make(results: object, checks: dict[str, Any] | None) -> Callable[[], list[str]]:
        values = load("dev")
        values["hpc:cluster"]["slurm"] = {"health": checks} if checks is not None else {}
        config = config_text(parse(values))
        stand_for_state(monkeypatch, {**OUTPUTS, "config": json.loads(config) if isinstance(config, str) else config})
        files = {"LOG": "", "NODES": NODES, "RESULTS": f"{time.time()}\n{json.dumps(results)}\n"}
        for name, text in files.items():
            (tmp_path / name).write_text(text)
            monkeypatch.setenv(name, str(tmp_path / name))
        tool("ssh", MACHINES)
        return lambda: (tmp_path / "LOG").read_text().splitlines()

    return make


def test_results_are_a_table_and_what_is_wrong_comes_with_a_command(hpc: Hpc, lab):
    lab({"dev-cpu-0": result(), "dev-cpu-1": result("failed", "/home is not mounted")}, {})
    ended = hpc("health", "dev")
    assert ended.code == 1
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["dev-cpu-0", "mixed", "ok"] in [row[:3] for row in rows]
    assert ["dev-cpu-1", "drained", "failed"] in [row[:3] for row in rows]
    assert "    > ./hpc ssh dev dev-cpu-1 -- mount --all" in ended.out.splitlines()
    assert "Who must act: administrator" in ended.out


def test_all_is_well(hpc: Hpc, lab):
    asked = lab({"dev-cpu-0": result()}, {})
    ended = hpc("health", "dev", "cpu-0")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("dev: 1 node, all is well.\n")
    assert not any("hpc-health" in line for line in asked())


def test_old_and_missing_results_are_said(hpc: Hpc, lab):
    lab({"dev-cpu-0": result(age=9999)}, {})
    document = json.loads(hpc("health", "dev", "--json").out)
    assert [(one["node"], one["result"]) for one in document["nodes"]] == [
        ("dev-cpu-0", "old"), ("dev-cpu-1", "no result"),
    ]  # fmt: skip
    assert not document["ok"]


def test_run_asks_the_chosen_nodes_only(hpc: Hpc, lab):
    asked = lab({"dev-cpu-0": result()}, {"network": {}})
    ended = hpc("health", "dev", "cpu-0", "--run")
    assert ended.code == 0
    assert sum("hpc-health now" in line for line in asked()) == 1
    assert not any("hpc-health-measure" in line for line in asked()), "a node with jobs was measured"


def test_a_stack_without_checks_says_how_to_have_them(hpc: Hpc, lab):
    lab({}, None)
    ended = hpc("health", "dev")
    assert ended.code == 1
    assert "slurm: {health: {}}" in ended.err


def test_an_unknown_node_is_named(hpc: Hpc, lab):
    lab({}, {})
    ended = hpc("health", "dev", "gpu-9")
    assert ended.code == 1
    assert "gpu-9" in ended.err


@pytest.mark.parametrize("text", ["", "garbage", "1.0\n[]", "1.0\n{\n"])
def test_an_answer_that_is_none_is_an_error_in_words(hpc: Hpc, lab, text: str, tmp_path: Path):
    lab({}, {})
    (tmp_path / "RESULTS").write_text(text)
    ended = hpc("health", "dev")
    assert ended.code == 1
    assert "the controller gave no results of health checks" in ended.err


def test_a_stack_that_is_not_up(hpc: Hpc, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cli.stack.outputs.read", lambda *_, **__: {})
    ended = hpc("health", "dev")
    assert (ended.code, ended.err) == (1, "error: stack dev is not up. Bring it up with: ./hpc up dev\n")
