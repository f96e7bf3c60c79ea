"""Stale pending operations: the CLI never drops those of creations. They never delete a resource of the state, and a
preview does not show a resumed creation as a deletion."""

import copy
import gzip
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from engine import Scope, events

NODES = ("a", ("b", {"refs": ["a"]}), ("c", {"options": {"parent": "a"}}))
KINDS = ("creating", "updating", "deleting", "reading", "importing")


def as_created(row):
    """Change a row to one of a pending creation of the CLI, which has neither id nor times."""
    for key in ("id", "outputs", "created", "modified"):
        row.pop(key, None)


def created_otherwise(row):
    as_created(row)
    row["inputs"]["value"] = "of that run"


def created_elsewhere(row):
    """Change a row to one of a pending creation under a parent of another type."""
    created_otherwise(row)
    row["urn"] = row["urn"].replace("::pulumi-python:", "::old:index:Group$pulumi-python:")


@pytest.mark.parametrize("change", [as_created, created_otherwise, created_elsewhere])
@pytest.mark.parametrize("kind", ["preview", "up", "destroy"])
def test_a_pending_creation_of_an_existing_resource_is_dropped(bench, change, kind):
    bench.up(*NODES)
    bench.add_pending(("creating", "b", change))
    bench.take_log()
    result = bench.run(kind)
    assert result.ok
    if kind == "destroy":
        assert sorted(bench.take_steps()) == ["delete a.0", "delete b.0", "delete c.0"]
        return
    assert (bench.planned(), bench.take_steps()) == ({}, [])
    assert result.summary == "nothing to do"
    if kind == "up":
        assert "pending_operations" not in bench.stack().export_state()["deployment"]


def test_a_pending_deletion_of_a_replaced_resource_is_dropped(bench):
    bench.up(*NODES)
    bench.add_pending(("deleting", "b", lambda row: row.update(created="2026-01-01T00:00:00Z")))
    assert bench.up().summary == "nothing to do"


def test_a_pending_creation_does_not_delete_an_object_of_another_resource(bench):
    """URN and inputs differ: only the id that `create` returns shows that it is the same object."""
    bench.up(("renamed", {"props": {"name": "a", "value": "new"}}))

    def before(row):
        as_created(row)
        row["urn"] = row["urn"].replace("::renamed", "::a")
        row["inputs"]["value"] = "old"

    bench.add_pending(("creating", "renamed", before))
    bench.take_log()
    assert bench.up().ok
    assert not [step for step in bench.take_steps() if step.startswith("delete")]
    assert set(bench.objects()) == {"a.0"}
    assert any("belongs to another" in e.message for e in bench.events_of(events.LogLine))


def test_a_resumed_creation_is_no_deletion_in_a_preview(bench):
    bench.up("a")
    bench.up("a", "b")
    file = bench.stack().file
    document = json.loads(file.read_text())
    latest = document["checkpoint"]["latest"]
    row = latest["resources"].pop()
    as_created(row)
    latest["pending_operations"] = [{"type": "creating", "resource": row}]
    file.write_text(json.dumps(document))
    for nodes in (("a", "b"), ("a", ("b", {"props": {"value": "changed"}}))):
        result = bench.preview(*nodes)
        assert result.counts == {"same": 2, "create": 1}
        assert bench.planned() == {"b": "create"}
    assert bench.preview("a").counts["delete"] == 1


def test_an_interrupted_replacement_is_no_deletion_in_a_preview_either(bench):
    bench.up("a")

    def next_generation(row):
        row["inputs"]["generation"] = 1
        for key in ("id", "outputs"):
            row.pop(key)

    bench.add_pending(("creating", "a", next_generation))
    assert bench.preview().ok
    assert bench.planned() == {}
    (bench.living / "a.1").write_text("half")
    bench.preview(("a", {"props": {"generation": 1}}))
    assert bench.planned() == {"a": "replace"}
    bench.take_log()
    assert bench.up("a").ok
    assert set(bench.objects()) == {"a.0"}, "what was made beside it goes"


def pending_creation(state, resource):
    """Add a pending creation to a state or a copy, as a run of the CLI that was killed leaves it, the newest first."""
    row = copy.deepcopy(resource)
    as_created(row)
    state["checkpoint"]["latest"].setdefault("pending_operations", []).insert(0, {"type": "creating", "resource": row})


@pytest.fixture
def finished(bench):
    """A stack that the CLI has destroyed. Its first `up` was killed while `b` was created and the second one finished
    it, so that both runs left the pending creation in the state and its copy in the history."""
    bench.up(*NODES)
    resource = bench.resources()["b"]
    assert bench.run("destroy").ok
    file = bench.stack().file
    copies = sorted((file.parents[2] / "history" / "bench" / "dev").glob("*.checkpoint.json"))
    assert len(copies) == 2
    for written in (file, *copies):
        document = json.loads(written.read_text())
        pending_creation(document, resource)
        text = json.dumps(document)
        written.unlink()  # copies of one state are one file
        written.write_text(text)
    bench.take_log()
    return resource


