"""Resource options have the same effect as in the CLI."""

import pytest

from engine import EngineError, events


def test_a_protected_resource_is_neither_deleted_nor_replaced(bench):
    protected = {"options": {"protect": True}}
    bench.up(("a", protected), "b")
    result = bench.up(("a", {"props": {"generation": 1}, **protected}), "b")
    assert not result.ok
    assert "protected" in result.failures[0].message
    assert not bench.up("b").ok
    result = bench.run("destroy")
    assert [f.urn.split("::")[-1] for f in result.failures] == ["a"]
    assert "a.0" in bench.objects()
    # Unprotected, it goes.
    assert bench.up("a", "b").ok
    assert bench.up("b").ok
    assert set(bench.objects()) <= {"b.0"}


def test_protection_may_be_removed_together_with_a_replacement(bench):
    bench.up(("a", {"options": {"protect": True}}))
    assert bench.up(("a", {"props": {"generation": 1}})).ok
    assert set(bench.objects()) == {"a.1"}


def test_dependents_of_a_protected_resource_are_deleted_and_its_dependencies_are_not(bench):
    bench.up("base", ("a", {"refs": ["base"], "options": {"protect": True}}), ("user", {"refs": ["a"]}))
    bench.up("other")
    assert set(bench.objects()) == {"base.0", "a.0", "other.0"}


def test_retained_resources_are_removed_from_the_state_and_not_deleted(bench):
    bench.up(("a", {"options": {"retain_on_delete": True}}), "b")
    bench.take_log()
    bench.up("b")
    assert bench.take_steps() == []
    assert set(bench.objects()) == {"a.0", "b.0"}
    assert set(bench.resources()) == {"b"}


def test_a_resource_deleted_with_another_has_no_step_of_its_own(bench):
    bench.up("host", ("guest", {"options": {"deleted_with": "host"}}), ("other", {"refs": ["host"]}))
    bench.take_log()
    bench.run("destroy")
    assert sorted(bench.take_steps()) == ["delete host.0", "delete other.0"]


def test_a_resource_deleted_with_another_is_deleted_if_the_other_stays(bench):
    bench.up("host", ("guest", {"options": {"deleted_with": "host"}}))
    bench.take_log()
    bench.up("host")
    assert bench.take_steps() == ["delete guest.0@host.0"]


@pytest.mark.parametrize("path", ["value", "nested.inner", 'nested["inner"]', "items[0]", "items[*]"])
def test_ignored_changes_are_ignored(bench, path):
    def graph(word, other):
        props = {"value": word, "nested": {"inner": word}, "items": [word], "engine_decides": True, "generation": 0}
        kept = {"value": "x", "nested": {"inner": "x"}, "items": ["x"]}
        key = path.split(".")[0].split("[")[0]
        return (
            "a",
            {"props": {**props, **kept, key: props[key], "other": other}, "options": {"ignore_changes": [path]}},
        )

    bench.up(graph("x", 1))
    bench.take_log()
    bench.up(graph("changed", 1))
    assert bench.planned() == {}
    bench.up(graph("changed", 2))
    assert bench.planned() == {}  # the provider of this test looks at value, refs and generation only
    row = bench.resources()["a"]["inputs"]
    assert (row["value"], row["nested"], row["items"], row["other"]) == ("x", {"inner": "x"}, ["x"], 2)


def test_replace_on_changes_makes_an_update_a_replacement(bench):
    options = {"replace_on_changes": ["value"]}
    props = {"engine_decides": True}
    bench.up(("a", {"props": {**props, "value": "1"}, "options": options}))
    bench.take_log()
    bench.up(("a", {"props": {**props, "value": "2"}, "options": options}))
    assert bench.planned() == {"a": "replace"}


def test_an_alias_keeps_a_renamed_resource_and_its_dependents(bench):
    """The object is kept under the new name, dependents refer to the new URN, and no step runs."""
    bench.program(
        "import pulumi\nfrom living import Living\n"
        "parent = Living('old')\n"
        "Living('old-child', pulumi.ResourceOptions(parent=parent), refs=[parent.stamp])\n"
    )
    bench.up()
    before = {name: row["id"] for name, row in bench.resources().items()}
    bench.take_log()
    bench.program(
        "import pulumi\nfrom living import Living\n"
        "opts = pulumi.ResourceOptions(aliases=[pulumi.Alias(name='old')], ignore_changes=['name'])\n"
        "parent = Living('new', opts)\n"
        "Living('new-child', pulumi.ResourceOptions(parent=parent, ignore_changes=['name']), refs=[parent.stamp])\n"
    )
    result = bench.up()
    assert result.ok
    after = bench.resources()
    assert {"new": before["old"], "new-child": before["old-child"]} == {n: r["id"] for n, r in after.items()}
    assert after["new-child"]["dependencies"] == [after["new"]["urn"]]
    assert after["new-child"]["parent"] == after["new"]["urn"]
    assert bench.take_steps() == []


