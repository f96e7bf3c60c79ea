"""Drained nodes: who must act, from the reasons that Soperator really gives."""

import pytest

from cluster.platforms.nebius.health import OPERATOR_SECONDS, REASONS, Actor, action

DISK = (
    "[user_problem] boot_disk_full: 85% of node boot disk is used. Clean up volumes from 'ssh worker-0 "
    "/opt/soperator_utils/fs_usage.sh -l' [hc_program]"
)


@pytest.mark.parametrize(
    ("reason", "actor"),
    [
        (DISK, Actor.USER),
        (f'"{DISK}"', Actor.USER),
        (
            "[user_problem] alloc_gpus_busy: Allocated GPUs are used by processes not managed by Slurm [prolog]",
            Actor.USER,
        ),
        ("[node_problem] gpu_health_check: ibperf: failed [hc_program]", Actor.OPERATOR),
        ("[hardware_problem] extensive-check: job 7 failed", Actor.OPERATOR),
        ("[compute_maintenance] node replacement process", Actor.OPERATOR),
        ("[compute_maintenance] node reboot process", Actor.OPERATOR),
        ("Kill task failed", Actor.OPERATOR),
        ("replacing a cable", Actor.ADMIN),
        ("", Actor.ADMIN),
    ],
)
def test_the_beginning_says_who_acts(reason: str, actor: Actor) -> None:
    found = action(reason, 60, replacement=True)
    assert found.actor is actor
    assert found.known is (actor is not Actor.ADMIN)


@pytest.mark.parametrize(
    "reason", ["[node_problem] x: y", "[hardware_problem] x", "[compute_maintenance] node reboot process"]
)
def test_an_operator_that_does_not_act_is_for_nebius_support(reason: str) -> None:
    assert action(reason, OPERATOR_SECONDS - 1, replacement=True).actor is Actor.OPERATOR
    late = action(reason, OPERATOR_SECONDS + 1, replacement=True)
    assert late.actor is Actor.SUPPORT
    assert "should have acted by now" in late.todo
    assert action(reason, None, replacement=True).actor is Actor.OPERATOR


def test_an_operator_that_may_not_replace_nodes_does_not_act_on_them() -> None:
    assert action("[node_problem] x: y", 60, replacement=False).actor is Actor.SUPPORT
    assert action("[hardware_problem] x", 60, replacement=False).actor is Actor.SUPPORT
    # These need no other host.
    assert action("Kill task failed", 60, replacement=False).actor is Actor.OPERATOR


def test_no_beginning_hides_a_longer_one() -> None:
    beginnings = list(REASONS)
    hidden = [
        (first, later)
        for index, first in enumerate(beginnings)
        for later in beginnings[index + 1 :]
        if later.startswith(first)
    ]
    assert hidden == []
