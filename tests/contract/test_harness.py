"""The harness catches what plain mocks let through; every other test of components stands on that."""

import pulumi
import pytest
from pulumi_command import local
from pulumi_random import RandomPassword

from tests.harness import deploy


def chain():
    secret = RandomPassword("secret", length=8)
    first = local.Command("first", create="true", stdin=secret.result, opts=pulumi.ResourceOptions(protect=True))
    second = local.Command("second", create="true", opts=pulumi.ResourceOptions(depends_on=[first]))
    local.Command("third", create=second.stdout)
    pulumi.export("shown", 22)
    pulumi.export("hidden", secret.result)


def test_it_sees_options_dependencies_secrets_and_outputs():
    seen = deploy(chain)
    first, third = seen.one("first"), seen.one("third")
    assert first.request.protect
    assert not seen.one("second").request.protect
    assert seen.waits_for(third, first)
    assert not seen.waits_for(first, third)
    assert first.secret("stdin")
    assert not first.secret("create")
    assert seen.outputs == {"shown": 22, "hidden": "Password123"}


def test_an_assertion_inside_an_apply_is_not_lost():
    def program():
        RandomPassword("secret", length=8).result.apply(lambda value: pytest.fail(f"seen {value}"))

    with pytest.raises(pytest.fail.Exception, match="seen Password123"):
        deploy(program)


def test_an_apply_on_an_unknown_does_not_run():
    def program():
        RandomPassword("secret", length=8).result.apply(lambda _: pytest.fail("ran"))

    deploy(program, unknown=True)


def test_a_name_that_occurs_twice_is_refused():
    def program():
        local.Command("same", create="true")
        local.Command("same", create="true")

    with pytest.raises(Exception, match="Duplicate resource URN"):
        deploy(program)