def test_aliases_may_be_whole_urns_and_other_parents(bench):
    bench.program("from living import Living\nLiving('a')\n")
    bench.up()
    bench.take_log()
    bench.program(
        "import pulumi\nfrom living import Living\n"
        "group = pulumi.ComponentResource('bench:index:Group', 'g')\n"
        "Living('a', pulumi.ResourceOptions(parent=group, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)]))\n"
    )
    bench.up()
    assert bench.take_steps() == []
    moved = bench.resources()["a"]["urn"]
    assert moved == "urn:pulumi:dev::bench::bench:index:Group$pulumi-python:dynamic:Resource::a"
    bench.program(
        f"import pulumi\nfrom living import Living\nLiving('a', pulumi.ResourceOptions(aliases=['{moved}']))\n"
    )
    bench.up()
    assert bench.take_steps() == []
    assert bench.planned() == {}


def test_a_component_keeps_its_children_under_a_new_parent(bench):
    made = (
        "import pulumi\nfrom living import Living\n"
        "{platform}"
        "group = pulumi.ComponentResource('bench:index:Group', 'g', opts={opts})\n"
        "part = pulumi.ComponentResource('bench:index:Part', 'g', opts=pulumi.ResourceOptions(parent=group))\n"
        "Living('a', pulumi.ResourceOptions(parent=part))\n"
    )
    bench.program(made.format(platform="", opts="None"))
    bench.up()
    before = bench.resources()["a"]["id"]
    bench.take_log()
    opts = "pulumi.ResourceOptions(parent=platform, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)])"
    bench.program(made.format(platform="platform = pulumi.ComponentResource('bench:index:Platform', 'g')\n", opts=opts))
    bench.up()
    assert bench.take_steps() == []
    assert bench.resources()["a"]["id"] == before
    assert "Platform$bench:index:Group$bench:index:Part$" in bench.resources()["a"]["urn"]


def test_additional_secret_outputs_and_secret_inputs_stay_secret(bench):
    bench.program(
        "import pulumi\nfrom living import Living\n"
        "opts = pulumi.ResourceOptions(additional_secret_outputs=['stamp'])\n"
        "a = Living('a', opts, value=pulumi.Output.secret('v'))\n"
        "b = Living('b', value=a.stamp)\n"
    )
    result = bench.up()
    row = bench.resources()
    assert "ciphertext" in row["a"]["outputs"]["stamp"]
    assert "ciphertext" in row["a"]["inputs"]["value"]
    assert "ciphertext" in row["b"]["inputs"]["value"]
    assert result.ok


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("import_='x'", "does not support the option import"),
        ("hooks=pulumi.ResourceHookBinding(after_create=[print])", "hooks"),
    ],
)
def test_unsupported_options_are_errors(bench, options, says):
    bench.program(f"import pulumi\nfrom living import Living\nLiving('a', pulumi.ResourceOptions({options}))\n")
    with pytest.raises(EngineError, match=says) as caught:
        bench.up()
    assert "Pulumi CLI" in str(caught.value)
    assert bench.objects() == {}


def test_replace_with_and_replacement_trigger(bench):
    def program(generation, trigger):
        bench.program(
            "import pulumi\nfrom living import Living\n"
            f"a = Living('a', generation={generation})\n"
            "Living('b', pulumi.ResourceOptions(replace_with=[a], delete_before_replace=True))\n"
            f"Living('c', pulumi.ResourceOptions(replacement_trigger={trigger!r}, delete_before_replace=True))\n"
        )

    program(0, "x")
    bench.up()
    program(1, "x")
    bench.up()
    assert bench.planned() == {"a": "replace", "b": "replace"}
    program(1, "y")
    bench.up()
    assert bench.planned() == {"c": "replace"}
    assert set(bench.objects()) == {"a.1", "b.0", "c.0"}
    assert next(p for p in bench.events_of(events.Planned) if p.op == "replace").reason
