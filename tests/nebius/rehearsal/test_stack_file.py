"""The local stack that stands for a SlurmCluster has its nodes, partitions and names."""

import pytest

from cluster.findings import ROOT
from cluster.load import parse
from cluster.slurm.files import render
from lab.soperator.local_machines import local_section
from lab.soperator.spec import parse_cluster

H100 = "gpu-h100-sxm/8gpu-128vcpu-1600gb"
STATIC = "CPUs=128 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=2 Gres=gpu:nvidia_h100_80gb_hbm3:8"
LOGIN = {"size": 2, "sshRootPublicKeys": ["ssh-ed25519 AAAA root"], "sshdServiceType": "NodePort"}


def cluster(**spec):
    return {
        "metadata": {"name": "slurm", "namespace": "slurm"},
        "spec": {"slurmNodes": {"login": LOGIN, "accounting": {"enabled": True}}, **spec},
    }


def nodeset(name="worker", replicas=2, **spec):
    slurmd = {"resources": {"memory": "1516Gi", "gpu": 8}}
    config = {"static": STATIC, "features": ["h100"]}
    return {
        "metadata": {"name": name, "annotations": {"slurm.nebius.ai/parental-cluster-ref": "slurm"}},
        "spec": {"replicas": replicas, "slurmd": slurmd, "nodeConfig": config, **spec},
    }


def pods(*names):
    return {**dict.fromkeys(("controller-0", "login-0", "login-1"), ""), **dict.fromkeys(names, H100)}


def local(found, nodesets, *names):
    """The configuration of the local stack, and what it can't have."""
    made, lost = local_section(parse_cluster(found, nodesets), pods(*names), cidr="10.78.0.0/20")
    return parse({ROOT: made}), lost


def structured(*rows):
    return {"partitionConfiguration": {"configType": "structured", "partitions": list(rows)}}


def test_workers_are_nodes_with_the_sizes_and_gpus_of_their_node_group():
    config, lost = local(cluster(), [nodeset()], "worker-0", "worker-1")
    text = render(config)["slurm.conf"]
    assert not lost
    assert "NodeName=worker-[0-1] CPUs=128 " in text
    assert "CoresPerSocket=32" in text
    assert "RealMemory=1552384" in text
    assert "Gres=gpu:nvidia_h100_80gb_hbm3:8" in text
    assert "SlurmctldHost=controller-0" in text


def test_a_pod_without_a_node_has_no_machine_and_none_after_it_either():
    config, _ = local(cluster(), [nodeset(replicas=3)], "worker-0", "worker-2")
    assert config.nodesets["worker"].count == 1


def test_structured_partitions():
    rows = [
        {"name": "main", "isAll": True, "config": "Default=YES PriorityTier=10 MaxTime=INFINITE State=UP"},
        {"name": "short", "nodeSetRefs": ["gpu"], "config": "MaxTime=01:00:00 OverSubscribe=EXCLUSIVE DefCpuPerGPU=4"},
        {"name": "hidden", "isAll": True, "config": "Hidden=YES"},
    ]
    config, lost = local(cluster(**structured(*rows)), [nodeset(), nodeset("gpu", 1)], "worker-0", "gpu-0")
    assert not lost
    assert config.partitions["main"].default
    assert config.partitions["main"].nodesets == ("worker", "gpu")
    assert (config.partitions["short"].nodesets, config.partitions["short"].exclusive) == (("gpu",), True)
    assert config.partitions["short"].max_time == "01:00:00"
    assert config.partitions["hidden"].conf == {"Hidden": "YES"}


def test_settings_that_local_machines_can_not_have_are_left_out_and_reported():
    config, lost = local(cluster(customSlurmConfig="Nonsense=1\nDebugFlags=Gres"), [nodeset()], "worker-0")
    assert len(lost) == 1
    assert "Nonsense" in lost[0]
    assert config.slurm.extra == {"DebugFlags": "Gres"}


def test_lines_of_slurm_conf_that_fields_set():
    select = "SelectTypeParameters=CR_CPU_Memory,CR_CORE_DEFAULT_DIST_BLOCK"
    lines = f"KillWait=61\nAccountingStorageEnforce=associations,limits\n{select}"
    config, lost = local(cluster(customSlurmConfig=lines), [nodeset()], "worker-0")
    assert not lost
    text = render(config)["slurm.conf"]
    for line in lines.splitlines():
        assert line in text


@pytest.mark.parametrize("maintenance", ["downscale", "downscaleAndDeletePopulateJail"])
def test_maintenance_stops_it(maintenance):
    assert parse_cluster(cluster(maintenance=maintenance), []).stopped


def test_submounts_are_shared_directories():
    submounts = [{"name": "data", "mountPath": "/data"}]
    one = nodeset()
    one["spec"]["slurmd"]["volumes"] = {"jailSubMounts": submounts}
    config, _ = local(cluster(), [one], "worker-0")
    assert "/data" in config.storage.shared
