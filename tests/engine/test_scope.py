"""A run that is about some resources only: as the CLI has it, nothing else is touched, and nothing dangles."""

import pytest

from engine import EngineError, Scope

URN = "urn:pulumi:dev::bench::pulumi-python:dynamic:Resource::"
STACK = "urn:pulumi:dev::bench::pulumi:pulumi:Stack::bench-dev"


def targets(*names, dependents=False):
    return Scope(targets=tuple(URN + name for name in names), dependents=dependents)


def excludes(*names, dependents=False):
    return Scope(excludes=tuple(URN + name for name in names), dependents=dependents)


def valid(bench):
    """Whether each resource of the state comes after what it depends on."""
    seen = set()
    for row in bench.stack().export_state()["deployment"]["resources"]:
        provider = row.get("provider", "").rsplit("::", 1)[0]
        assert {*row.get("dependencies", []), row.get("parent"), provider} - {None, ""} <= seen, row["urn"]
        seen.add(row["urn"])
    return True


CHANGED = ("a", {"props": {"value": "new"}}), ("b", {"refs": ["a"], "props": {"value": "new"}})
PLAIN = "a", ("b", {"refs": ["a"]})


def test_only_targets_are_updated_and_all_else_keeps_its_state(bench):
    bench.up(*PLAIN)
    before = bench.resources()["b"]
    assert bench.up(*CHANGED, scope=targets("a")).ok
    assert bench.alive() == {"a.0": "new", "b.0": ""}
    assert bench.resources()["b"] == before
    assert bench.ops() == {"a": "update"}
    assert valid(bench)
    assert bench.up(*CHANGED).counts["update"] == 1


def test_only_what_is_excluded_keeps_its_state(bench):
    bench.up(*PLAIN, "c")
    assert bench.up(*CHANGED, ("c", {"props": {"value": "new"}}), scope=excludes("a")).ok
    assert bench.alive() == {"a.0": "", "b.0": "new", "c.0": "new"}
    assert bench.up(*PLAIN, "c", scope=excludes("a", dependents=True)).ok
    assert bench.alive() == {"a.0": "", "b.0": "new", "c.0": ""}
    assert valid(bench)


def test_dependents_come_along_when_asked_for(bench):
    bench.up(*PLAIN, "c")
    nodes = (*CHANGED, ("c", {"props": {"value": "new"}}))
    assert bench.up(*nodes, scope=targets("a", dependents=True)).ok
    assert bench.alive() == {"a.0": "new", "b.0": "new", "c.0": ""}


@pytest.mark.parametrize("scope", [targets("b"), excludes("a")])
def test_what_needs_something_that_the_run_is_not_to_make_is_refused(bench, scope):
    with pytest.raises(EngineError, match=r"::b depends on .*::a, which is not there yet"):
        bench.up(*PLAIN, scope=scope)
    assert bench.alive() == {}
    assert bench.up(*PLAIN, scope=targets("a")).ok
    assert set(bench.alive()) == {"a.0"}, "what is neither a target nor needed is not made"
    assert bench.up(*PLAIN, scope=scope).ok
    assert set(bench.alive()) == {"a.0", "b.0"}
    assert valid(bench)


def test_only_targets_are_deleted_and_not_without_who_needs_them(bench):
    bench.up(*PLAIN, "c", "d")
    with pytest.raises(EngineError, match="::b would be deleted along"):
        bench.up("d", scope=targets("a"))
    assert set(bench.alive()) == {"a.0", "b.0", "c.0", "d.0"}
    assert bench.up("d", scope=targets("c")).ok
    assert set(bench.alive()) == {"a.0", "b.0", "d.0"}
    assert bench.up("d", scope=excludes("b")).ok, "what it needs stays as well"
    assert set(bench.alive()) == {"a.0", "b.0", "d.0"}
    assert bench.up("d", scope=targets("a", dependents=True)).ok
    assert set(bench.alive()) == {"d.0"}
    assert valid(bench)


def test_destroy_and_refresh_are_about_their_targets_alone(bench):
    bench.up(*PLAIN, "c")
    (bench.living / "b.0").write_text("other")
    (bench.living / "c.0").unlink()
    assert bench.run("refresh", scope=targets("b")).ok
    assert set(bench.resources()) == {"a", "b", "c"}
    assert bench.resources()["b"]["outputs"]["value"] == "other"
    assert bench.run("destroy", scope=targets("b")).ok
    assert set(bench.resources()) == {"a", "c"}
    assert valid(bench)
    with pytest.raises(EngineError, match="no resource"):
        bench.run("destroy", scope=targets("nobody"))
    assert bench.run("destroy", scope=excludes("a")).ok
    assert set(bench.resources()) == {"a"}


def test_the_state_stays_in_order_where_the_program_dropped_what_an_untouched_one_needs(bench):
    bench.up("base", ("a", {"refs": ["base"]}), "z")
    assert bench.up("a", ("z", {"props": {"value": "1"}}), scope=targets("z")).ok
    assert set(bench.alive()) == {"base.0", "a.0", "z.0"}
    assert valid(bench)
    assert bench.up("a", "z").ok
    assert set(bench.alive()) == {"a.0", "z.0"}


def test_what_is_to_be_replaced_is_replaced_although_nothing_differs(bench):
    first = {"options": {"delete_before_replace": True}}
    bench.up(("a", first), ("b", {"refs": ["a"]}))
    bench.did()
    assert bench.up(scope=Scope(replace=(URN + "a",))).ok
    assert bench.ops() == {"a": "replace"}
    assert bench.steps() == ["delete a.0", "create a.0"]
    assert set(bench.alive()) == {"a.0", "b.0"}
    assert bench.up().summary == "nothing to do"


def test_a_kept_note_of_what_the_run_was_not_about(bench):
    """An interrupted creation is seen to by the run that is about it, not forgotten by another."""
    bench.up("a", "b")
    bench.note(("updating", "b"))
    assert bench.up(scope=targets("a")).summary == "nothing to do"
    assert bench.up().counts["update"] == 1


def test_the_outputs_of_a_run_that_made_only_some_are_kept_as_far_as_they_are_not_known(bench):
    bench.up("a")
    assert bench.up("a", "b", scope=targets("a")).ok
    assert bench.stack().outputs() == {"stamps": {"a": "a.0="}}


@pytest.mark.parametrize(
    ("pattern", "hits"),
    [("**::a", True), ("**", True), ("*::a", False), (URN + "*", True), ("urn:*:dev::*::*::a", False), ("a", False)],
)
def test_stars_in_a_name_match_as_the_clis_do(pattern, hits):
    assert Scope(targets=(pattern,)).matches(URN + "a") is hits


def test_what_is_named_and_not_there_is_said(bench):
    bench.up("a")
    with pytest.raises(EngineError, match=r"no resource .*::nobody in this stack"):
        bench.up(scope=targets("nobody"))
    assert bench.up(scope=Scope(replace=(URN + "a", STACK))).ok
    with pytest.raises(EngineError, match="both"):
        Scope(targets=("a",), excludes=("b",))


def test_what_is_really_there_is_taken_in_first_if_that_is_asked_for(bench):
    bench.up("a", "b", ("c", {"props": {"engine_decides": True}}))
    (bench.living / "a.0").unlink()
    (bench.living / "b.0").write_text("other")
    result = bench.run("preview", refresh=True)
    assert (bench.ops()["a"], bench.ops()["b"]) == ("create", "update")
    assert result.counts.get("delete") is None
    bench.did()
    assert bench.up(refresh=True).ok
    assert sorted(bench.steps()) == ["create a.0", "update b.0"]
    assert bench.alive()["b.0"] == ""
