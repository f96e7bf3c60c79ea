"""A run may be killed at any moment: nothing is orphaned, and the next run resumes or undoes what it left."""

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
from tests.waiting import PATIENCE


@pytest.fixture(autouse=True)
def _hangups_end_a_run():
    """Tests under nohup have SIGHUP ignored, and so have what they start."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def killed_while_creating(bench, name, *nodes):
    """Kill a run with SIGKILL in the middle of the creation of `name`."""
    bench.graph(*nodes)
    bench.flag(f"hold-{name}")
    process = bench.spawn("up")
    bench.wait_until_held()
    process.kill()
    process.join()
    bench.flag(f"hold-{name}", on=False)
    pending = bench.stack().export_state()["deployment"]["pending_operations"]
    assert [(p["type"], p["resource"]["urn"].split("::")[-1]) for p in pending] == [("creating", name)]


def has_no_pending(bench):
    return "pending_operations" not in bench.stack().export_state()["deployment"]


def test_an_interrupted_creation_is_resumed_by_the_next_up(bench):
    killed_while_creating(bench, "b", "a", ("b", {"refs": ["a"], "props": {"value": "v"}}))
    assert bench.up().ok
    assert bench.objects() == {"a.0": "", "b.0": "v"}
    assert has_no_pending(bench)
    assert next(p for p in bench.events_of(events.Planned) if p.name == "b").reason == "its creation was interrupted"


def test_an_interrupted_creation_is_undone_if_the_program_drops_or_changes_it(bench):
    killed_while_creating(bench, "b", "a", ("b", {"refs": ["a"]}))
    assert bench.preview("a").counts == {"same": 2, "delete": 1}
    assert bench.up("a").ok
    assert set(bench.objects()) == {"a.0"}
    assert has_no_pending(bench)
    killed_while_creating(bench, "b", "a", "b")
    # With another generation it is another object, and the first one would be orphaned.
    assert bench.up("a", ("b", {"props": {"generation": 7}})).ok
    assert set(bench.objects()) == {"a.0", "b.7"}
    assert has_no_pending(bench)


def test_destroy_undoes_an_interrupted_creation(bench):
    killed_while_creating(bench, "b", "a", ("b", {"refs": ["a"]}))
    assert bench.run("destroy").ok
    assert bench.objects() == {}
    assert has_no_pending(bench)


def test_an_interrupted_replacement_is_undone_if_the_program_reverts_it(bench):
    bench.up("a")
    killed_while_creating(bench, "a", ("a", {"props": {"generation": 1}}))
    assert set(bench.objects()) == {"a.0", "a.1"}
    assert bench.up("a").ok
    assert set(bench.objects()) == {"a.0"}
    assert has_no_pending(bench)


def test_interrupted_updates_and_deletions_are_repeated_without_a_difference(bench):
    bench.up("a", ("b", {"options": {"delete_before_replace": False}}))
    bench.add_pending(("updating", "a"), ("deleting", "b"))
    bench.take_log()
    assert bench.up().ok
    assert bench.planned() == {"a": "update", "b": "replace"}
    steps = bench.take_steps()
    assert sorted(steps) == ["create b.0", "delete b.0", "update a.0"]
    # Whatever the options are: in the other order, the deletion would delete the new one.
    assert steps.index("delete b.0") < steps.index("create b.0")
    assert has_no_pending(bench)


def test_pending_operations_of_unknown_resources_are_dropped(bench):
    bench.up("a")
    bench.add_pending(("updating", "a", lambda row: row.update(urn=row["urn"] + "-gone")))
    assert bench.up().summary == "nothing to do"
    assert has_no_pending(bench)


@pytest.mark.parametrize("seed", range(2))
def test_kill_at_a_random_moment_orphans_nothing(bench, seed):
    """At every moment each object is in the state, as a resource or as pending; the next up completes the program."""
    dice = random.Random(seed)  # noqa: S311 - dice, not keys
    nodes = [
        (f"n{i}", {"refs": [f"n{i - 1}"] if i % 3 else [], "props": {"delay": 0.02, "generation": 0}}) for i in range(9)
    ]
    changed = [(n, {**o, "props": {"delay": 0.02, "generation": dice.randint(0, 1)}}) for n, o in nodes[:7]]
    bench.up(*nodes[:4])
    bench.graph(*changed)
    bench.take_log()
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
    assert set(bench.objects()) <= known
    assert bench.up().ok
    assert set(bench.objects()) == {f"{n}.{o['props']['generation']}" for n, o in changed}
    assert has_no_pending(bench)
    assert bench.run("destroy").ok
    assert bench.objects() == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_after_the_first_signal_running_steps_finish_and_none_begins(bench, number):
    bench.graph("a", ("b", {"refs": ["a"]}))
    bench.flag("hold-a")
    process = bench.spawn("up")
    bench.wait_until_held()
    os.kill(process.pid, number)
    bench.wait_until_stopping()
    assert process.is_alive()
    bench.flag("hold-a", on=False)
    process.join(PATIENCE)
    assert process.exitcode == 1
    assert "interrupted" in (bench.root.parent / "summary").read_text()
    assert set(bench.objects()) == {"a.0"}
    assert has_no_pending(bench)
    bench.take_log()
    assert bench.up().ok
    assert bench.take_steps() == ["create b.0"]


def test_the_second_ctrl_c_stops_at_once_and_the_next_run_resumes(bench):
    bench.graph("a", ("b", {"refs": ["a"]}))
    bench.flag("hold-a")
    process = bench.spawn("up")
    bench.wait_until_held()
    os.kill(process.pid, signal.SIGINT)
    bench.wait_until_stopping()
    os.kill(process.pid, signal.SIGINT)
    process.join(PATIENCE)
    assert process.exitcode is not None
    bench.flag("hold-a", on=False)
    assert not has_no_pending(bench)
    assert bench.up().ok
    assert set(bench.objects()) == {"a.0", "b.0"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_end_a_running_step_after_the_grace_time(bench, number, monkeypatch):
    monkeypatch.setattr(run, "GRACE_SECONDS", 0.5)
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
    assert set(bench.objects()) == {"a.0", "b.0"}


def test_a_closed_terminal_does_not_end_a_run_under_nohup(bench):
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


def test_output_to_a_closed_terminal_is_discarded():
    ours, theirs = os.openpty()
    os.close(ours)
    program = "from engine.core import run; run._discard_closed_output(); print('x', flush=True)"
    done = subprocess.run([sys.executable, "-c", program], stdout=theirs, stderr=theirs, check=False)
    os.close(theirs)
    assert done.returncode == 0


def test_a_call_of_a_closed_loop_ends_without_an_exception(monkeypatch):
    """After a Ctrl-C the loop is closed while steps still finish."""
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
