"""Runs on some resources only: as in the CLI, others are not changed, and no reference leads nowhere."""

import pytest

from engine import EngineError, Scope

URN = "urn:pulumi:dev::bench::pulumi-python:dynamic:Resource::"
STACK = "urn:pulumi:dev::bench::pulumi:pulumi:Stack::bench-dev"


def targets(*names, dependents=False):
    return Scope(targets=tuple(URN + name for name in names), dependents=dependents)


def excludes(*names, dependents=False):
    return Scope(excludes=tuple(URN + name for name in names), dependents=dependents)


def is_ordered(bench):
    """Check that each resource of the state comes after those that it depends on."""
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
    assert bench.objects() == {"a.0": "new", "b.0": ""}
    assert bench.resources()["b"] == before
    assert bench.planned() == {"a": "update"}
    assert is_ordered(bench)
    assert bench.up(*CHANGED).counts["update"] == 1


def test_only_excluded_resources_keep_their_state(bench):
    bench.up(*PLAIN, "c")
    assert bench.up(*CHANGED, ("c", {"props": {"value": "new"}}), scope=excludes("a")).ok
    assert bench.objects() == {"a.0": "", "b.0": "new", "c.0": "new"}
    assert bench.up(*PLAIN, "c", scope=excludes("a", dependents=True)).ok
    assert bench.objects() == {"a.0": "", "b.0": "new", "c.0": ""}
    assert is_ordered(bench)


def test_dependents_of_targets_are_targets_with_the_option(bench):
    bench.up(*PLAIN, "c")
    nodes = (*CHANGED, ("c", {"props": {"value": "new"}}))
    assert bench.up(*nodes, scope=targets("a", dependents=True)).ok
    assert bench.objects() == {"a.0": "new", "b.0": "new", "c.0": ""}


@pytest.mark.parametrize("scope", [targets("b"), excludes("a")])
def test_a_target_that_needs_a_missing_resource_out_of_scope_is_refused(bench, scope):
    with pytest.raises(EngineError, match=r"::b depends on .*::a, which is not there yet"):
        bench.up(*PLAIN, scope=scope)
    assert bench.objects() == {}
    assert bench.up(*PLAIN, scope=targets("a")).ok
    assert set(bench.objects()) == {"a.0"}, "what is neither a target nor needed is not made"
    assert bench.up(*PLAIN, scope=scope).ok
    assert set(bench.objects()) == {"a.0", "b.0"}
    assert is_ordered(bench)


def test_only_targets_are_deleted_and_only_with_their_dependents(bench):
    bench.up(*PLAIN, "c", "d")
    with pytest.raises(EngineError, match="::b would be deleted along"):
        bench.up("d", scope=targets("a"))
    assert set(bench.objects()) == {"a.0", "b.0", "c.0", "d.0"}
    assert bench.up("d", scope=targets("c")).ok
    assert set(bench.objects()) == {"a.0", "b.0", "d.0"}
    assert bench.up("d", scope=excludes("b")).ok, "what it needs stays as well"
    assert set(bench.objects()) == {"a.0", "b.0", "d.0"}
    assert bench.up("d", scope=targets("a", dependents=True)).ok
    assert set(bench.objects()) == {"d.0"}
    assert is_ordered(bench)


def test_destroy_and_refresh_only_handle_targets(bench):
    bench.up(*PLAIN, "c")
    (bench.living / "b.0").write_text("other")
    (bench.living / "c.0").unlink()
    assert bench.run("refresh", scope=targets("b")).ok
    assert set(bench.resources()) == {"a", "b", "c"}
    assert bench.resources()["b"]["outputs"]["value"] == "other"
    assert bench.run("destroy", scope=targets("b")).ok
    assert set(bench.resources()) == {"a", "c"}
    assert is_ordered(bench)
    with pytest.raises(EngineError, match="no resource"):
        bench.run("destroy", scope=targets("nobody"))
    assert bench.run("destroy", scope=excludes("a")).ok
    assert set(bench.resources()) == {"a"}


def test_the_state_stays_in_order_if_the_program_drops_a_dependency(bench):
    bench.up("base", ("a", {"refs": ["base"]}), "z")
    assert bench.up("a", ("z", {"props": {"value": "1"}}), scope=targets("z")).ok
    assert set(bench.objects()) == {"base.0", "a.0", "z.0"}
    assert is_ordered(bench)
    assert bench.up("a", "z").ok
    assert set(bench.objects()) == {"a.0", "z.0"}


def test_a_resource_is_replaced_on_request_without_a_difference(bench):
    first = {"options": {"delete_before_replace": True}}
    bench.up(("a", first), ("b", {"refs": ["a"]}))
    bench.take_log()
    assert bench.up(scope=Scope(replace=(URN + "a",))).ok
    assert bench.planned() == {"a": "replace"}
    assert bench.take_steps() == ["delete a.0", "create a.0"]
    assert set(bench.objects()) == {"a.0", "b.0"}
    assert bench.up().summary == "nothing to do"


def test_pending_operations_out_of_scope_are_kept(bench):
    """They are resumed by a run with the resource in scope."""
    bench.up("a", "b")
    bench.add_pending(("updating", "b"))
    assert bench.up(scope=targets("a")).summary == "nothing to do"
    assert bench.up().counts["update"] == 1


def test_unknown_outputs_of_a_limited_run_keep_their_old_values(bench):
    bench.up("a")
    assert bench.up("a", "b", scope=targets("a")).ok
    assert bench.stack().outputs() == {"stamps": {"a": "a.0="}}


@pytest.mark.parametrize(
    ("pattern", "hits"),
    [("**::a", True), ("**", True), ("*::a", False), (URN + "*", True), ("urn:*:dev::*::*::a", False), ("a", False)],
)
def test_stars_match_as_in_the_cli(pattern, hits):
    assert Scope(targets=(pattern,)).matches(URN + "a") is hits


def test_an_unknown_target_is_an_error(bench):
    bench.up("a")
    with pytest.raises(EngineError, match=r"no resource .*::nobody in this stack"):
        bench.up(scope=targets("nobody"))
    assert bench.up(scope=Scope(replace=(URN + "a", STACK))).ok
    with pytest.raises(EngineError, match="both"):
        Scope(targets=("a",), excludes=("b",))


def test_refresh_reads_resources_before_a_preview_and_an_up(bench):
    bench.up("a", "b", ("c", {"props": {"engine_decides": True}}))
    (bench.living / "a.0").unlink()
    (bench.living / "b.0").write_text("other")
    result = bench.run("preview", refresh=True)
    assert (bench.planned()["a"], bench.planned()["b"]) == ("create", "update")
    assert result.counts.get("delete") is None
    bench.take_log()
    assert bench.up(refresh=True).ok
    assert sorted(bench.take_steps()) == ["create a.0", "update b.0"]
    assert bench.objects()["b.0"] == ""
