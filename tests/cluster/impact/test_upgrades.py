"""Slurm's release may only go where Slurm itself goes: its state and its database are taken over, or nothing starts."""

from collections.abc import Mapping
from itertools import pairwise

import pytest

from cluster.catalog.slurm_releases import UPGRADES, VERSIONS, takes_over, upgrade_path
from cluster.config import ClusterConfig
from cluster.impact.table import effects
from cluster.impact.upgrade import ROLES, Boot, current_boots, is_complete, next_step, refusal
from cluster.load import parse
from cluster.roster import machines
from tests.clouds import settings
from tests.cluster.stacks import config as config_of
from tests.cluster.stacks import local


def test_upgrades_of_known_releases_go_forwards_only():
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
def test_the_upgrade_path_is_the_shortest(old: str, new: str, found: tuple[str, ...]):
    assert upgrade_path(old, new) == found


def test_every_step_of_an_upgrade_path_is_one_that_slurm_supports():
    for old in UPGRADES:
        for new in UPGRADES:
            steps = upgrade_path(old, new)
            assert bool(steps) is (old <= new)
            assert all(takes_over(later, earlier) for earlier, later in pairwise(steps))


def on(base: str) -> ClusterConfig:
    return parse({"hpc:cluster": local(image={"base": base})})


def cloud(base: str, version: str | None = None) -> ClusterConfig:
    return parse(settings(image={"base": base}, slurm={"version": version} if version else {}))


EDITS = {
    "too far": (on("debian-12"), on("debian-13")),
    "back": (on("debian-13"), on("debian-12")),
    "another system and release": (cloud("ubuntu-2404"), cloud("ubuntu-2204", "25.11")),
    "the next release": (cloud("ubuntu-2204", "25.11"), cloud("ubuntu-2204", "26.05")),
    "the default, written out": (cloud("ubuntu-2204"), cloud("ubuntu-2204", "26.05")),
    "back on Google Cloud": (cloud("ubuntu-2204"), cloud("ubuntu-2204", "25.11")),
}


def test_impacts_of_another_release(reviewed):
    found = {case: effects(old, new, "dev") for case, (old, new) in EDITS.items()}
    rows = {
        case: [f"{change.path} {change.effect.value}: {change.reason}\n  {change.command}" for change in changes]
        for case, changes in found.items()
    }
    reviewed("impact/upgrades", {case: "\n".join(lines) for case, lines in rows.items()})


@pytest.mark.parametrize("login", [{"count": 2}, {"on": "controller"}])
@pytest.mark.parametrize("outputs", [{}, {"releases": {"controller": "26.05"}}, {"images": {"controller": "b"}}])
@pytest.mark.parametrize("new", [Boot("26.05", "b"), Boot("25.11", "b")])
def test_steps_move_every_machine_once_and_no_node_before_the_controller(
    login: dict[str, object], outputs: Mapping[str, Mapping[str, str]], new: Boot
) -> None:
    apart = {"machine": {}}  # of Prometheus: it moves with the login machines
    image = {"base": "ubuntu-2204"}
    after = parse(settings(image=image, slurm={"version": new.release}, login=login, monitoring=apart))
    found = current_boots(outputs, Boot("25.11", "a"))
    runs = {machine.name: found.get(min(machine.roles), found["login"]) for machine in machines(after)}
    for _ in ROLES:
        taken = next_step(found, new)
        assert bool(taken.text) is bool(taken.number)
        for name in runs.keys() - taken.held(after):
            runs[name] = new
        assert runs["cloud-controller"] == new
        assert taken.nodes <= min(boot.release for boot in runs.values()) or taken.number == 3
        assert taken.text.endswith("the next `up` goes on") is (bool(taken.number) and not is_complete(taken.after))
        found = current_boots(taken.outputs, Boot("", ""))
        assert found == taken.after
    assert {*runs.values()} == {new}
    assert is_complete(found)
    assert next_step(found, new).number == 0
    assert refusal(found, "25.11") == ""


def test_going_back_during_an_upgrade_takes_all_steps() -> None:
    """Nobody knows which nodes have been recreated by then."""
    old, new = Boot("26.05", "a"), Boot("26.05", "b")
    found = next_step(current_boots({}, old), new).after
    for number in (1, 2, 3, 0):
        taken = next_step(found, old)
        assert taken.number == number
        found = taken.after
    assert found == current_boots({}, old)


def test_a_platform_that_does_not_install_slurm_has_no_steps():
    taken = next_step({}, Boot("25.11", ""))
    assert (taken.text, taken.after, taken.held(config_of("nebius"))) == ("", {}, frozenset())
