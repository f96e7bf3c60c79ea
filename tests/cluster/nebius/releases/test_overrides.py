"""Values that the stack file gives to charts."""

import pytest

from cluster.findings import ConfigError
from cluster.platforms.nebius.releases import merged
from tests.cluster.nebius.releases.clusters import CASES, config, described, made


def refused(values):
    with pytest.raises(ConfigError) as raised:
        config(described(nebius={"values": values}))
    return {one.where.removeprefix("hpc:cluster.nebius.values."): one for one in raised.value.findings}


class TestMerged:
    @pytest.mark.parametrize(
        ("values", "over", "wanted"),
        [
            ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
            ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
            ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
            ({"a": {"b": 1}}, {"a": None}, {"a": None}),
            (
                {"a": [{"name": "x", "b": 1}, {"name": "y"}]},
                {"a": [{"name": "x", "c": 2}, {"name": "z"}]},
                {"a": [{"name": "x", "b": 1, "c": 2}, {"name": "y"}, {"name": "z"}]},
            ),
        ],
    )
    def test_mappings_and_named_members_are_merged_and_the_rest_is_replaced(self, values, over, wanted):
        assert merged(values, over) == wanted


class TestTaken:
    def test_a_value_is_laid_over_what_follows_from_the_rest(self):
        given = {"slurm-cluster": {"slurmConfig": {"completeWait": 10}}, "kruise": {"manager": {"replicas": 3}}}
        before, after = made(CASES["h100"]), made(described(nebius={"values": given}))
        conf = before["slurm-cluster"].values["slurmConfig"]
        assert after["slurm-cluster"].values["slurmConfig"] == {**conf, "completeWait": 10}
        assert after["kruise"].values["manager"]["replicas"] == 3

    def test_a_nodeset_keeps_what_is_not_given(self):
        memory = {"name": "worker", "slurmd": {"volumes": {"sharedMemorySize": "512Gi"}}}
        (before,) = made(described())["nodesets"].values["nodesets"]
        (after,) = made(described(nebius={"values": {"nodesets": {"nodesets": [memory]}}}))["nodesets"].values[
            "nodesets"
        ]
        assert after["slurmd"]["volumes"] == {**before["slurmd"]["volumes"], "sharedMemorySize": "512Gi"}
        assert after["nodeConfig"] == before["nodeConfig"]


class TestRefused:
    def test_a_release_that_the_cluster_does_not_have_is_refused(self):
        found = refused({"slurm-clusters": {"a": 1}})
        assert found["slurm-clusters"].todo.startswith("write slurm-cluster if that was meant")

    @pytest.mark.parametrize(
        ("values", "where", "field"),
        [
            ({"slurm-cluster": {"clusterName": "x"}}, "slurm-cluster.clusterName", "name"),
            (
                {"slurm-cluster": {"slurmNodes": {"login": {"size": 3}}}},
                "slurm-cluster.slurmNodes.login.size",
                "login.count",
            ),
            (
                {"nodesets": {"nodesets": [{"name": "worker", "replicas": 9}]}},
                "nodesets.nodesets.replicas",
                "nodesets.NAME.count",
            ),
        ],
    )
    def test_what_a_field_sets_is_refused_with_the_field(self, values, where, field):
        assert field in refused(values)[where].todo

    def test_a_nodeset_that_there_is_not_is_refused(self):
        found = refused({"nodesets": {"nodesets": [{"name": "wroker"}]}})
        assert found["nodesets.nodesets[0]"].todo == "write name: worker"

    @pytest.mark.parametrize(
        ("values", "where", "why"),
        [
            # Known problem: an existing jail is overwritten.
            (
                {"slurm-cluster": {"populateJail": {"overwrite": True}}},
                "slurm-cluster.populateJail.overwrite",
                "deletes everything in the jail",
            ),
            ({"slurm-cluster": {"maintenance": "downscale"}}, "slurm-cluster.maintenance", "delete the jail"),
            # Known problem: nodes of ephemeral nodesets are set DOWN while their pods start (pull request 2859).
            (
                {"nodesets": {"nodesets": [{"name": "worker", "ephemeralNodes": True}]}},
                "nodesets.nodesets.ephemeralNodes",
                "is set DOWN while its pod is still starting",
            ),
        ],
    )
    def test_what_destroys_a_cluster_is_refused_with_the_reason(self, values, where, why):
        assert why in refused(values)[where].allowed

    def test_it_is_reported_beside_errors_elsewhere(self):
        with pytest.raises(ConfigError) as raised:
            config(described(nebius={"system": {"machine_type": "cpu-x/1"}, "values": {"kruse": {"x": 1}}}))
        found = {one.where.removeprefix("hpc:cluster.nebius.") for one in raised.value.findings}
        assert "system.machine_type" in found
