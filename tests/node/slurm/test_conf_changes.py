"""A change of Slurm's files leads to the least disruptive action that makes it take effect."""

import pytest
from slurm import conf_changes
from slurm.conf_changes import Need

OLD = {
    "slurm.conf": (
        "# a comment\nClusterName=dev\nTaskPlugin=task/cgroup\nKillWait=30\n"
        "NodeName=dev-cpu-[0-1] NodeAddr=10.77.2.[0-1] CPUs=2\nPartitionName=cpu Nodes=dev-cpu-[0-1] MaxTime=INFINITE\n"
    ),
    "gres.conf": "NodeName=dev-gpu-0 Name=gpu File=/dev/nvidia0\n",
    "cgroup.conf": "ConstrainDevices=yes\n",
}


def with_change(name: str, old: str, new: str) -> dict[str, str]:
    assert old in OLD[name]
    return {**OLD, name: OLD[name].replace(old, new)}


MORE_NODES = with_change("slurm.conf", "[0-1]", "[0-2]")


LUA = {**OLD, "job_submit.lua": "a()\nb()\n#x\n"}
TOPOLOGY = {**OLD, "topology.conf": "SwitchName=a Nodes=n-0\n"}


@pytest.mark.parametrize(
    ("old", "new", "need"),
    [
        ({}, OLD, Need.RESTART),
        (OLD, OLD, Need.NOTHING),
        (OLD, with_change("slurm.conf", "# a comment\n", "\n# another\n"), Need.NOTHING),
        (OLD, with_change("slurm.conf", "MaxTime=INFINITE", "MaxTime=60"), Need.RECONFIGURE),
        (OLD, with_change("slurm.conf", "KillWait=30", "killwait=60"), Need.RECONFIGURE),
        (OLD, with_change("slurm.conf", "PartitionName=cpu", "PartitionName=all"), Need.RECONFIGURE),
        (OLD, MORE_NODES, Need.RESTART),
        (OLD, with_change("slurm.conf", "TaskPlugin=task/cgroup", "TaskPlugin=task/none"), Need.RESTART),
        (OLD, with_change("slurm.conf", "ClusterName", "SomethingUnheardOf"), Need.RESTART),
        (OLD, with_change("gres.conf", "nvidia0", "nvidia1"), Need.RESTART),
        (OLD, {k: v for k, v in OLD.items() if k != "gres.conf"}, Need.RESTART),
        (OLD, LUA, Need.RESTART),
        # Comments and the order of lines count, other than in slurm.conf.
        (LUA, {**LUA, "job_submit.lua": "b()\na()\n#x\n"}, Need.RESTART),
        (LUA, {**LUA, "job_submit.lua": "a()\nb()\n"}, Need.RESTART),
        (OLD, TOPOLOGY, Need.RESTART),
        (TOPOLOGY, {**TOPOLOGY, "topology.conf": "SwitchName=b Nodes=n-0\n"}, Need.RECONFIGURE),
    ],
)
def test_the_least_disruptive_action_is_chosen(old, new, need):
    assert conf_changes.need(old, new) is need


class TestSlurmdEpoch:
    """The hash of settings after whose change slurmd has to restart."""

    @pytest.mark.parametrize(
        "new",
        [
            with_change("slurm.conf", "TaskPlugin=task/cgroup", "TaskPlugin=task/none"),
            with_change("slurm.conf", "CPUs=2", "CPUs=4"),
            with_change("gres.conf", "nvidia0", "nvidia[0-1]"),
            with_change("cgroup.conf", "ConstrainDevices=yes", "ConstrainDevices=no"),
        ],
    )
    def test_it_differs_if_slurmd_must_restart(self, new):
        assert conf_changes.slurmd_epoch(new) != conf_changes.slurmd_epoch(OLD)

    @pytest.mark.parametrize(
        "new",
        [
            MORE_NODES,
            with_change("gres.conf", "dev-gpu-0", "dev-gpu-[0-7]"),
            with_change("slurm.conf", "KillWait=30", "KillWait=60"),
            with_change("slurm.conf", "MaxTime=INFINITE", "MaxTime=60"),
            {**OLD, "job_submit.lua": "return 0\n"},
        ],
    )
    def test_it_stays_for_other_changes(self, new):
        assert conf_changes.slurmd_epoch(new) == conf_changes.slurmd_epoch(OLD)
