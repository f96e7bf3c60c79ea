"""What one edit of a cluster changes in its releases, and nothing else."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cluster.platforms.nebius.releases import Facts
from tests.cluster.nebius.clusters import BACKED_UP, KEY, described, made

LOGIN = "slurm-cluster.slurmNodes.login"
_ABSENT = object()


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its dotted path; members of lists by their name or position."""
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from flat(one, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for position, one in enumerate(value):
            name = one.get("name", position) if isinstance(one, Mapping) else position
            yield from flat(one, f"{path}[{name}]")
    else:
        yield path.removeprefix("."), value


def changes(before, after) -> dict[str, Any]:
    """Return what is new, by path; None for what is gone."""
    old = dict(flat({name: one.values for name, one in before.items()}))
    new = dict(flat({name: one.values for name, one in after.items()}))
    return {path: new.get(path) for path in [*old, *new] if old.get(path, _ABSENT) != new.get(path, _ABSENT)}


def edit(version="4.1.7", facts=BACKED_UP, **changed) -> dict[str, Any]:
    return changes(made(described(version)), made(described(version, **changed), facts))


class TestLogin:
    def test_a_node_port_has_a_port_and_no_allocation(self):
        assert edit(nebius={"login": {"service": "NodePort"}}) == {
            f"{LOGIN}.sshdServiceType": "NodePort",
            f"{LOGIN}.sshdServiceNodePort": 30022,
            f"{LOGIN}.sshdServiceAnnotations.nebius.com/load-balancer-allocation-id": None,
        }

    def test_an_internal_load_balancer_says_so(self):
        facts = Facts(root_keys=BACKED_UP.root_keys, backups=BACKED_UP.backups)
        assert edit(nebius={"login": {"exposure": "internal"}}, facts=facts) == {
            f"{LOGIN}.sshdServiceAnnotations.nebius.com/load-balancer-type": "internal",
            f"{LOGIN}.sshdServiceAnnotations.nebius.com/load-balancer-allocation-id": None,
        }

    def test_keys_are_those_of_the_facts(self):
        facts = Facts(root_keys=[*BACKED_UP.root_keys, f"{KEY} b"], allocation="x", backups=BACKED_UP.backups)
        assert edit(facts=facts)[f"{LOGIN}.sshRootPublicKeys[1]"] == f"{KEY} b"

    def test_login_nodes_are_counted_in_the_check_too(self):
        changed = edit(login={"count": 3})
        env = "soperator-activechecks.checks.ssh-check.k8sJobSpec.jobContainer.env[NUM_OF_LOGIN_NODES].value"
        assert changed[f"{LOGIN}.size"] == 3
        assert changed[env] == "3"


class TestWorkers:
    def test_one_node_more_is_one_replica_more(self):
        nodesets = {"worker": {"machine_type": "gpu-h100-sxm/8gpu-128vcpu-1600gb", "count": 3}}
        assert edit(nodesets=nodesets) == {"nodesets.nodesets[worker].replicas": 3}

    def test_spot_and_fabric_are_the_node_groups_own(self):
        spot = {"worker": {"machine_type": "gpu-h100-sxm/8gpu-128vcpu-1600gb", "count": 2, "capacity": {"spot": {}}}}
        assert edit(nodesets=spot) == {}
        assert edit(nebius={"workers": {"worker": {"infiniband": {"fabric": "fabric-4"}}}}) == {}

    def test_a_driver_of_the_gpu_operator_is_waited_for_and_not_mounted(self):
        changed = edit(nebius={"gpu": {"driver": "operator"}})
        assert changed.pop("soperator-dcgm-exporter.validateToolkit") is True
        assert changed
        assert all("nvidia-driver-root" in path for path in changed)

    def test_features_and_node_conf_reach_slurm(self):
        nodeset = {"machine_type": "gpu-h100-sxm/8gpu-128vcpu-1600gb", "count": 2}
        changed = edit(nodesets={"worker": {**nodeset, "features": ["fast"], "node_conf": {"weight": 7}}})
        assert changed["nodesets.nodesets[worker].nodeConfig.features[0]"] == "fast"
        assert changed["nodesets.nodesets[worker].nodeConfig.static"].endswith(" Weight=7")

    def test_a_disk_of_each_node_is_mounted_and_checked(self):
        disk = {"local_disks": {"scratch": {"size_gib": 93, "mount": "/scratch", "filesystem": "xfs"}}}
        changed = edit(nebius={"workers": {"worker": disk}})
        claim = "nodesets.nodesets[worker].slurmd.volumes.jailSubMounts[scratch].volumeClaimTemplateSpec"
        assert changed[f"{claim}.resources.requests.storage"] == "93Gi"
        assert changed[f"{claim}.storageClassName"] == "compute-csi-network-ssd-io-m3-xfs"
        assert "nodesets.nodesets[worker].customInitContainers[ensure-scratch-xfs].image" in changed

    def test_a_disk_for_images_has_its_configuration_and_directories(self):
        changed = edit(nebius={"workers": {"worker": {"image_disk": {"size_gib": 93}}}})
        mounts = "nodesets.nodesets[worker].slurmd.volumes.customVolumeMounts"
        assert changed[f"{mounts}[enroot-on-image-storage].subPath"] == "enroot.conf"
        assert changed[f"{mounts}[docker-on-image-storage].volumeSource.configMap.name"] == "image-storage"
        assert "nodesets.nodesets[worker].customInitContainers[prepare-image-storage].image" in changed


class TestFilesystems:
    def test_a_grown_file_system_changes_nothing(self):
        """Kubernetes refuses another size of a bound claim."""
        assert edit(nebius={"filesystems": {"jail": {"spec": {"size_gib": 4096}}}}) == {}

    def test_an_existing_jail_is_mounted_as_one_of_the_stacks_own(self):
        jail = {"existing": "computefilesystem-e00jail", "overwrite_existing": True}
        assert edit(nebius={"filesystems": {"jail": jail}}) == {}

    def test_a_submount_is_mounted_in_login_and_worker_pods(self):
        changed = edit(nebius={"filesystems": {"submounts": {"data": {"spec": {"size_gib": 9}, "mount": "/data"}}}})
        assert changed["slurm-cluster-storage.volume.jailSubMounts[data].filestoreDeviceName"] == "jail-submount-data"
        assert changed[f"{LOGIN}.volumes.jailSubMounts[data].mountPath"] == "/data"
        assert changed["nodesets.nodesets[worker].slurmd.volumes.jailSubMounts[data].mountPath"] == "/data"


class TestHealth:
    def test_node_replacement_is_a_switch(self):
        changed = edit(nebius={"health": {"replace_nodes": False}})
        assert changed == {"soperatorchecks.checks.manager.enableNodeReplacement": False}

    @pytest.mark.parametrize(
        ("scope", "quick", "long", "jail"),
        [
            ("skip_all", False, False, False),
            ("testing", False, False, True),
            ("essential", False, False, True),
            ("prod_quick", True, False, True),
            ("prod_acceptance", True, True, True),
        ],
    )
    def test_a_scope_says_what_runs_when_the_cluster_comes_up(self, scope, quick, long, jail):
        checks = made(described(nebius={"health": {"scope": scope}}))["soperator-activechecks"].values["checks"]
        assert checks["gpu-fryer"]["runAfterCreation"] is quick
        assert checks["dcgmi-diag-r3"]["runAfterCreation"] is long
        assert checks["manage-jail-state"]["runAfterCreation"] is jail


def test_a_cluster_can_do_without_names_of_switches():
    """Where slurmctld can't read them (known problem 9)."""
    plain, conf = made(described()), {"topologyPlugin": "topology/default"}
    without = made(described(nebius={"values": {"slurm-cluster": {"slurmConfig": conf}}}))
    waits = [
        every["soperator-activechecks"].values["checks"].get("wait-for-topology", {}).get("runAfterCreation", True)
        for every in (plain, without)
    ]
    assert waits == [True, False]
    assert conf.items() <= without["slurm-cluster"].values["slurmConfig"].items()


class TestRegistry:
    @pytest.mark.parametrize("version", ["4.1.4", "4.1.7", "5.0.0"])
    def test_the_registry_of_charts_and_images_is_one_setting(self, version):
        mirror = "cr.nebius.cloud/soperator"
        every = made(described(version, nebius={"soperator": {"charts": f"oci://{mirror}"}}))
        own = [release for release in every.values() if release.name.startswith(("soperator", "slurm-", "nodesets"))]
        assert {release.repo for release in own} == {f"oci://{mirror}"}
        texts = [str(value) for release in every.values() for _, value in flat(release.values)]
        assert [text for text in texts if f"{mirror}/" in text]
        assert not [text for text in texts if "cr.eu-north1" in text]

    def test_charts_of_a_folder_are_all_there(self):
        every = made(described(nebius={"soperator": {"charts": "/srv/charts"}}))
        assert {one.repo for one in every.values()} == {"/srv/charts"}
