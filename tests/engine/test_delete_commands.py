"""A command with `delete` only: nothing runs at its creation. `delete` runs before what it depends on is deleted, and
not at all where the machine that it would run on is deleted too."""

import pytest

PROGRAM = """\
import pulumi
from living import Living
from pulumi_command import local

host = Living("host", pulumi.ResourceOptions(delete_before_replace=True), generation={host})
for name in {guests}:
    guest = Living(name, pulumi.ResourceOptions(delete_before_replace=True), generation={generation})
    local.Command(
        f"{{name}}-farewell", delete=f"echo farewell {{name}} >> {log}", triggers=[guest.stamp],
        opts=pulumi.ResourceOptions(deleted_with=host),
    )
"""


@pytest.fixture
def say(bench):
    """Brings up a host and guests that say farewell into the log of steps."""

    def up(*guests, generation=0, host=0):
        log = bench.root.parent / "log"
        bench.program(PROGRAM.format(guests=guests, generation=generation, host=host, log=log))
        assert bench.run("up").ok
        return [line for line in bench.take_log() if line.split()[0] in ("create", "update", "delete", "farewell")]

    return up


def test_nothing_runs_to_make_or_change_it(say):
    assert sorted(say("a")) == ["create a.0", "create host.0"]
    assert say("a") == []


def test_it_comes_before_its_guest_is_replaced(say):
    say("a", "b")
    steps = say("a", "b", generation=1)
    for name in ("a", "b"):
        own = [step for step in steps if step.split()[1].split(".")[0] == name]
        assert own == [f"farewell {name}", f"delete {name}.0", f"create {name}.1"]


def test_it_comes_before_its_guest_is_removed(say):
    say("a", "b")
    assert say("a") == ["farewell b", "delete b.0"]


def test_nobody_says_farewell_when_the_host_goes_too(say, bench):
    say("a", "b")
    assert bench.run("destroy").ok
    assert sorted(bench.take_log()) == [f"delete{d} {name}.0" for d in ("", "d") for name in ("a", "b", "host")]


def test_nobody_says_farewell_to_a_host_that_is_replaced(say):
    say("a")
    assert sorted(say("a", host=1)) == ["create host.1", "delete host.0"]
