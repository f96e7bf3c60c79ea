"""A run may be killed at any moment: nothing is orphaned, and the next one heals what was left."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from engine import events
from engine.core import run
from engine.core import run as core
from tests.waiting import PATIENCE


def killed_while_creating(bench, name, *nodes):
    """Kill -9 a run while it holds `name` half-made."""
    bench.graph(*nodes)
    bench.flag(f"hold-{name}")
    process = bench.spawn("up")
    bench.wait_until_held()
    process.kill()
    process.join()
    bench.flag(f"hold-{name}", on=False)
    pending = bench.stack().export_state()["deployment"]["pending_operations"]
    assert [(p["type"], p["resource"]["urn"].split("::")[-1]) for p in pending] == [("creating", name)]


def healthy(bench):
    return "pending_operations" not in bench.stack().export_state()["deployment"]


def test_an_interrupted_creation_is_taken_over_by_the_next_up(bench):
    killed_while_creating(bench, "b", "a", ("b", {"refs": ["a"], "props": {"value": "v"}}))
    assert bench.up().ok
    assert bench.alive() == {"a.0": "", "b.0": "v"}
    assert healthy(bench)
    assert next(p for p in bench.of(events.Planned) if p.name == "b").reason == "its creation was interrupted"


def test_what_an_interrupted_creation_left_goes_if_the_program_drops_or_changes_it(bench):
    killed_while_creating(bench, "b", "a", ("b", {"refs": ["a"]}))
    assert bench.preview("a").counts == {"same": 2, "delete": 1}
    assert bench.up("a").ok
    assert set(bench.alive()) == {"a.0"}
    assert healthy(bench)
    killed_while_creating(bench, "b", "a", "b")
    # Another object altogether: the half-made one would be nobody's.
    assert bench.up("a", ("b", {"props": {"generation": 7}})).ok
    assert set(bench.alive()) == {"a.0", "b.7"}
    assert healthy(bench)


def test_destroy_removes_what_an_interrupted_creation_left(bench):
    killed_while_creating(bench, "b", "a", ("b", {"refs": ["a"]}))
    assert bench.run("destroy").ok
    assert bench.alive() == {}
    assert healthy(bench)


def test_an_interrupted_replacement_is_undone_if_the_program_goes_back(bench):
    bench.up("a")
    killed_while_creating(bench, "a", ("a", {"props": {"generation": 1}}))
    assert set(bench.alive()) == {"a.0", "a.1"}
    assert bench.up("a").ok
    assert set(bench.alive()) == {"a.0"}
    assert healthy(bench)


def test_interrupted_updates_and_deletions_are_repeated_even_if_nothing_seems_to_differ(bench):
    bench.up("a", ("b", {"options": {"delete_before_replace": False}}))
    bench.note(("updating", "a"), ("deleting", "b"))
    bench.did()
    assert bench.up().ok
    assert bench.ops() == {"a": "update", "b": "replace"}
    steps = bench.steps()
    assert sorted(steps) == ["create b.0", "delete b.0", "update a.0"]
    # Whatever the options say: the other way round, the deletion would hit the new one.
    assert steps.index("delete b.0") < steps.index("create b.0")
    assert healthy(bench)


def test_notes_of_what_is_long_gone_are_dropped(bench):
    bench.up("a")
    bench.note(("updating", "a", lambda row: row.update(urn=row["urn"] + "-gone")))
    assert bench.up().summary == "nothing to do"
    assert healthy(bench)


@pytest.mark.parametrize("seed", range(2))
def test_kill_at_a_random_moment_orphans_nothing(bench, seed):
    """Whatever lives is known to the state (done or pending) at every moment; the next up makes all right."""
    dice = random.Random(seed)  # noqa: S311 - dice, not keys
    nodes = [
        (f"n{i}", {"refs": [f"n{i - 1}"] if i % 3 else [], "props": {"delay": 0.02, "generation": 0}}) for i in range(9)
    ]
    changed = [(n, {**o, "props": {"delay": 0.02, "generation": dice.randint(0, 1)}}) for n, o in nodes[:7]]
    bench.up(*nodes[:4])
    bench.graph(*changed)
    bench.did()
    process = bench.spawn("up")
    while not (bench.root.parent / "log").exists():
        time.sleep(0.005)
    time.sleep(dice.random() * 0.25)
    process.kill()
    process.join()
    row = bench.stack().export_state()["deployment"]
    known = {
        f"{r['inputs']['name']}.{r['inputs']['generation']}" for r in row["resources"] if "name" in r.get("inputs", {})
    }
    known |= {
        f"{p['resource']['inputs']['name']}.{p['resource']['inputs']['generation']}"
        for p in row.get("pending_operations", [])
    }
    assert set(bench.alive()) <= known
    assert bench.up().ok
    assert set(bench.alive()) == {f"{n}.{o['props']['generation']}" for n, o in changed}
    assert healthy(bench)
    assert bench.run("destroy").ok
    assert bench.alive() == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_ctrl_c_finishes_what_has_begun_and_begins_nothing_new(bench, number):
    bench.graph("a", ("b", {"refs": ["a"]}))
    bench.flag("hold-a")
    process = bench.spawn("up")
    bench.wait_until_held()
    os.kill(process.pid, number)
    time.sleep(0.1)
    assert process.is_alive()
    bench.flag("hold-a", on=False)
    process.join(PATIENCE)
    assert process.exitcode == 1
    assert "interrupted" in (bench.root.parent / "summary").read_text()
    assert set(bench.alive()) == {"a.0"}
    assert healthy(bench)
    bench.did()
    assert bench.up().ok
    assert bench.steps() == ["create b.0"]


def test_the_second_ctrl_c_stops_at_once_and_the_next_run_heals(bench):
    bench.graph("a", ("b", {"refs": ["a"]}))
    bench.flag("hold-a")
    process = bench.spawn("up")
    bench.wait_until_held()
    for _ in range(2):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.1)
    process.join(PATIENCE)
    assert process.exitcode is not None
    bench.flag("hold-a", on=False)
    assert not healthy(bench)
    assert bench.up().ok
    assert set(bench.alive()) == {"a.0", "b.0"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_sent_once_ends_a_step_that_goes_on_and_the_next_run_heals(bench, number, monkeypatch):
    monkeypatch.setattr(core, "GRACE_SECONDS", 0.5)
    bench.graph("a", ("b", {"refs": ["a"]}))
    bench.flag("hold-a")
    process = bench.spawn("up")
    bench.wait_until_held()
    began = time.monotonic()
    os.kill(process.pid, number)
    process.join(PATIENCE)
    assert time.monotonic() - began >= 0.5
    assert process.exitcode is not None
    bench.flag("hold-a", on=False)
    assert bench.up().ok
    assert set(bench.alive()) == {"a.0", "b.0"}


def test_a_closed_terminal_does_not_end_what_was_started_with_nohup(bench):
    bench.graph("a")
    bench.flag("hold-a")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = bench.spawn("up")
    finally:
        signal.signal(signal.SIGHUP, before)
    bench.wait_until_held()
    os.kill(process.pid, signal.SIGHUP)
    bench.flag("hold-a", on=False)
    process.join(PATIENCE)
    assert process.exitcode == 0


def test_nothing_is_printed_to_a_terminal_that_is_gone():
    ours, theirs = os.openpty()
    os.close(ours)
    program = "from engine.core import run; run._discard_closed_output(); print('x', flush=True)"
    done = subprocess.run([sys.executable, "-c", program], stdout=theirs, stderr=theirs, check=False)
    os.close(theirs)
    assert done.returncode == 0


def test_a_call_that_nobody_waits_for_any_more_ends_without_a_word(monkeypatch):
    """After a Ctrl-C the loop is gone while steps still finish."""
    complaints = []
    monkeypatch.setattr(threading, "excepthook", complaints.append)
    began, go_on = threading.Event(), threading.Event()

    def work():
        began.set()
        go_on.wait()

    loop = asyncio.new_event_loop()
    waiting = loop.run_in_executor(run.DaemonExecutor(4), work)
    assert began.wait(PATIENCE)
    waiting.cancel()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    daemons = [thread for thread in threading.enumerate() if thread.daemon]
    go_on.set()
    for thread in daemons:
        thread.join(0.5)
    assert complaints == []
