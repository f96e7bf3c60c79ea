"""What the stack file says of Slurm, as Soperator takes it."""

import pytest

from cluster.platforms.nebius.slurm import accounts
from cluster.slurm.accounting import desired
from tests.cluster.nebius.clusters import CPU, H100, config, described, given, made


def conf(version="4.1.7", **changes):
    """`slurmConfig`, and the lines of `customSlurmConfig`."""
    values = made(described(version, **changes))["slurm-cluster"].values
    return values.get("slurmConfig", {}), values.get("customSlurmConfig", "").splitlines()


def partitions(version="4.1.7", **changes):
    return made(described(version, **changes))["slurm-cluster"].values["partitionConfiguration"]


BASE = "AccountingStorageEnforce=associations,limits,qos,safe"


class TestSettings:
    def test_what_nobody_asked_for_is_soperators_own(self):
        assert conf() == ({"defMemPerNode": 1516 * 1024}, [BASE])

    def test_a_parameter_with_a_key_of_the_chart_is_written_there(self):
        settings, lines = conf(slurm={"timers": {"min_job_age": 600, "message": 45}, "extra": {"CompleteWait": 30}})
        assert settings == {"defMemPerNode": 1516 * 1024, "minJobAge": 600, "messageTimeout": 45, "completeWait": 30}
        assert lines == [BASE]

    def test_others_are_added_to_slurm_conf_in_the_manuals_spelling(self):
        _, lines = conf(slurm={"timers": {"kill_wait": 31}, "extra": {"maxarraysize": 10001}})
        assert lines == [BASE, "KillWait=31", "MaxArraySize=10001"]

    @pytest.mark.parametrize(
        "slurm", [{"mpi_default": "pmix"}, {"return_to_service": 2}, {"consumable": "core"}, {"scrontab": True}]
    )
    def test_what_soperator_writes_anyway_is_not_added(self, slurm):
        assert conf(slurm=slurm)[1] == [BASE]

    def test_other_values_of_these_are(self):
        assert conf(slurm={"consumable": "cpu"})[1] == [
            BASE,
            "SelectTypeParameters=CR_CPU_Memory,CR_CORE_DEFAULT_DIST_BLOCK",
        ]
        assert conf(slurm={"return_to_service": 1})[1] == [BASE, "ReturnToService=1"]

    def test_enforcement_is_the_stack_files(self):
        assert conf(accounting={"enforce": ["associations"]})[1] == ["AccountingStorageEnforce=associations"]
        assert conf(accounting={"enforce": []})[1] == []

    def test_jobs_without_a_wish_get_the_smallest_nodes_memory(self):
        nodesets = {"a": {"machine_type": H100, "count": 1}, "b": {"machine_type": CPU, "count": 1}}
        part = {"main": {"nodesets": ["a", "b"], "default": True}}
        settings, _ = conf(nodesets=nodesets, partitions=part, nebius={"workers": {}})
        assert settings["defMemPerNode"] == 56 * 1024


class TestPreemption:
    """Soperator preempts and requeues by priority tier; on all other platforms a tier only says who comes first."""

    TIERS = {  # noqa: RUF012 - a description
        "main": {"nodesets": ["worker"], "default": True, "priority_tier": 10},
        "low": {"nodesets": ["worker"]},
    }

    def test_tiers_preempt_nobody(self):
        assert conf(partitions=self.TIERS)[1] == [BASE, "PreemptType=preempt/none", "PreemptMode=OFF"]

    def test_a_qos_that_preempts_does(self):
        qos = [{"name": "low"}, {"name": "high", "preempt": ["low"]}]
        lines = conf(accounting={"qos": qos}, partitions=self.TIERS)[1]
        assert lines == [BASE, "PreemptType=preempt/qos", "PreemptMode=REQUEUE"]

    def test_checks_are_in_the_lowest_tier(self):
        """In a higher one they would requeue users' jobs, should tiers preempt."""
        found = {one["name"]: one["config"] for one in partitions(partitions=self.TIERS)["partitions"]}
        assert " PriorityTier=1 " in found["hidden"]
        assert "PreemptMode=OFF" in found["hidden"]


class TestPartitions:
    def test_partitions_name_nodesets(self):
        found = partitions()
        assert found["configType"] == "structured"
        assert found["partitions"][0] == {
            "name": "main",
            "nodeSetRefs": ["worker"],
            "config": "Default=YES State=UP MaxTime=INFINITE DefMemPerCPU=12128 DefCPUPerGPU=16",
        }

    def test_every_setting_of_a_partition_is_in_its_line(self):
        part = {
            "nodesets": ["worker"], "default": True, "exclusive": True, "max_time": "01:00:00", "max_nodes": 2,
            "allow_accounts": ["ml"], "conf": {"GraceTime": 30},
        }  # fmt: skip
        (main, _) = partitions(partitions={"main": part}, accounting={"accounts": [{"name": "ml"}]})["partitions"]
        for setting in (
            "OverSubscribe=EXCLUSIVE",
            "MaxTime=01:00:00",
            "MaxNodes=2",
            "AllowAccounts=ml",
            "GraceTime=30",
        ):
            assert setting in main["config"].split()


def test_without_gpus_none_are_accounted_or_checked():
    every = made(given())
    accounting = every["slurm-cluster"].values["slurmNodes"]["accounting"]["slurmConfig"]
    assert "gpu" not in accounting["accountingStorageTRES"].lower()
    assert "soperator-dcgm-exporter" not in every
    checks = every["soperator-activechecks"].values["checks"]
    assert checks["gpu-fryer"] == {"runAfterCreation": False, "suspend": True}


def test_checks_have_an_account_where_associations_are_enforced():
    wanted = accounts(config(described(users=[{"name": "alice", "uid": 2001}])))
    assert [one["name"] for one in wanted["users"]] == ["alice", "soperatorchecks"]
    (checks,) = [one for one in wanted["accounts"] if one["name"] == "soperatorchecks"]
    assert checks["parent"] == "root"


def test_without_enforcement_there_is_none():
    cluster = config(described(accounting={"enforce": []}))
    assert accounts(cluster) == desired(cluster)
