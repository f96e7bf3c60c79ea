"""Notes of what was under way (pending operations) outlive what they are about: the CLI never drops those of creations.
What the state holds is never deleted because of one, and what is resumed is not told as a deletion."""

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from engine import events

NODES = ("a", ("b", {"refs": ["a"]}), ("c", {"options": {"parent": "a"}}))
KINDS = ("creating", "updating", "deleting", "reading", "importing")


def as_created(row):
    """How the CLI notes a creation: without an id, and without the times of one that is there."""
    for key in ("id", "outputs", "created", "modified"):
        row.pop(key, None)


def created_otherwise(row):
    as_created(row)
    row["inputs"]["value"] = "what it was to be then"


def created_elsewhere(row):
    """Its parent had another type then."""
    created_otherwise(row)
    row["urn"] = row["urn"].replace("::pulumi-python:", "::old:index:Group$pulumi-python:")


@pytest.mark.parametrize("change", [as_created, created_otherwise, created_elsewhere])
@pytest.mark.parametrize("kind", ["preview", "up", "destroy"])
def test_a_note_of_a_creation_that_a_later_run_brought_to_its_end_is_void(bench, change, kind):
    bench.up(*NODES)
    bench.note(("creating", "b", change))
    bench.did()
    result = bench.run(kind)
    assert result.ok
    if kind == "destroy":
        assert sorted(bench.steps()) == ["delete a.0", "delete b.0", "delete c.0"]
        return
    assert (bench.ops(), bench.steps()) == ({}, [])
    assert result.summary == "nothing to do"
    if kind == "up":
        assert "pending_operations" not in bench.stack().export_state()["deployment"]


def test_a_note_of_a_deletion_is_void_once_another_is_in_its_place(bench):
    bench.up(*NODES)
    bench.note(("deleting", "b", lambda row: row.update(created="2026-01-01T00:00:00Z")))
    assert bench.up().summary == "nothing to do"


def test_a_note_of_a_thing_that_another_resource_took_over_leaves_it_where_it_is(bench):
    """Its URN is another, and so are its inputs: only what `create` returns tells that it is the same thing."""
    bench.up(("renamed", {"props": {"name": "a", "value": "new"}}))

    def before(row):
        as_created(row)
        row["urn"] = row["urn"].replace("::renamed", "::a")
        row["inputs"]["value"] = "old"

    bench.note(("creating", "renamed", before))
    bench.did()
    assert bench.up().ok
    assert not [step for step in bench.steps() if step.startswith("delete")]
    assert set(bench.alive()) == {"a.0"}
    assert any("belongs to another" in e.message for e in bench.of(events.Log))


def test_what_up_resumes_is_no_deletion_in_a_preview(bench):
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
        assert bench.ops() == {"b": "create"}
    assert bench.preview("a").counts["delete"] == 1


def test_an_interrupted_replacement_is_no_deletion_in_a_preview_either(bench):
    bench.up("a")

    def anew(row):
        row["inputs"]["generation"] = 1
        for key in ("id", "outputs"):
            row.pop(key)

    bench.note(("creating", "a", anew))
    assert bench.preview().ok
    assert bench.ops() == {}
    (bench.living / "a.1").write_text("half")
    bench.preview(("a", {"props": {"generation": 1}}))
    assert bench.ops() == {"a": "replace"}
    bench.did()
    assert bench.up("a").ok
    assert set(bench.alive()) == {"a.0"}, "what was made beside it goes"


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
    """Not the note of a deletion that really was begun: the thing may be half gone, and is made anew."""
    return kind != "deleting" or "created" in given or "id" in given


notes = st.tuples(st.sampled_from(KINDS), st.sampled_from("abc"), changes)


@settings(
    max_examples=15, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(left=st.lists(notes.filter(lambda n: stale(n[0], n[2])), min_size=1, max_size=4))
def test_no_stale_note_ever_leads_to_the_deletion_of_what_the_state_holds(bench, left):
    with tempfile.TemporaryDirectory(dir=bench.root.parent) as folder:
        ours = type(bench)(Path(folder) / "project")
        os.environ["LIVING"] = str(ours.living)
        ours.up(*NODES)
        held = set(ours.alive())
        ours.note(*((kind, name, lambda row, given=given: apply(row, given)) for kind, name, given in left))
        foretold = (ours.preview().ok, ours.ops())
        assert "delete" not in foretold[1].values()
        ours.did()
        assert ours.up().ok
        deleted = {step.split()[1] for step in ours.steps() if step.startswith("delete")}
        assert not deleted & held
        assert set(ours.alive()) == held
        assert ours.up().summary == "nothing to do"


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
