"""Edits of single resources of a state: references are changed too, and the rest stays."""

import copy

import pytest

from engine.errors import EngineError
from engine.state import stored_stack
from engine.state.resource import Resource

STACK = "urn:pulumi:dev::bench::pulumi:pulumi:Stack::bench-dev"


def urn(name):
    return f"urn:pulumi:dev::bench::a:b:C::{name}"


ROWS = [
    {"urn": STACK, "type": "pulumi:pulumi:Stack"},
    {"urn": urn("p"), "type": "pulumi:providers:a", "custom": True, "id": "x"},
    {"urn": urn("base"), "type": "a:b:C", "parent": STACK, "provider": f"{urn('p')}::x", "protect": True},
    {"urn": urn("needs"), "type": "a:b:C", "propertyDependencies": {"k": [urn("base")], "n": None},
     "dependencies": [urn("base")]},
    {"urn": urn("child"), "type": "a:b:C", "parent": urn("needs"), "protect": True, "deletedWith": urn("base")},
    {"urn": urn("alone"), "type": "a:b:C", "inputs": {"key": {"4dabf18193072939515e22adb298388d": "x"}}},
]  # fmt: skip


def names(rows):
    return [row["urn"].rpartition("::")[2] for row in rows]


def test_unprotecting_changes_nothing_else():
    before = copy.deepcopy(ROWS)
    assert not any(row.get("protect") for row in stored_stack.unprotected(ROWS, None))
    some = stored_stack.unprotected(ROWS, [urn("base")])
    assert [row["urn"] for row in some if row.get("protect")] == [urn("child")]
    assert [{**row, "protect": 0} for row in some] == [{**row, "protect": 0} for row in ROWS]
    assert before == ROWS


def test_a_resource_is_removed_only_with_its_dependents():
    assert names(stored_stack.without(ROWS, [urn("alone")], force=False, dependents=False)) == [
        "bench-dev", "p", "base", "needs", "child",
    ]  # fmt: skip
    with pytest.raises(EngineError, match=r"C::needs needs .*C::base, which can't be forgotten alone"):
        stored_stack.without(ROWS, [urn("base")], force=True, dependents=False)
    with pytest.raises(EngineError, match=r"C::base is protected: unprotect it first"):
        stored_stack.without(ROWS, [urn("base")], force=False, dependents=True)
    # All resources of a provider depend on it.
    assert names(stored_stack.without(ROWS, [urn("p")], force=True, dependents=True)) == ["bench-dev", "alone"]


def test_a_rename_changes_all_references():
    rows = stored_stack.renamed(stored_stack.renamed(ROWS, urn("base"), "ground"), urn("p"), "q")
    assert urn("base") not in str(rows)
    assert urn("p") not in str(rows)
    assert rows[2] == {**ROWS[2], "custom": False, "urn": urn("ground"), "provider": f"{urn('q')}::x"}
    assert rows[3]["propertyDependencies"] == {"k": [urn("ground")], "n": []}
    back = stored_stack.renamed(stored_stack.renamed(rows, urn("ground"), "base"), urn("q"), "p")
    assert [Resource.from_json(row).needs() for row in back] == [Resource.from_json(row).needs() for row in ROWS]
    for wrong in ("", "a b", "a::b", "alone"):
        with pytest.raises(EngineError):
            stored_stack.renamed(ROWS, urn("base"), wrong)


def test_an_unknown_resource_is_an_error():
    for edit in (
        lambda: stored_stack.unprotected(ROWS, [urn("nobody")]),
        lambda: stored_stack.without(ROWS, [urn("nobody")], force=True, dependents=True),
        lambda: stored_stack.renamed(ROWS, urn("nobody"), "x"),
    ):
        with pytest.raises(EngineError, match=r"there is no resource .*::nobody in this stack"):
            edit()
    with pytest.raises(EngineError, match="the stack itself"):
        stored_stack.without(ROWS, [STACK], force=True, dependents=True)


def test_edits_work_on_an_existing_stack(bench):
    bench.up("a")
    stack = bench.stack()
    target = next(row["urn"] for row in stack.export_state()["deployment"]["resources"] if row["urn"].endswith("::a"))
    stack.edit(lambda rows: stored_stack.renamed(rows, target, "b"))
    assert bench.up("a").counts["create"] == 1  # the one of that name was given away
    stack.edit(lambda rows: stored_stack.without(rows, [target], force=False, dependents=True))
    assert target not in str(bench.stack().export_state())
