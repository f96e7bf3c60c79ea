"""A change of Slurm's files takes effect by the mildest means, and never by one too mild."""

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


def test_every_change_of_job_submit_lua_needs_a_restart():
    old = {**OLD, "job_submit.lua": "a()\nb()\n#x\n"}
    for text in ("b()\na()\n#x\n", "a()\nb()\n"):
        assert conf_changes.need(old, {**old, "job_submit.lua": text}) is Need.RESTART


def test_a_changed_topology_needs_a_reconfigure_and_a_new_one_a_restart():
    old = {**OLD, "topology.conf": "SwitchName=a Nodes=n-0\n"}
    assert conf_changes.need(old, {**OLD, "topology.conf": "SwitchName=b Nodes=n-0\n"}) is Need.RECONFIGURE
    assert conf_changes.need(OLD, old) is Need.RESTART


class TestNeed:
    """What slurmctld has to do."""

    @pytest.mark.parametrize(
        ("new", "need"),
        [
            (OLD, Need.NOTHING),
            (with_change("slurm.conf", "# a comment\n", "\n# another\n"), Need.NOTHING),
            (with_change("slurm.conf", "MaxTime=INFINITE", "MaxTime=60"), Need.RECONFIGURE),
            (with_change("slurm.conf", "KillWait=30", "killwait=60"), Need.RECONFIGURE),
            (with_change("slurm.conf", "PartitionName=cpu", "PartitionName=all"), Need.RECONFIGURE),
            (MORE_NODES, Need.RESTART),
            (with_change("slurm.conf", "TaskPlugin=task/cgroup", "TaskPlugin=task/none"), Need.RESTART),
            (with_change("slurm.conf", "ClusterName", "SomethingUnheardOf"), Need.RESTART),
            (with_change("gres.conf", "nvidia0", "nvidia1"), Need.RESTART),
            ({k: v for k, v in OLD.items() if k != "gres.conf"}, Need.RESTART),
            ({**OLD, "job_submit.lua": "return 0\n"}, Need.RESTART),
        ],
    )
    def test_the_least_disruptive_action_is_chosen(self, new, need):
        assert conf_changes.need(OLD, new) is need

    def test_a_first_run_needs_a_start(self):
        assert conf_changes.need({}, OLD) is Need.RESTART


class TestSlurmdEpoch:
    """Whether the nodes' slurmd has to start anew."""

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
