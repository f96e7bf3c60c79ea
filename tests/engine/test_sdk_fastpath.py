"""Runs take short cuts through the SDK. They must do what they would do without them, and fail where they would."""

from contextlib import nullcontext

import pytest

from engine import EngineError
from engine.core import program

GRAPH = [
    "a",
    ("b", {"refs": ["a"], "props": {"value": "x"}}),
    ("c", {"refs": ["a", "b"], "props": {"generation": 1}}),
    ("d", {"refs": ["c"]}),
]
CYCLE = """
import pulumi
from living import Living
class Group(pulumi.ComponentResource):
    def __init__(self):
        super().__init__('test:index:Group', 'group')
group = Group()
after = Living('after', pulumi.ResourceOptions(depends_on=[group]))
Living('within', pulumi.ResourceOptions(parent=group, depends_on=[after]))
"""
FAILS = """
import pulumi
from living import Living
made = Living('a', refs=[pulumi.Output.from_input(1).apply(lambda _: 1 / 0)])
pulumi.export('stamp', made.stamp)
"""


def without_fastpath(monkeypatch):
    monkeypatch.setattr(program, "sdk_fastpath", lambda **_: nullcontext())


def shown(bench):
    result = bench.preview()
    return result.ok, result.outputs, [(c.name, c.op, c.changes) for c in result.changes], bench.ops()


def test_the_same_is_shown(bench, monkeypatch):
    bench.up(*GRAPH[:3])
    bench.graph(("a", {"props": {"value": "new"}}), *GRAPH[1:])
    fast = shown(bench)
    without_fastpath(monkeypatch)
    assert shown(bench) == fast
    assert fast[3]["d"] == "create"


def kept(bench):
    """What a state says, without what differs by time and by chance."""
    rows = bench.stack().export_state()["deployment"]["resources"]
    chance = ("created", "modified")
    rows = [{k: v for k, v in row.items() if k not in chance} for row in rows if ":providers:" not in row["type"]]
    for row in rows:
        row.pop("provider", None)
        for side in ("inputs", "outputs"):
            row.get(side, {}).pop("__provider", None)
    return sorted(rows, key=lambda row: row["urn"])


def test_the_same_is_done_and_kept(bench, monkeypatch):
    """Where in the program each resource stands included."""
    result = bench.up(*GRAPH)
    fast = result.ok, result.outputs, kept(bench)
    assert bench.run("destroy").ok
    without_fastpath(monkeypatch)
    result = bench.up()
    assert (result.ok, result.outputs, kept(bench)) == fast
    positions = {row["urn"].split("::")[-1]: row.get("sourcePosition") for row in fast[2]}
    assert str(positions["a"]).startswith("project:///living.py#")


@pytest.mark.parametrize("kind", ["preview", "up"])
@pytest.mark.parametrize("fast", [True, False], ids=["fastpath", "sdk"])
def test_a_cycle_is_an_error_and_does_not_hang(bench, monkeypatch, fast, kind):
    if not fast:
        without_fastpath(monkeypatch)
    bench.program(CYCLE)
    with pytest.raises(EngineError, match="circular dependency"):
        bench.run(kind)


@pytest.mark.parametrize("kind", ["preview", "up"])
@pytest.mark.parametrize("fast", [True, False], ids=["fastpath", "sdk"])
def test_a_value_that_fails_fails_the_program(bench, monkeypatch, fast, kind):
    if not fast:
        without_fastpath(monkeypatch)
    bench.program(FAILS)
    with pytest.raises(EngineError, match="division by zero"):
        bench.run(kind)
