"""A failed step stops only the steps that depend on it. The state is kept, and the next run continues from it."""

import pytest

from engine import EngineError, ProgramError, UpdateError, events


def test_dependents_of_a_failure_are_skipped_others_finish_and_up_resumes(bench):
    nodes = ["a", ("b", {"refs": ["a"]}), ("c", {"refs": ["b"]}), "x", ("y", {"refs": ["x"]})]
    bench.flag("fail-b")
    result = bench.up(*nodes)
    assert not result.ok
    assert set(bench.objects()) == {"a.0", "x.0", "y.0"}
    assert {e.urn.split("::")[-1]: e.op for e in bench.events_of(events.StepFailed)} == {"b": "create", "c": "skip"}
    assert [f.message for f in result.failures] == ["b was told to fail"]
    with pytest.raises(UpdateError, match="1 failed") as caught:
        result.check()
    assert caught.value.result is result
    bench.flag("fail-b", on=False)
    bench.take_log()
    assert bench.up().ok
    assert bench.take_steps() == ["create b.0", "create c.0"]


def test_nothing_is_deleted_after_a_failure(bench):
    """A resource may be unregistered only because something failed before it."""
    bench.up("a", "old")
    bench.flag("fail-b")
    bench.up("a", "b")
    assert "old.0" in bench.objects()
    bench.flag("fail-b", on=False)
    bench.up("a", "b")
    assert set(bench.objects()) == {"a.0", "b.0"}


def test_a_failed_update_keeps_the_old_state_and_outputs(bench):
    bench.up("a", ("b", {"refs": ["a"]}))
    bench.flag("fail-a")
    result = bench.up(("a", {"props": {"value": "new"}}), ("b", {"refs": ["a"]}))
    assert not result.ok
    assert bench.resources()["a"]["inputs"]["value"] == ""
    assert bench.stack().outputs()["stamps"] == {"a": "a.0=", "b": "b.0="}
    bench.flag("fail-a", on=False)
    assert bench.up().ok
    assert bench.objects()["a.0"] == "new"


def test_a_failed_deletion_keeps_what_it_needs_and_is_repeated(bench):
    bench.up("a", ("b", {"refs": ["a"]}), "c")
    bench.flag("fail-b")
    result = bench.run("destroy")
    assert not result.ok
    assert set(bench.objects()) == {"a.0", "b.0"}
    bench.flag("fail-b", on=False)
    assert bench.run("destroy").ok
    assert bench.objects() == {}


@pytest.mark.parametrize("first", [True, False])
def test_a_replacement_that_fails_half_way_is_finished_by_the_next_run(bench, first):
    """The old resource is deleted and the new one not created, or the new one created and the old one not deleted."""
    options = {"options": {"delete_before_replace": first}}
    bench.up(("a", options))
    bench.program(
        f"import pulumi\nfrom living import Living\nfrom pathlib import Path\nimport living\n"
        f"Living('a', pulumi.ResourceOptions(delete_before_replace={first}), generation=1)\n"
    )
    real = (bench.root / "living.py").read_text()
    where = 'self._step("create", props)' if first else 'self._step("delete", props)'
    (bench.root / "living.py").write_text(real.replace(where, where + "; raise RuntimeError('broken')"))
    result = bench.up()
    assert not result.ok
    assert set(bench.objects()) == (set() if first else {"a.0", "a.1"})
    (bench.root / "living.py").write_text(real)
    assert bench.up().ok
    assert set(bench.objects()) == {"a.1"}
    assert bench.run("destroy").ok
    assert bench.objects() == {}


def test_a_program_that_raises_changes_nothing(bench):
    bench.up("a", "b")
    bench.program("from living import Living\nLiving('a')\nraise ValueError('typo')\n")
    with pytest.raises(ProgramError, match="ValueError: typo") as caught:
        bench.up()
    assert "__main__.py:3" in str(caught.value)
    assert set(bench.objects()) == {"a.0", "b.0"}
    assert set(bench.resources()) == {"a", "b"}
    assert bench.events_of(events.Finished)[0].result.ok is False
    assert set(bench.stack().outputs()) == {"stamps"}


def test_a_run_error_is_shown_as_its_text_only(bench):
    bench.program("import pulumi\nraise pulumi.RunError('three things are wrong')\n")
    with pytest.raises(ProgramError) as caught:
        bench.preview()
    assert str(caught.value) == "three things are wrong"


def test_errors_in_apply_and_in_check_are_reported(bench):
    bench.program("from living import Living\nLiving('a').stamp.apply(lambda s: 1 / 0)\n")
    with pytest.raises(ProgramError, match="ZeroDivisionError"):
        bench.up()
    bench.program(
        "from pulumi.dynamic import *\n"
        "class Picky(ResourceProvider):\n"
        "    def check(self, olds, news):\n"
        "        return CheckResult(news, [CheckFailure('size', 'must be even')])\n"
        "class Thing(Resource):\n    pass\n"
        "Thing(Picky(), 'a', {'size': 3})\n"
    )
    result = bench.preview()
    assert [f.message for f in result.failures] == ["size: must be even"]


@pytest.mark.parametrize("kind", ["preview", "up"])
def test_a_cycle_is_an_error_and_does_not_hang(bench, kind):
    bench.program(
        "import pulumi\nfrom living import Living\n"
        "group = pulumi.ComponentResource('test:index:Group', 'group')\n"
        "after = Living('after', pulumi.ResourceOptions(depends_on=[group]))\n"
        "Living('within', pulumi.ResourceOptions(parent=group, depends_on=[after]))\n"
    )
    with pytest.raises(EngineError, match="circular dependency"):
        bench.run(kind)


def test_a_missing_program_or_project_is_named(bench, tmp_path):
    with pytest.raises(EngineError, match=r"__main__\.py"):
        bench.preview()
    (bench.root / "Pulumi.yaml").write_text("runtime: python\n")
    with pytest.raises(EngineError, match=r"Pulumi\.yaml: name: missing"):
        bench.preview()
