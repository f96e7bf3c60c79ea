"""A stack goes to and fro between the Pulumi CLI and the embedded engine, and each does as the other would."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine import Scope
from tests.pulumi_cli.conftest import ENGINES, STACK, Both, Plan, kill

OTHER = {"cli": "embedded", "embedded": "cli"}


def same_plan(both: Both, *options: str, **scope: Any) -> Plan:
    """The plan that both engines have."""
    plans = {engine: both.plan(engine, *options, **scope) for engine in ENGINES}
    assert plans["cli"] == plans["embedded"]
    return plans["cli"]


def urn(both: Both, name: str) -> str:
    return next(row["urn"] for row in both.resources().values() if row["urn"].endswith(f"::{name}"))


@pytest.mark.parametrize("first", ENGINES)
def test_each_goes_on_where_the_other_stopped(both: Both, first: str) -> None:
    second = OTHER[first]
    assert len(same_plan(both)) == 6
    both.by(first, "up")
    both.nothing_to_do()
    both.want(words=3, names=["a", "b", "c"])
    plan = same_plan(both)
    assert sorted((name.rpartition("::")[2], op) for name, (op, _) in plan.items()) == [
        ("a", "update"), ("b", "update"), ("c", "create"), ("note", "replace"), ("pet", "replace"),
    ]  # fmt: skip
    both.by(second, "up")
    both.nothing_to_do()
    both.want(names=["a"])
    assert {op for op, _ in same_plan(both).values()} == {"delete"}
    both.by(first, "up")
    both.nothing_to_do()
    for engine in ENGINES:
        both.by(engine, "refresh")
        both.nothing_to_do()
    assert sorted(both.objects()) == ["a.0", "note"]
    both.by(second, "destroy")
    assert both.objects() == {}
    assert both.resources() == {}


def test_parts_of_a_stack_are_the_same_parts(both: Both) -> None:
    both.by("embedded", "up")
    both.want(words=3)
    pet, a = urn(both, "pet"), urn(both, "a")
    plan = same_plan(both, "--target", pet, scope=Scope(targets=(pet,)))
    assert [name.rpartition("::")[2] for name in plan] == ["pet"]
    both.want(words=2)
    plan = same_plan(both, "--replace", a, scope=Scope(replace=(a,)))
    assert [(name.rpartition("::")[2], op) for name, (op, _) in plan.items()] == [("a", "replace")]
    for engine, options in (("cli", ("--target", a, "--replace", a)), ("embedded", ())):
        both.take_log()
        both.by(engine, "up", *options, scope=Scope(targets=(a,), replace=(a,)))
        assert both.take_steps() == ["delete a.0", "create a.0"], engine
        both.nothing_to_do()


def test_edits_of_the_state_mean_the_same(both: Both) -> None:
    """`pulumi state` and `pulumi stack` of the CLI, each followed by what both engines see."""
    both.by("cli", "up")
    a, b = urn(both, "a"), urn(both, "b")
    both.pulumi("state", "taint", a, *STACK, "--yes")
    assert [(name, op) for name, (op, _) in same_plan(both).items()] == [(a, "replace")]
    both.take_log()
    both.by("embedded", "up")
    assert both.take_steps() == ["delete a.0", "create a.0"]
    both.nothing_to_do()
    both.pulumi("state", "rename", b, "renamed", *STACK, "--yes")
    both.want(names=["a", "renamed"])
    # Its object keeps its name, which its provider does not compare.
    both.nothing_to_do()
    both.pulumi("state", "delete", urn(both, "renamed"), *STACK, "--yes")
    assert [op for op, _ in same_plan(both).values()] == ["create"]
    both.by("embedded", "up")
    both.nothing_to_do()


def test_exports_of_each_are_imported_by_the_other(both: Both) -> None:
    both.by("cli", "up")
    exported = json.loads(both.pulumi("stack", "export", *STACK).stdout)
    own = both.stack().export_state()
    assert exported["deployment"]["resources"] == own["deployment"]["resources"]
    both.stack().import_state(exported)
    both.nothing_to_do()
    file = both.root.parent / "export.json"
    file.write_text(json.dumps(both.stack().export_state()))
    both.pulumi("stack", "import", *STACK, "--file", str(file))
    both.nothing_to_do()
    shown = json.loads(both.pulumi("stack", "output", "--json", "--show-secrets", *STACK).stdout)
    assert shown == both.stack().outputs(show_secrets=True)


def test_a_renamed_stack_is_the_same_stack(both: Both) -> None:
    both.by("embedded", "up")
    objects = both.objects()
    both.pulumi("stack", "rename", "other", *STACK)
    result = both.stack("other").preview(both.events.append)
    assert not result.changes, result
    both.pulumi("preview", "--stack", "other", "--expect-no-changes")
    assert both.objects() == objects


def test_protection_is_kept_by_both(both: Both) -> None:
    both.want(protected=["b"])
    both.by("embedded", "up")
    done = both.pulumi("destroy", *STACK, "--yes", "--json", check=False)
    assert done.returncode != 0, "with its preview it refuses first"
    assert sorted(both.objects()) == ["a.0", "b.0", "note"]
    result = both.run("destroy")
    assert not result.ok
    assert "b.0" in both.objects()


@pytest.fixture
def start(both: Both) -> Iterator[Callable[[str], Any]]:
    """start(ENGINE) begins an `up` in a process of its own, which ends with the test at the latest."""
    begun: list[Any] = []

    def begin(engine: str) -> Any:
        if engine == "embedded":
            begun.append(both.spawn("up"))
            return begun[-1]
        assert both.cli is not None
        command = [str(both.cli.path), "up", *STACK, "--yes", "--skip-preview", "--non-interactive"]
        output = (both.root.parent / "killed.log").open("a")
        process = subprocess.Popen(
            command, cwd=both.root, env={**both.env, **both.cli.env}, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, text=True,
        )  # fmt: skip
        begun.append(process)
        return process

    yield begin
    for process in begun:
        process.kill()


@pytest.mark.parametrize("first", ENGINES)
def test_what_a_kill_of_one_leaves_the_other_finishes(both: Both, first: str, start: Callable[[str], Any]) -> None:
    """While a resource is created, half of it is there: the first of its kind, and one after it."""
    names: list[str] = []
    for name in "ab":
        names.append(name)
        both.want(names=names)
        both.flag(f"hold-{name}")
        process = start(first)
        both.wait_until_held()
        if first == "cli":
            kill(process)
        else:
            process.kill()
            process.join()
        both.flag(f"hold-{name}", on=False)
        both.pulumi("cancel", "--yes", *STACK, check=False)  # as the CLI says, which takes no lock over
        both.by(OTHER[first], "up")
        assert sorted(both.objects()) == [*(f"{name}.0" for name in names), "note"]
    both.nothing_to_do()
    both.by(first, "destroy")
    assert both.objects() == {}


@pytest.mark.parametrize("by", ["up", "unlock"])
def test_attributes_that_a_kill_left_empty_stop_nobody(both: Both, by: str) -> None:
    """The CLI's file store creates the attributes of a state, and then writes them, each time that it writes a state:
    setAttrs in blob/fileblob/attrs.go of gocloud.dev v0.46.1."""
    both.by("cli", "up")
    attributes = both.stack().file.with_name(f"{both.stack().file.name}.attrs")
    assert json.loads(attributes.read_text())["md5"]
    attributes.write_text("")
    refused = both.pulumi("preview", *STACK, check=False)
    assert "failed to load checkpoint: EOF" in refused.stdout + refused.stderr
    if by == "up":
        both.by("embedded", "up")
    else:
        both.stack().unlock()
    both.nothing_to_do()


def test_a_creation_that_the_cli_finished_is_not_repeated(both: Both, start: Callable[[str], Any]) -> None:
    """The CLI keeps the pending creation in the state, also when it has deleted the resource."""
    both.want(names=["a"])
    both.flag("hold-a")
    process = start("cli")
    both.wait_until_held()
    kill(process)
    both.flag("hold-a", on=False)
    both.pulumi("cancel", "--yes", *STACK, check=False)
    both.by("cli", "up")
    both.by("cli", "destroy")
    pending = json.loads(both.stack().file.read_text())["checkpoint"]["latest"]["pending_operations"]
    assert [operation["type"] for operation in pending] == ["creating"]
    both.take_log()
    both.by("embedded", "destroy")
    both.want(names=[])
    both.by("embedded", "up")
    assert both.take_steps() == []
