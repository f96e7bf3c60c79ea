"""What the stack file says of Slurm, as Soperator takes it."""

from typing import Any

from cluster.platforms.nebius.slurm import accounts
from cluster.slurm.accounting import desired
from tests.cluster.nebius.clusters import CPU, H100, config, described, given, releases_of


def conf(version="4.1.7", **changes):
    """`slurmConfig`, and the lines of `customSlurmConfig`."""
    values = releases_of(described(version, **changes))["slurm-cluster"].values
    return values.get("slurmConfig", {}), values.get("customSlurmConfig", "").splitlines()


def partitions(version="4.1.7", **changes):
    return releases_of(described(version, **changes))["slurm-cluster"].values["partitionConfiguration"]


TIERS = {"main": {"nodesets": ["worker"], "default": True, "priority_tier": 10}, "low": {"nodesets": ["worker"]}}
MIXED: dict[str, Any] = {
    "nodesets": {"a": {"machine_type": H100, "count": 1}, "b": {"machine_type": CPU, "count": 1}},
    "partitions": {"main": {"nodesets": ["a", "b"], "default": True}},
    "nebius": {"workers": {}},
}
FULL = {
    "nodesets": ["worker"], "default": True, "exclusive": True, "max_time": "01:00:00", "max_nodes": 2,
    "allow_accounts": ["ml"], "conf": {"GraceTime": 30},
}  # fmt: skip
PREEMPTING = [{"name": "low"}, {"name": "high", "preempt": ["low"]}]
CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "parameters with keys of the chart": {
        "slurm": {"timers": {"min_job_age": 600, "message": 45}, "extra": {"CompleteWait": 30}}
    },
    "others, in the manual's spelling": {"slurm": {"timers": {"kill_wait": 31}, "extra": {"maxarraysize": 10001}}},
    **{
        f"what Soperator writes anyway: {next(iter(item))}": {"slurm": item}
        for item in ({"mpi_default": "pmix"}, {"return_to_service": 2}, {"consumable": "core"}, {"scrontab": True})
    },
    "another value of consumable": {"slurm": {"consumable": "cpu"}},
    "another value of return_to_service": {"slurm": {"return_to_service": 1}},
    "enforcement of associations": {"accounting": {"enforce": ["associations"]}},
    "hours that are counted by periods": {"accounting": {"period": "monthly"}},
    "no enforcement": {"accounting": {"enforce": []}},
    "the memory of the smallest node": MIXED,
    # Soperator preempts and requeues by priority tier; on all other platforms a tier only says who comes first.
    "tiers preempt nobody, and checks are in the lowest": {"partitions": TIERS},
    "a QOS that preempts does": {"accounting": {"qos": PREEMPTING}, "partitions": TIERS},
    "every setting of a partition": {"partitions": {"main": FULL}, "accounting": {"accounts": [{"name": "ml"}]}},
}


def test_slurm_conf_has_what_the_stack_file_says(reviewed):
    shown = {}
    for case, changes in CASES.items():
        settings, lines = conf(**changes)
        found = partitions(**changes)
        rows = [
            f"{partition['name']} of {partition.get('nodeSetRefs', 'all')}: {partition['config']}"
            for partition in found["partitions"]
        ]
        shown[case] = "\n".join([*(f"{key}: {settings[key]}" for key in sorted(settings)), *lines, *rows])
    reviewed("nebius/slurm-conf", shown)


def test_without_gpus_none_are_accounted_or_checked():
    every = releases_of(given())
    accounting = every["slurm-cluster"].values["slurmNodes"]["accounting"]["slurmConfig"]
    assert "gpu" not in accounting["accountingStorageTRES"].lower()
    assert "soperator-dcgm-exporter" not in every
    checks = every["soperator-activechecks"].values["checks"]
    assert checks["gpu-fryer"] == {"runAfterCreation": False, "suspend": True}


def test_checks_have_an_account_where_associations_are_enforced():
    wanted = accounts(config(described(users=[{"name": "alice", "uid": 2001}])))
    assert [user["name"] for user in wanted["users"]] == ["alice", "soperatorchecks"]
    (checks,) = [account for account in wanted["accounts"] if account["name"] == "soperatorchecks"]
    assert checks["parent"] == "root"


def test_without_enforcement_there_is_none():
    cluster = config(described(accounting={"enforce": []}))
    assert accounts(cluster) == desired(cluster)
