"""Resources are created, updated, replaced and deleted as the program declares, in the order of their dependencies."""

import pytest

from engine import EngineError, events
from tests.waiting import wait_for


def before(steps, first, second):
    return steps.index(first) < steps.index(second)


def test_up_creates_resources_after_their_dependencies(bench):
    result = bench.up("a", ("b", {"refs": ["a"]}), ("c", {"refs": ["b"]}))
    assert result.ok
    assert result.counts == {"create": 4}
    assert set(bench.objects()) == {"a.0", "b.0", "c.0"}
    assert bench.take_steps() == ["create a.0", "create b.0", "create c.0"]
    assert result.outputs["stamps"]["a"] == "a.0="


def test_a_second_up_does_nothing_and_does_not_touch_the_state_file(bench):
    bench.up("a", ("b", {"refs": ["a"]}), "c")
    file = bench.stack().file
    before_ = file.read_bytes()
    # Resources that are registered side by side come in any order.
    result = bench.up("c", "a", ("b", {"refs": ["a"]}))
    assert result.counts == {"same": 4}
    assert result.changes == ()
    assert result.summary == "nothing to do"
    assert file.read_bytes() == before_


def test_a_changed_property_updates_in_place_and_reaches_dependents(bench):
    bench.up("a", ("b", {"refs": ["a"]}), "c")
    bench.take_log()
    result = bench.up(("a", {"props": {"value": "new"}}), ("b", {"refs": ["a"]}), "c")
    assert bench.take_steps() == ["update a.0", "update b.0"]
    assert bench.objects()["a.0"] == "new"
    change = next(c for p in result.changes if p.name == "a" for c in p.changes)
    assert (change.path, change.old, change.new, change.replaces) == ("value", "", "new", False)


def test_a_replacement_is_created_before_the_old_one_is_deleted(bench):
    bench.up("a", ("b", {"refs": ["a"]}))
    bench.take_log()
    result = bench.up(("a", {"props": {"generation": 1}}), ("b", {"refs": ["a"]}))
    assert bench.take_steps() == ["create a.1", "update b.0", "delete a.0"]
    assert result.counts["replace"] == 1
    assert [c.path for p in result.changes if p.op == "replace" for c in p.changes if c.replaces] == ["generation"]


@pytest.mark.parametrize("who", ["options", "props"])
def test_delete_before_replace_deletes_first(bench, who):
    """By the program's option, or by the provider."""
    wish = {"delete_before_replace": True} if who == "options" else {"provider_deletes_first": True}
    bench.up(("a", {who: wish}), "z")
    bench.take_log()
    props = {"generation": 1, **(wish if who == "props" else {})}
    bench.up(("a", {"props": props, "options": wish if who == "options" else {}}), "z")
    assert bench.take_steps() == ["delete a.0", "create a.1"]


def test_deleting_first_also_replaces_only_the_dependents_that_must_be(bench):
    """`b` uses `a` in a property that forces its replacement, `c` in another one, and `d` is deleted with `a`."""
    follower = {"refs": ["a"], "props": {"engine_decides": True}, "options": {"replace_on_changes": ["refs"]}}
    user = {"refs": ["a"]}
    with_ = {"options": {"deleted_with": "a"}}

    def graph(generation):
        options = {"delete_before_replace": True}
        return [
            ("a", {"props": {"generation": generation}, "options": options}),
            ("b", follower),
            ("c", user),
            ("d", with_),
        ]

    bench.up(*graph(0))
    bench.take_log()
    result = bench.up(*graph(1))
    steps = bench.take_steps()
    assert result.ok
    assert before(steps, "delete b.0", "delete a.0")
    assert before(steps, "delete a.0", "create a.1")
    assert before(steps, "create a.1", "create b.0")
    assert before(steps, "create a.1", "create d.0@a.1")
    assert "update c.0" in steps
    assert "delete c.0" not in steps
    assert bench.planned() == {"a": "replace", "b": "replace", "c": "update", "d": "replace"}
    assert set(bench.objects()) == {"a.1", "b.0", "c.0", "d.0@a.1"}


