"""Slurm's release may only go where Slurm itself goes: its state and its database are taken over, or nothing starts."""

from collections.abc import Mapping
from itertools import pairwise

import pytest

from cluster.catalog.slurm_releases import UPGRADES, VERSIONS, takes_over, upgrade_path
from cluster.config import ClusterConfig
from cluster.config.impact import Effect
from cluster.impact.table import effects
from cluster.impact.upgrade import ROLES, Boot, boots, is_complete, refusal, step
from cluster.load import parse
from cluster.roster import machines
from tests.clouds import settings
from tests.cluster.stacks import config as config_of
from tests.cluster.stacks import local


def test_every_release_of_the_tables_is_known_and_goes_forwards_only():
    assert set(VERSIONS) <= set(UPGRADES)
    releases = list(UPGRADES)
    assert releases == sorted(releases)
    assert all(releases.index(old) < releases.index(new) for new, olds in UPGRADES.items() for old in olds)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("22.05", "22.05", ("22.05",)),
        ("22.05", "23.11", ("22.05", "23.11")),
        ("22.05", "24.11", ("22.05", "23.11", "24.11")),
        ("22.05", "25.05", ("22.05", "23.11", "25.05")),
        ("22.05", "26.05", ("22.05", "23.11", "25.05", "26.05")),
        ("24.11", "22.05", ()),
    ],
)
def test_the_way_is_the_shortest(old: str, new: str, found: tuple[str, ...]):
    assert upgrade_path(old, new) == found


def test_every_step_of_every_way_is_one_that_slurm_takes():
    for old in UPGRADES:
        for new in UPGRADES:
            steps = upgrade_path(old, new)
            assert bool(steps) is (old <= new)
            assert all(takes_over(later, earlier) for earlier, later in pairwise(steps))


def on(base: str) -> ClusterConfig:
    return parse({"hpc:cluster": local(image={"base": base})})


def test_a_release_too_far_is_refused_with_what_is_between():
    (one,) = effects(on("debian-12"), on("debian-13"), "dev")
    assert (one.path, one.effect) == ("image.base", Effect.REFUSED)
    assert one.reason == (
        "Slurm 24.11 takes over from 24.05, 23.11, 23.02 only: the way from 22.05 is 22.05 -> 23.11 -> 24.11, and no "
        "image of platform local has 23.11: put Slurm 22.05 back, or give up job records and the queue"
    )
    assert one.command == "./hpc destroy dev && ./hpc up dev"


def test_the_way_back_is_refused():
    (one,) = effects(on("debian-13"), on("debian-12"), "dev")
    assert one.effect is Effect.REFUSED
    assert one.reason.startswith(
        "Slurm can't go back: 22.05 does not read the database and the state of 24.11: put Slurm"
    )


def cloud(base: str, version: str | None = None) -> ClusterConfig:
    return parse(settings(image={"base": base}, slurm={"version": version} if version else {}))


def test_what_slurm_takes_is_not_refused():
    for old, new in (
        (cloud("ubuntu-2404"), cloud("ubuntu-2204", "25.05")),
        (cloud("ubuntu-2204", "24.11"), cloud("ubuntu-2204", "25.05")),
    ):
        assert {one.effect for one in effects(old, new, "lab")} == {Effect.REPLACE}
    (one,) = effects(cloud("ubuntu-2204", "24.11"), cloud("ubuntu-2204", "25.05"), "lab")
    assert one.reason.startswith(
        "Slurm goes from 24.11 to 25.05, which Slurm allows, in three steps: the controller is"
    )
    (same,) = effects(cloud("ubuntu-2204"), cloud("ubuntu-2204", "26.05"), "lab")
    assert same.effect is Effect.NOTHING
    back = effects(cloud("ubuntu-2204"), cloud("ubuntu-2204", "24.11"), "lab")
    assert [(one.path, one.effect) for one in back] == [("slurm.version", Effect.REFUSED)]


@pytest.mark.parametrize("login", [{"count": 2}, {"on": "controller"}])
@pytest.mark.parametrize("outputs", [{}, {"releases": {"controller": "25.05"}}, {"images": {"controller": "b"}}])
@pytest.mark.parametrize("new", [Boot("25.05", "b"), Boot("24.11", "b")])
def test_steps_move_every_machine_once_and_no_node_before_the_controller(
    login: dict[str, object], outputs: Mapping[str, Mapping[str, str]], new: Boot
) -> None:
    apart = {"machine": {}}  # of Prometheus: it moves with the login machines
    image = {"base": "ubuntu-2204"}
    after = parse(settings(image=image, slurm={"version": new.release}, login=login, monitoring=apart))
    found = boots(outputs, Boot("24.11", "a"))
    runs = {machine.name: found.get(min(machine.roles), found["login"]) for machine in machines(after)}
    for _ in ROLES:
        one = step(found, new)
        assert bool(one.text) is bool(one.number)
        for name in runs.keys() - one.held(after):
            runs[name] = new
        assert runs["cloud-controller"] == new
        assert one.nodes <= min(boot.release for boot in runs.values()) or one.number == 3
        assert one.text.endswith("the next `up` goes on") is (bool(one.number) and not is_complete(one.after))
        found = boots(one.outputs, Boot("", ""))
        assert found == one.after
    assert {*runs.values()} == {new}
    assert is_complete(found)
    assert step(found, new).number == 0
    assert refusal(found, "25.11") == ""


def test_the_way_back_from_a_step_that_has_not_ended_goes_through_all_steps() -> None:
    """Nobody knows which nodes have been recreated by then."""
    old, new = Boot("26.05", "a"), Boot("26.05", "b")
    found = step(boots({}, old), new).after
    for number in (1, 2, 3, 0):
        one = step(found, old)
        assert one.number == number
        found = one.after
    assert found == boots({}, old)


def test_a_platform_that_does_not_install_slurm_has_no_steps():
    one = step({}, Boot("25.11", ""))
    assert (one.text, one.after, one.held(config_of("nebius"))) == ("", {}, frozenset())
