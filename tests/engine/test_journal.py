"""The journal of a large state: after a kill at any moment, file and journal give the written state; after each run the
file alone is complete; and resources that only the journal has are not lost."""

import json
import os
import threading
import time

import pytest

from engine import Scope, events
from engine.state import checkpoint, state
from tests.engine import test_kill

URN = "urn:pulumi:dev::bench::pulumi-python:dynamic:Resource::"
NODES = [(f"n{i}", {"refs": [f"n{i - 1}"] if i % 3 else []}) for i in range(9)]


@pytest.fixture(autouse=True)
def _any_size(monkeypatch):
    """Use a journal for states of any size."""
    monkeypatch.setattr(state, "LARGE_STATE", 0)


@pytest.fixture
def writes(monkeypatch):
    """The journal, the file and the expected deployment after each write."""
    rows = []
    real = state.State._append

    def append(self):
        with self._lock:  # so that no other thread changes the state before it is noted
            real(self)
            rows.append((checkpoint.journal_file(self.file).read_bytes(), self.file.read_bytes(), self.deployment()))

    monkeypatch.setattr(state.State, "_append", append)
    return rows


def comparable(row):
    """The resources, and the pending operations, whose order means nothing: each has another resource."""
    pending = row.get("pending_operations") or []
    return row.get("resources") or [], sorted(pending, key=lambda op: (op["resource"]["urn"], op["type"]))


@pytest.mark.parametrize("least", [0, state.LARGE_JOURNAL], ids=["folded on the way", "one journal"])
def test_file_and_journal_give_the_written_state_after_each_write(bench, writes, monkeypatch, least):
    """Of creations, updates, replacements, a renaming and deletions."""
    monkeypatch.setattr(state, "LARGE_JOURNAL", least)
    bench.up(*NODES)
    bench.up(
        ("n0", {"props": {"value": "new"}}),
        ("n1", {"refs": ["n0"], "props": {"generation": 1}}),
        ("n2", {"props": {"generation": 1}, "options": {"delete_before_replace": True}}),
        ("named", {"props": {"name": "n3"}, "options": {"aliases": ["n3"]}}),
        ("n4", {"refs": ["named"]}),
        "other",
    )
    bench.up("other", *NODES[:3], scope=Scope(targets=(f"{URN}n*",), dependents=True))
    bench.run("destroy")
    assert len(writes) >= 12, "begin and end of each step of the longest chains: three creations, three deletions"
    file = bench.stack().file
    for lines, text, wanted in writes:
        file.write_bytes(text)
        checkpoint.journal_file(file).write_bytes(lines)
        assert comparable(checkpoint.read(file)) == comparable(wanted)


def test_a_partial_line_is_skipped(bench, writes):
    bench.up("a")
    bench.up(*NODES)
    lines, text, _ = writes[-1]
    file = bench.stack().file
    file.write_bytes(text)
    checkpoint.journal_file(file).write_bytes(lines)
    whole = checkpoint.read(file)
    checkpoint.journal_file(file).write_bytes(lines + lines.splitlines()[-1][:-7])
    assert comparable(checkpoint.read(file)) == comparable(whole)
    bench.stack().prepare_for_cli()
    assert not checkpoint.journal_file(file).exists()
    assert comparable(json.loads(file.read_text())["checkpoint"]["latest"]) == comparable(whole)


def test_after_each_run_the_file_alone_is_the_state(bench):
    bench.up(*NODES)
    assert not checkpoint.journal_file(bench.stack().file).exists()
    bench.up(*NODES[:2])
    assert not checkpoint.journal_file(bench.stack().file).exists()
    assert set(bench.resources()) == {"n0", "n1"}
    assert bench.workspace().stacks() == ["dev"]


def killed(bench):
    """Kill a run after the creation of b, and in the middle of that of c. Returns the state file."""
    bench.up("a")
    bench.graph("a", "b", ("c", {"refs": ["b"]}))
    bench.flag("hold-c")
    process = bench.spawn("up")
    bench.wait_until_held()
    process.kill()
    process.join()
    bench.flag("hold-c", on=False)
    assert checkpoint.journal_file(bench.stack().file).exists()
    return bench.stack().file


def test_a_killed_run_is_resumed_and_every_command_reads_its_journal(bench):
    file = killed(bench)
    assert set(bench.resources()) == {"a", "b"}
    assert bench.preview().counts == {"same": 3, "create": 1}
    assert checkpoint.journal_file(file).exists(), "a preview changes nothing"
    bench.take_log()
    assert bench.up().ok
    assert bench.take_steps() == ["create c.0"]
    assert not checkpoint.journal_file(file).exists()


def test_the_journal_is_merged_before_the_pulumi_cli_runs(bench):
    file = killed(bench)
    assert bench.stack().interrupted
    bench.stack().prepare_for_cli()
    assert not bench.stack().interrupted
    latest = json.loads(file.read_text())["checkpoint"]["latest"]
    assert {r["urn"] for r in latest["resources"]} >= {URN + "a", URN + "b"}
    assert [op["resource"]["urn"] for op in latest["pending_operations"]] == [URN + "c"]
    assert not checkpoint.journal_file(file).exists()