def test_dropped_resources_are_deleted_dependents_first(bench):
    bench.up(
        "a", ("b", {"refs": ["a"]}), ("c", {"options": {"depends_on": ["b"]}}), ("d", {"options": {"parent": "c"}})
    )
    bench.take_log()
    bench.up("z")
    steps = bench.take_steps()
    assert steps == ["create z.0", "delete d.0", "delete c.0", "delete b.0", "delete a.0"]
    assert set(bench.objects()) == {"z.0"}


def test_destroy_needs_no_program_and_leaves_nothing(bench):
    bench.up("a", ("b", {"refs": ["a"]}), "c")
    bench.take_log()
    bench.program("raise SystemExit('must not be run')")
    result = bench.run("destroy")
    assert result.ok
    assert before(bench.take_steps(), "delete b.0", "delete a.0")
    assert bench.objects() == {}
    assert "resources" not in bench.stack().export_state()["deployment"]
    assert bench.run("destroy").summary == "nothing to do"


def most_at_once(log):
    """Return how many of the logged steps ran at the same time."""
    running = [0]
    for line in log:
        running.append(running[-1] + (1 if line.split()[0] in {"create", "delete"} else -1))
    return max(running)


def test_independent_steps_run_in_parallel_up_to_the_limit(bench):
    names = [f"n{i}" for i in range(10)]
    bench.graph(*((name, {"props": {"delay": 0.1}}) for name in names))
    for name in names:
        bench.flag(f"hold-{name}")
    process = bench.spawn("up")
    wait_for(lambda: [*bench.objects().values()] == ["held"] * 10, "ten creations at once")
    for name in names:
        bench.flag(f"hold-{name}", on=False)
    process.join()
    bench.take_log()
    assert bench.run("destroy").ok
    assert most_at_once(bench.take_log()) > 1
    assert bench.up(parallel=1).ok
    assert most_at_once(bench.take_log()) == 1


def test_a_resource_is_updated_when_its_provider_finds_it_missing(bench):
    """`diff` is called in each run, also if no input changed."""
    bench.up("a", "b")
    bench.take_log()
    (bench.living / "a.0").unlink()
    bench.up()
    assert bench.take_steps() == ["update a.0"]
    assert set(bench.objects()) == {"a.0", "b.0"}


def test_two_resources_of_one_name_are_refused(bench):
    bench.program("from living import Living\nLiving('twin')\nLiving('twin')\n")
    with pytest.raises(EngineError, match=r"Duplicate resource URN '.*::twin'.*another name"):
        bench.up()


def test_refresh_reads_existing_resources_and_removes_missing_ones(bench):
    bench.up("a", ("b", {"refs": ["a"]}), "c")
    (bench.living / "a.0").unlink()
    (bench.living / "c.0").write_text("drifted")
    result = bench.run("refresh")
    assert result.ok
    assert bench.planned() == {"a": "delete", "c": "refresh"}
    state = bench.resources()
    assert set(state) == {"b", "c"}
    assert state["c"]["outputs"]["value"] == "drifted"
    assert "dependencies" not in state["b"]
    bench.take_log()
    bench.up()
    assert sorted(bench.take_steps()) == ["create a.0", "update c.0"]


def test_components_and_log_lines_are_recorded(bench):
    bench.program(
        "import pulumi\nfrom living import Living\n"
        "class Group(pulumi.ComponentResource):\n"
        "    def __init__(self, name):\n"
        "        super().__init__('bench:index:Group', name)\n"
        "        self.inner = Living('inner', pulumi.ResourceOptions(parent=self))\n"
        "        self.register_outputs({'inner': self.inner.id})\n"
        "group = Group('g')\n"
        "Living('after', pulumi.ResourceOptions(depends_on=[group]))\n"
        "pulumi.log.warn('mind the gap', group.inner)\n"
    )
    bench.up()
    state = bench.resources()
    assert state["inner"]["urn"] == "urn:pulumi:dev::bench::bench:index:Group$pulumi-python:dynamic:Resource::inner"
    assert state["g"]["outputs"] == {"inner": "inner.0"}
    assert state["after"]["dependencies"] == [state["inner"]["urn"]]
    assert bench.take_steps() == ["create inner.0", "create after.0"]
    log = next(e for e in bench.events_of(events.LogLine) if e.severity == "warning")
    assert (log.message, log.urn) == ("mind the gap", state["inner"]["urn"])
