"""Phases of the set-up: their functions exist, and a failed phase runs again with the input of its last success."""

import ast
import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from accounting import backup
from slurm import slurmctld
from system import phase_state
from system.host import SetupError, log

PROGRAM = Path(__file__).parents[2] / "scripts/node/__main__.py"
TREE = ast.parse(PROGRAM.read_text())


def lazy_functions() -> list[tuple[str, str]]:
    """Module and function of each `lazy("MODULE", "FUNCTION")`."""
    calls = (node for node in ast.walk(TREE) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lazy")
    return [tuple(ast.literal_eval(argument) for argument in call.args) for call in calls]


@pytest.mark.parametrize(("module", "function"), sorted(set(lazy_functions())))
def test_function_of_each_phase_exists(module: str, function: str):
    assert callable(getattr(import_module(module), function))


def test_usage_lists_every_phase():
    lines = (ast.get_docstring(TREE) or "").splitlines()
    described = {line.split()[2] for line in lines if line.strip().startswith("python3 FOLDER")}
    assigned = [node.value for node in TREE.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    keys = {ast.literal_eval(key) for table in assigned if isinstance(table, ast.Dict) for key in table.keys if key}
    assert {name.removeprefix("no-") for name in keys} | {"boot", "lost-jobs"} == described


@pytest.fixture
def phases(tmp_path, monkeypatch):
    """The set-up's program with phases that only record their input in `done`, and fail with the input "bad"."""
    monkeypatch.setattr(phase_state, "FOLDER", tmp_path)
    monkeypatch.setattr(phase_state, "write", lambda path, text, **_: path.write_text(text))
    spec = importlib.util.spec_from_file_location("hpc_node_program", PROGRAM)
    assert spec
    assert spec.loader
    program: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    done: list[tuple[str, object]] = []

    def phase(name):
        def run(payload):
            done.append((name, payload))
            if payload == "bad":
                raise SetupError("half of it")

        return run

    program.PHASES |= {name: phase(name) for name in (*phase_state.PHASES, "no-prologs", "no-rxdm")}
    monkeypatch.setattr(slurmctld, "applied", dict)
    program.done = done
    return program


def fail(phases, name):
    with pytest.raises(SetupError):
        phases.run_phase(name, "bad")


def test_successful_phases_do_not_run_again(phases):
    phases.run_phase("configure", "good")
    phases.restore_last_success({})
    assert phases.done == [("configure", "good")]


def test_failed_phases_run_again_with_their_last_good_input(phases):
    phases.run_phase("configure", "good")
    phases.run_phase("accounting", "good")
    fail(phases, "accounting")
    fail(phases, "configure")
    phases.restore_last_success({})
    assert phases.done[4:] == [("configure", "good"), ("accounting", "good")], "in the order of an `up`"
    phases.restore_last_success({})
    assert len(phases.done) == 6, "and only once"


def test_a_phase_that_fails_again_is_retried(phases):
    phases.run_phase("configure", "good")
    fail(phases, "configure")
    phases.PHASES["configure"], well = lambda _: (_ for _ in ()).throw(SetupError("still")), phases.PHASES["configure"]
    with pytest.raises(SetupError, match="still"):
        phases.restore_last_success({})
    phases.PHASES["configure"] = well
    phases.restore_last_success({})
    assert phases.done[-1] == ("configure", "good")


@pytest.mark.parametrize(
    ("error", "message"),
    [(SetupError("half of it"), "configure: half of it"), (KeyError("disk"), "configure: KeyError('disk')")],
)
def test_machines_that_wait_learn_of_any_failure(phases, monkeypatch, error, message):
    reported: list[str] = []
    monkeypatch.setattr(phases.cluster_state, "report_failure", reported.append)
    monkeypatch.setitem(phases.PHASES, "configure", lambda _: (_ for _ in ()).throw(error))
    with pytest.raises(type(error)):
        phases.run_phase("configure", "good")
    assert reported == [message]


def test_a_corrected_edit_leaves_nothing_to_revert(phases):
    phases.run_phase("configure", "good")
    fail(phases, "configure")
    phases.run_phase("configure", "better")
    phases.restore_last_success({})
    assert phases.done[-1] == ("configure", "better")


def test_a_phase_that_never_succeeded_is_undone_if_possible(phases):
    fail(phases, "prologs")
    fail(phases, "accounting")
    phases.restore_last_success({})
    assert phases.done[2:] == [("no-prologs", {})]
    assert phase_state.unfinished() == []


def test_an_undone_phase_does_not_run_again(phases):
    phases.run_phase("prologs", "good")
    fail(phases, "prologs")
    phases.run_phase("no-prologs", {})
    phases.restore_last_success({})
    assert phases.done[-1] == ("no-prologs", {})


def test_an_unreadable_record_counts_as_none(phases, tmp_path):
    phases.run_phase("configure", "good")
    fail(phases, "configure")
    (tmp_path / "configure.json").write_text('{"cut o')
    phases.restore_last_success({})
    assert phases.done[-1] == ("configure", "bad")
    assert phase_state.unfinished() == []


def test_a_line_of_the_log_is_no_part_of_a_backup(phases, monkeypatch, capfd):
    """As whom it waits for, when another set-up is under way."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # restored
    monkeypatch.setattr(backup, "write_backup", lambda out: out.write(b"dump"))
    monkeypatch.setattr(backup, "write", lambda *_, **__: log("wrote it"))

    def run_with_lock(phase: str) -> None:
        log("another set-up is under way")
        phases.run_phase(phase, {})

    monkeypatch.setattr(phases, "run_with_lock", run_with_lock)
    assert phases.main(["backup"]) == 0
    assert capfd.readouterr() == ("dump", "another set-up is under way\nwrote it\n")