def test_resources_of_the_journal_are_pending_after_another_program_wrote_the_state(bench):
    """The lock of the killed run keeps the CLI away until somebody breaks it."""
    file = killed(bench)
    assert bench.stack()._locks().holders()
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document, indent=1))
    assert set(bench.resources()) == {"a"}
    pending = bench.stack().export_state()["deployment"]["pending_operations"]
    assert {op["resource"]["urn"] for op in pending} == {URN + "b", URN + "c"}
    assert bench.up("a", "b").ok
    assert set(bench.objects()) == {"a.0", "b.0"}, "nothing is orphaned"
    assert "pending_operations" not in bench.stack().export_state()["deployment"]


def test_resources_of_the_journal_that_another_program_created_and_deleted_are_not_pending(bench):
    """After `pulumi cancel`, the CLI created `c` in one run and deleted it in the next; its runs are in the history."""
    file = killed(bench)
    document = json.loads(file.read_text())
    latest = document["checkpoint"]["latest"]
    row = {**next(r for r in latest["resources"] if r["urn"] == URN + "a"), "urn": URN + "c", "id": "c.0"}
    with_c = {**document, "checkpoint": {"latest": {**latest, "resources": [*latest["resources"], row]}}}
    for text in (json.dumps(with_c), json.dumps(document, indent=1)):
        copy = file.parents[2] / "history" / "bench" / "dev" / f"dev-{time.time_ns()}.checkpoint.json"
        copy.write_text(text)
        file.write_text(text)
    pending = bench.stack().export_state()["deployment"]["pending_operations"]
    assert {op["resource"]["urn"] for op in pending} == {URN + "b"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_while_the_journal_is_folded_loses_nothing(bench, monkeypatch, when):
    file = killed(bench)
    whole = checkpoint.read(file)
    real = checkpoint.write_text

    def interrupted(*args):
        if when == "after":
            real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.stack().prepare_for_cli()
    assert checkpoint.journal_file(file).exists()
    assert comparable(checkpoint.read(file)) == comparable(whole)
    monkeypatch.undo()
    bench.stack().prepare_for_cli()
    assert comparable(json.loads(file.read_text())["checkpoint"]["latest"]) == comparable(whole)


@pytest.mark.parametrize("seed", range(2))
def test_kill_at_a_random_moment_orphans_nothing(bench, seed):
    test_kill.test_kill_at_a_random_moment_orphans_nothing(bench, seed)


def test_a_full_disk_is_an_error_and_the_next_run_resumes(bench, monkeypatch):
    bench.up("a")

    def full(*_args):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as broken:
        broken.setattr(checkpoint.os, "write", full)
        broken.setattr(checkpoint, "write_text", full)
        with pytest.raises(state.StateWriteError, match=r"dev\.json: the state can't be written: No space left"):
            bench.up("a", "b")
        assert [f.message.split(": ")[1] for f in bench.events_of(events.StepFailed)] == ["the state can't be written"]
    assert set(bench.objects()) == {"a.0"}, "no step begins that is not noted"
    assert not bench.stack()._locks().holders()
    assert bench.up("a", "b").ok


def test_the_number_of_threads_does_not_depend_on_that_of_resources(bench):
    most = [0]
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            most[0] = max(most[0], threading.active_count())
            time.sleep(0.001)

    before = threading.active_count()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        nodes = [f"n{i}" for i in range(60)]
        assert bench.up(*nodes, parallel=4).ok
        assert bench.run("refresh", parallel=4).ok
        assert bench.run("destroy", parallel=4).ok
    finally:
        stop.set()
        watcher.join()
    assert most[0] <= before + 1 + 2 * 4 + 16 + 4


def test_a_run_without_changes_shares_the_copies_of_the_last_one(bench):
    bench.up("a")
    backend = bench.root.parent / "project-backend/.pulumi"
    kept = {file.stat().st_ino for file in backend.rglob("dev*.json")}
    assert bench.up().summary == "nothing to do"
    (new,) = [file for file in backend.rglob("dev*.json") if file.stat().st_ino not in kept]
    assert new.name.endswith(".history.json"), "a line of a few words"
    assert len(list((backend / "history").rglob("*.checkpoint.json"))) == 2
    file = bench.stack().file
    before = [copy.read_text() for copy in (backend / "backups").rglob("*.json")]
    file.write_text("damaged")
    assert [copy.read_text() for copy in (backend / "backups").rglob("*.json")] == before, "no copy is the state itself"


def test_a_history_that_cannot_be_written_is_a_warning(bench, monkeypatch):
    def full(self, *_args):
        raise OSError(28, os.strerror(28), "history")

    monkeypatch.setattr(state.State, "archive", full)
    assert bench.up("a").ok
    assert [e.message for e in bench.events_of(events.LogLine)][-1].endswith("history: No space left on device")
    assert not bench.stack()._locks().holders()