def change_state(bench, change):
    file = bench.stack().file
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["preview", "up", "destroy"])
def test_a_creation_that_the_cli_finished_is_not_repeated_after_the_resource_was_deleted(
    bench, finished, kind, compressed
):
    if compressed:
        for file in list((bench.stack().file.parents[2] / "history" / "bench" / "dev").glob("*.checkpoint.json")):
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    bench.graph("a")
    assert bench.run(kind).ok
    assert bench.take_steps() == (["create a.0"] if kind == "up" else [])
    assert bench.planned() == ({} if kind == "destroy" else {"a": "create"})
    assert not bench.stack().export_state()["deployment"].get("pending_operations")


def test_it_is_not_repeated_either_after_the_stack_was_renamed(bench, finished):
    """`pulumi stack rename` gives the URNs of the state another stack, and not those of the history."""
    change_state(
        bench, lambda row: row.update(json.loads(json.dumps(row).replace("urn:pulumi:dev::", "urn:pulumi:old::")))
    )
    assert bench.run("destroy").ok
    assert bench.take_steps() == []


def test_a_creation_that_was_interrupted_again_is_undone(bench, finished):
    """By the CLI, which adds a pending creation of the same resource before the one that it keeps."""
    change_state(bench, lambda document: pending_creation(document, finished))
    (bench.living / "b.0").write_text("half")
    assert bench.run("destroy").ok
    assert bench.objects() == {}
    assert bench.take_steps() == ["create b.0", "delete b.0"]


def test_a_creation_that_was_interrupted_again_is_undone_after_a_run_without_it(bench, finished):
    change_state(bench, lambda document: pending_creation(document, finished))
    (bench.living / "b.0").write_text("half")
    bench.graph("a")
    assert bench.run("up", scope=Scope(targets=("**::a",))).ok
    assert sorted(bench.objects()) == ["a.0", "b.0"]
    assert bench.run("destroy").ok
    assert bench.objects() == {}


def test_a_creation_of_this_engine_that_was_interrupted_later_is_undone(bench, finished):
    bench.graph("b")
    bench.flag("hold-b")
    process = bench.spawn("up")
    bench.wait_until_held()
    process.kill()
    process.join()
    bench.flag("hold-b", on=False)
    # A run of the CLI keeps it, and copies the state.
    file = bench.stack().file
    history = file.parents[2] / "history" / "bench" / "dev"
    (history / "dev-9999999999999999999.checkpoint.json").write_text(file.read_text())
    assert bench.run("destroy").ok
    assert bench.objects() == {}


changes = st.fixed_dictionaries(
    {},
    optional={
        "value": st.sampled_from(["", "other"]),
        "generation": st.integers(0, 1),
        "created": st.sampled_from(["", "2026-01-01T00:00:00Z"]),
        "id": st.sampled_from(["", "gone.7"]),
        "parent": st.just("old:index:Group"),
        "outputs": st.just(None),
    },
)


def stale(kind, given):
    """Return whether the pending operation is stale. One of a deletion that was really begun is not."""
    return kind != "deleting" or "created" in given or "id" in given


notes = st.tuples(st.sampled_from(KINDS), st.sampled_from("abc"), changes)


@settings(
    max_examples=15, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(left=st.lists(notes.filter(lambda n: stale(n[0], n[2])), min_size=1, max_size=4))
def test_stale_pending_operations_never_delete_resources_of_the_state(bench, left):
    with tempfile.TemporaryDirectory(dir=bench.root.parent) as folder:
        inner = type(bench)(Path(folder) / "project")
        os.environ["LIVING"] = str(inner.living)
        inner.up(*NODES)
        held = set(inner.objects())
        inner.add_pending(*((kind, name, lambda row, given=given: apply(row, given)) for kind, name, given in left))
        preview = (inner.preview().ok, inner.planned())
        assert "delete" not in preview[1].values()
        inner.take_log()
        assert inner.up().ok
        deleted = {step.split()[1] for step in inner.take_steps() if step.startswith("delete")}
        assert not deleted & held
        assert set(inner.objects()) == held
        assert inner.up().summary == "nothing to do"


def apply(row, given):
    for key, value in given.items():
        if key in ("value", "generation"):
            row["inputs"][key] = value
        elif key == "parent":
            row["urn"] = row["urn"].replace("::pulumi-python:", f"::{value}$pulumi-python:", 1)
        elif value:
            row[key] = value
        else:
            row.pop(key, None)
