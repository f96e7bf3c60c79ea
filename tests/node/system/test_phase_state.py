"""A phase that failed is known, with what it was told when it last ended well, until that holds again."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from slurm import slurmctld
from system import phase_state
from system.host import SetupError

PROGRAM = Path(__file__).parents[3] / "scripts/node/__main__.py"


@pytest.fixture
def phases(tmp_path, monkeypatch):
    """The set-up's program with phases that only note what they were told; told to fail, they do half and fail."""
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

    program.PHASES = {
        **program.PHASES,
        **{name: phase(name) for name in (*phase_state.PHASES, "no-prologs", "no-rxdm")},
    }
    monkeypatch.setattr(slurmctld, "applied", dict)
    program.done = done
    return program


def fail(phases, name):
    with pytest.raises(SetupError):
        phases.run_phase(name, "bad")


def test_what_ended_well_is_left_alone(phases):
    phases.run_phase("configure", "good")
    phases.restore_last_success({})
    assert phases.done == [("configure", "good")]


def test_what_failed_is_done_again_as_the_last_that_did_not(phases):
    phases.run_phase("configure", "good")
    phases.run_phase("accounting", "good")
    fail(phases, "accounting")
    fail(phases, "configure")
    phases.restore_last_success({})
    assert phases.done[4:] == [("configure", "good"), ("accounting", "good")], "in the order of an `up`"
    phases.restore_last_success({})
    assert len(phases.done) == 6, "and only once"


def test_what_fails_again_is_tried_again(phases):
    phases.run_phase("configure", "good")
    fail(phases, "configure")
    phases.PHASES["configure"], well = lambda _: (_ for _ in ()).throw(SetupError("still")), phases.PHASES["configure"]
    with pytest.raises(SetupError, match="still"):
        phases.restore_last_success({})
    phases.PHASES["configure"] = well
    phases.restore_last_success({})
    assert phases.done[-1] == ("configure", "good")


def test_an_edit_that_was_corrected_leaves_nothing_to_take_back(phases):
    phases.run_phase("configure", "good")
    fail(phases, "configure")
    phases.run_phase("configure", "better")
    phases.restore_last_success({})
    assert phases.done[-1] == ("configure", "better")


def test_what_never_ended_well_is_undone_where_that_can_be(phases):
    fail(phases, "prologs")
    fail(phases, "accounting")
    phases.restore_last_success({})
    assert phases.done[2:] == [("no-prologs", {})]
    assert phase_state.unfinished() == []


def test_what_was_undone_is_not_done_again(phases):
    phases.run_phase("prologs", "good")
    fail(phases, "prologs")
    phases.run_phase("no-prologs", {})
    phases.restore_last_success({})
    assert phases.done[-1] == ("no-prologs", {})


def test_a_record_that_cannot_be_read_is_none(phases, tmp_path):
    phases.run_phase("configure", "good")
    fail(phases, "configure")
    (tmp_path / "configure.json").write_text('{"cut o')
    phases.restore_last_success({})
    assert phases.done[-1] == ("configure", "bad")
    assert phase_state.unfinished() == []
