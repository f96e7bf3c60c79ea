"""The trial of a partition: a job runs on an idle node, or slurmctld is asked whether it would accept one."""

import pytest
from jobs import probe


@pytest.mark.parametrize(
    ("states", "trial"),
    [
        (["idle"], "run"),
        (["drained", "idle", "down*"], "run"),
        (["allocated", "mixed"], "ask"),
        (["drained", "completing"], "ask"),
        (["idle*", "drained"], "ask"),
        (["idle~", "idle"], "run"),
        (["idle~", "idle#", "allocated#"], "ask"),
        (["down~", "drained~"], ""),
        (["drained", "draining", "down", "drained*"], ""),
        ([], ""),
    ],
)
def test_a_job_runs_on_an_idle_node_or_is_checked(states: list[str], trial: str) -> None:
    assert probe._trial(states) == trial
