"""Random edits of random programs: after `up` the state equals the program, after `destroy` it is empty."""

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

NAMES = [f"r{i}" for i in range(6)]


@st.composite
def graphs(draw):
    """Return the resources of a program, each with references to earlier ones. At another depth a resource has another
    URN and is another resource, so its object has another name."""
    nodes, depths = [], {}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=len(NAMES))):
        before = [n for n, _ in nodes]
        some = st.lists(st.sampled_from(before), unique=True, max_size=2) if before else st.just([])
        props = {"value": draw(st.sampled_from("xyz")), "generation": draw(st.integers(0, 2))}
        options = {"delete_before_replace": draw(st.booleans()), "depends_on": draw(some)}
        if before and draw(st.booleans()):
            options["parent"] = draw(st.sampled_from(before))
        if before and draw(st.integers(0, 3)) == 0:
            options["deleted_with"] = draw(st.sampled_from(before))
        if draw(st.booleans()):
            props["engine_decides"] = True
            options |= {"replace_on_changes": ["refs"], "delete_before_replace": True}
        depths[name] = depths[options["parent"]] + 1 if "parent" in options else 0
        props["name"] = name + "-" * depths[name]
        nodes.append((name, {"props": props, "options": options, "refs": draw(some)}))
    return nodes


# A failing example is not shrunk, because that would take minutes.
@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(edits=st.lists(st.tuples(graphs(), st.sampled_from([None, *NAMES])), min_size=1, max_size=3))
def test_after_up_the_state_equals_the_program_and_after_destroy_it_is_empty(bench, edits):
    """Some of the edits fail at one resource, and the next run completes them."""
    with tempfile.TemporaryDirectory(dir=bench.root.parent) as folder:
        inner = type(bench)(Path(folder) / "project")
        os.environ["LIVING"] = str(inner.living)
        for nodes, failing in edits:
            apply_edit(inner, nodes, failing)
            check_state(inner, nodes)
            assert inner.up().changes == ()
        assert inner.run("destroy").ok
        assert inner.objects() == {}
        assert inner.resources() == {}


def apply_edit(inner, nodes, failing):
    inner.graph(*nodes)
    flags = [f"fail-{failing}{'-' * depth}" for depth in range(len(NAMES))] if failing else []
    for flag in flags:
        inner.flag(flag)
    if failing:
        inner.up()
    for flag in flags:
        inner.flag(flag, on=False)
    assert inner.preview().ok
    previewed = inner.planned()
    result = inner.up()
    assert result.ok, result.failures
    assert inner.planned() == previewed


def check_state(inner, nodes):
    names = {}
    for name, node in nodes:
        host = node["options"].get("deleted_with")
        names[name] = f"{node['props']['name']}.{node['props']['generation']}" + (f"@{names[host]}" if host else "")
    assert inner.objects() == {names[n]: o["props"]["value"] for n, o in nodes}
    stamps = {n: f"{names[n]}={o['props']['value']}" for n, o in nodes}
    assert inner.stack().outputs() == {"stamps": stamps}
    rows = inner.stack().export_state()["deployment"]["resources"]
    assert not [r for r in rows if r.get("delete") or r.get("pendingReplacement")]
    assert "pending_operations" not in inner.stack().export_state()["deployment"]
    seen = set()
    for row in rows:
        wanted = {row.get("parent"), row.get("deletedWith"), *row.get("dependencies", [])} - {None}
        assert wanted <= seen, "a resource stands before one that it depends on"
        seen.add(row["urn"])
    by_name = inner.resources()
    assert {n: r["inputs"]["refs"] for n, r in by_name.items()} == {n: [stamps[r] for r in o["refs"]] for n, o in nodes}
