"""A preview shows what `up` would do, does nothing, and shows values that are not known yet as unknown."""

import pytest

from engine import NotRunnableError, events

APPLIES = """
import pulumi
from pathlib import Path
from living import Living
a = Living('a', value={value!r})
def note(stamp):
    Path('noted').write_text(stamp)
    return stamp
Living('b', refs=[a.stamp.apply(note)])
pulumi.export('stamp', a.stamp)
"""


def test_a_preview_does_nothing_and_writes_no_state(bench):
    result = bench.preview("a", ("b", {"refs": ["a"]}))
    assert result.ok
    assert result.counts == {"create": 3}
    assert bench.take_log() == []
    assert bench.workspace().stacks() == []
    assert not (bench.root.parent / "project-backend").exists()


def test_applies_on_unknowns_do_not_run(bench):
    bench.program(APPLIES.format(value="1"))
    result = bench.preview()
    assert not (bench.root / "noted").exists()
    assert result.outputs == {"stamp": "[unknown]"}
    bench.up()
    assert (bench.root / "noted").read_text() == "a.0=1"
    (bench.root / "noted").unlink()
    # Nothing changes: all is known. A change: unknown again, and so for what depends on it.
    assert bench.preview().outputs == {"stamp": "a.0=1"}
    assert (bench.root / "noted").exists()
    (bench.root / "noted").unlink()
    bench.program(APPLIES.format(value="2"))
    result = bench.preview()
    assert not (bench.root / "noted").exists()
    assert bench.planned() == {"a": "update", "b": "update"}
    change = next(c for p in result.changes if p.name == "b" for c in p.changes)
    assert (change.path, change.old, change.new) == ("refs[0]", "a.0=1", "[unknown]")


def test_a_preview_shows_the_steps_of_the_next_up(bench):
    bench.up("a", ("b", {"refs": ["a"]}), "c", "d")
    nodes = [("a", {"props": {"generation": 1}}), ("b", {"refs": ["a"]}), ("c", {"props": {"value": "x"}}), "e"]
    bench.preview(*nodes)
    previewed = bench.planned()
    assert previewed == {"a": "replace", "b": "update", "c": "update", "d": "delete", "e": "create"}
    assert set(bench.objects()) == {"a.0", "b.0", "c.0", "d.0"}
    bench.up()
    assert bench.planned() == previewed
    assert bench.preview().changes == ()


FOREIGN = """
import pulumi
from living import Living
Living('mine')
net = pulumi.CustomResource('cloud:net:Network', 'net', {'size': 3, 'id_': None})
pulumi.CustomResource('cloud:net:Subnet', 'sub', {'network': net.id, 'size': 3})
answer = pulumi.runtime.invoke_output('cloud:net:getZones', {'region': 'x'})
pulumi.export('zones', answer)
"""


def test_unknown_providers_are_previewed_with_unknown_outputs(bench):
    bench.program(FOREIGN)
    result = bench.preview()
    assert result.ok
    assert result.foreign == ("cloud:net:Network", "cloud:net:Subnet", "cloud:net:getZones")
    assert result.counts == {"create": 4}
    assert result.outputs == {"zones": "[unknown]"}
    assert any("getZones" in log.message for log in bench.events_of(events.LogLine))


def test_up_with_unknown_providers_stops_before_the_first_step(bench):
    bench.program(FOREIGN)
    stack = bench.stack()
    assert stack.preview(lambda _event: None).ok
    with pytest.raises(NotRunnableError, match=r"pulumi up --stack dev") as caught:
        stack.up(lambda _event: None)
    assert "cloud:net:Network" in str(caught.value)
    assert bench.take_log() == []
    # Added to a stack that stands already, it is refused when it comes.
    bench.up("mine")
    bench.program(FOREIGN)
    with pytest.raises(NotRunnableError, match="cloud:net"):
        bench.up()


def test_the_program_gets_the_configuration_over_its_defaults(bench):
    (bench.root / "Pulumi.yaml").write_text(
        "name: bench\nruntime: python\nconfig:\n  size: {type: integer, default: 3}\n  kind: {default: small}\n"
    )
    (bench.root / "Pulumi.dev.yaml").write_text("config:\n  bench:kind: large\n  other:list: [1, {a: true}]\n")
    bench.program(
        "import pulumi\nc = pulumi.Config()\n"
        "pulumi.export('all', [c.require_int('size'), c.require('kind'), pulumi.Config('other').require_object('list'),"
        " pulumi.get_stack(), pulumi.get_project(), pulumi.get_organization(), pulumi.runtime.is_dry_run()])\n"
    )
    assert bench.preview().outputs["all"] == [3, "large", [1, {"a": True}], "dev", "bench", "organization", True]
