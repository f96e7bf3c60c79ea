"""Known problems that a cluster's charts, node groups and fields leave no room for."""

from typing import Any

import pytest

from cluster.config import ClusterConfig
from cluster.platforms.nebius import checks
from cluster.platforms.nebius.node_groups import NodeGroup, node_groups
from cluster.platforms.nebius.releases import Facts, Release, releases
from cluster.platforms.nebius.section import Nebius
from tests.cluster.nebius.samples import FABRIC, findings, given, gpus, nebius, settings

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFjY2VwdGVkLWJ5LW5vYm9keS1hdC1hbGwtLS0t alice@laptop"
FACTS = Facts(root_keys=(KEY,), allocation="vpcallocation-1", backups={"name": "b", "endpoint": "https://b:443"})
VERSIONS = ("4.1.4", "4.1.7", "5.0.0")


def charts(**changes: Any) -> dict[str, Release]:
    """Releases by name."""
    return {one.name: one for one in releases(nebius(**changes), FACTS)}


def groups(config: ClusterConfig) -> list[NodeGroup]:
    """The cluster's node groups."""
    return list(node_groups(config, settings(config)))


def version(number: str, **more: Any) -> dict[str, Any]:
    """Keys of a cluster with that Soperator."""
    return {**more, "nebius": {**more.get("nebius", {}), "soperator": {"version": number}}}


def before(all_: dict[str, Release], name: str) -> set[str]:
    """Names of all releases that are installed before one."""
    found = set(all_[name].needs)
    return found.union(*(before(all_, one) for one in found)) if found else found


class TestCharts:
    @pytest.mark.parametrize("number", VERSIONS)
    def test_slurm_starts_after_the_nodes_offer_their_gpus(self, number: str) -> None:
        assert set(charts(**version(number, **gpus()))["slurm-cluster"].after) == {"nodes", "gpu"}

    def test_backups_are_scheduled_after_the_jail_is_populated(self) -> None:
        made = charts()["soperator-backup-config"]
        assert "populated" in made.after
        assert "k8up" in made.needs

    @pytest.mark.parametrize("number", VERSIONS)
    def test_accounting_has_its_operator_and_soperator_is_configured(self, number: str) -> None:
        made = charts(**version(number))
        assert "mariadb-operator" in before(made, "slurm-cluster")
        env = made["soperator"].values["controllerManager"]["manager"]["env"]
        assert env["isMariadbCrdInstalled"] == "true"
        assert made["slurm-cluster"].values["slurmNodes"]["accounting"]["enabled"] is True

    def test_services_of_large_clusters_have_more(self) -> None:
        def memory(count: int) -> str:
            changes = {"nodesets": {"worker": {"count": count}}}
            return str(charts(**changes)["kruise"].values["manager"]["resources"]["limits"]["memory"])

        sizes = [memory(count) for count in (2, 150, 600)]
        assert len(set(sizes)) == 3
        assert sizes[0] == "2Gi"

    @pytest.mark.parametrize("number", VERSIONS)
    def test_the_registry_of_charts_and_images_is_one_setting(self, number: str) -> None:
        mirror = "oci://cr.nebius.cloud/soperator"
        changes = version(number)
        changes["nebius"]["soperator"]["charts"] = mirror
        made = charts(**changes)
        own = [one for one in made.values() if one.name.startswith(("soperator", "slurm-", "nodesets"))]
        assert own
        assert {one.repo for one in own} == {mirror}
        texts = [text for one in made.values() for text in _texts(one.values)]
        assert [text for text in texts if "cr.nebius.cloud/soperator/" in text]
        assert not [text for text in texts if "cr.eu-north1" in text]

    @pytest.mark.parametrize("number", VERSIONS)
    def test_the_jail_is_populated_from_soperators_own_image(self, number: str) -> None:
        values = charts(**version(number))["slurm-cluster"].values
        assert "populateJail" not in values.get("images", {})
        assert "jailSnapshotVolume" not in values["populateJail"]

    def test_a_cluster_can_do_without_names_of_switches(self) -> None:
        assert _waits_for_topology(charts(**gpus()))
        changes = gpus()
        changes["nebius"]["values"] = {"slurm-cluster": {"slurmConfig": {"topologyPlugin": "topology/default"}}}
        made = charts(**changes)
        assert made["slurm-cluster"].values["slurmConfig"]["topologyPlugin"] == "topology/default"
        assert not _waits_for_topology(made)

    def test_flux_which_uninstalls_what_fails_is_not_used(self) -> None:
        assert not [name for name in charts() if "flux" in name]


class TestNodeGroups:
    def test_nodes_of_a_split_nodeset_are_those_that_were_asked_for(self) -> None:
        config = nebius(nodesets={"worker": {"count": 16}}, nebius={"workers": {"worker": {"nodes_per_group": 3}}})
        counts = [one.count for one in groups(config) if one.nodeset == "worker"]
        assert counts == [3, 3, 3, 3, 3, 1]

    def test_a_change_needs_no_node_more_and_ends_its_drains(self) -> None:
        for one in groups(nebius(**gpus())):
            assert one.unavailable >= 1

    def test_all_nodes_with_gpus_boot_with_one_driver(self) -> None:
        two = {name: {"machine_type": gpus()["nodesets"]["worker"]["machine_type"], "count": 1} for name in ("a", "b")}
        config = nebius(nodesets=two, nebius={"workers": {"a": FABRIC, "b": FABRIC}})
        assert {one.drivers_preset for one in groups(config) if one.gpus} == {settings(config).gpu.drivers_preset}
        assert "gpu" not in type(settings(config).workers["a"]).model_fields

    def test_boot_disks_of_nodes_with_gpus_have_room_for_images(self) -> None:
        assert min(one.disk_gib for one in groups(nebius(**gpus())) if one.gpus) >= 512
        assert "nodesets.worker.disk.size_gb" in findings(**gpus(disk={"size_gb": 256}))


class TestVersions:
    @pytest.mark.parametrize("number", ["4.1.3", "3.0.1", "4.0.4"])
    def test_those_that_can_not_be_used_are_refused(self, number: str) -> None:
        found = findings(**version(number, **gpus()))["nebius.soperator.version"]
        assert found.given == number
        assert "4.1.7" in found.todo

    def test_those_with_faults_are_warned_of(self) -> None:
        found = list(checks.find_warnings(nebius(**version("4.1.6"))))
        assert any("node-undrained" in one.what for one in found)

    def test_the_default_has_none(self) -> None:
        assert not [one for one in checks.find_warnings(nebius()) if "soperator" in one.id]

    @pytest.mark.parametrize("number", ["4.9.0", "9.9.9"])
    def test_one_that_there_is_not_is_named_by_the_preview(self, number: str) -> None:
        found = list(checks.find_warnings(nebius(**version(number))))
        assert any(number in one.what and "`up` fails" in one.what for one in found)


def test_the_cluster_is_always_nebiuss_own() -> None:
    """Its network is Cilium without kube-proxy, which keeps source addresses; no field brings another cluster."""
    fields = type(settings(nebius()).kubernetes).model_fields
    assert set(fields) == {"version", "etcd_size"}
    assert "existing" not in Nebius.model_fields
    assert "kubeconfig" not in str(given())


def _waits_for_topology(made: dict[str, Release]) -> bool:
    """Whether the cluster is only up when InfiniBand's topology is known."""
    checks_ = made["soperator-activechecks"].values["checks"]
    return checks_.get("wait-for-topology", {}).get("runAfterCreation", True)


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, (list, tuple)):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []
