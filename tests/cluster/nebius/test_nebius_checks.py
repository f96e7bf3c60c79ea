"""Bad input for Nebius is refused in words, once: where it stands, what was given, what is allowed, what to do."""

from typing import Any

import pytest

from cluster.findings import Level
from cluster.load import find_warnings
from tests.cluster.nebius.clusters import CPU, FABRIC, GB300, H100, KEY, ONE_GPU, findings, gpus, nebius
from tests.cluster.stacks import config

Changes = dict[str, Any]


def filesystems(**values: Any) -> Changes:
    return {"nebius": {"filesystems": values}}


def submount(mount: str, **values: Any) -> Changes:
    return filesystems(submounts={"data": {"mount": mount, "spec": {"size_gib": 100}, **values}})


def worker(**values: Any) -> Changes:
    return {"nebius": {"workers": {"worker": values}}}


def nodeset(**values: Any) -> Changes:
    return {"nodesets": {"worker": {"count": 2, **values}}}


def version(number: str, **values: Any) -> Changes:
    return {**values, "nebius": {**values.get("nebius", {}), "soperator": {"version": number}}}


def values(given: Changes) -> Changes:
    return {"nebius": {"values": given}}


SPEC = {"size_gib": 100}
EXISTING = "computefilesystem-e00abc"
Case = tuple[Changes, str, str, str, str]
"""Changes, and what is refused of them: place, given, allowed, to do."""


FILES: dict[str, Case] = {
    "one GPU in a GPU cluster": (
        {**gpus(ONE_GPU), "nebius": {"workers": {"worker": FABRIC}}},
        "nebius.workers.worker.infiniband",
        "a GPU cluster for gpu-h100-sxm/1gpu-16vcpu-200gb",
        H100,
        "remove infiniband",
    ),
    "a GPU cluster of nodes without GPUs": (
        worker(**FABRIC), "nebius.workers.worker.infiniband", CPU, H100, "remove infiniband"),
    "spec and existing": (
        filesystems(jail={"spec": SPEC, "existing": EXISTING, "overwrite_existing": True}),
        "nebius.filesystems.jail", "existing", "exactly one of spec and existing", "remove one"),
    "neither spec nor existing": (
        filesystems(controller_spool={}), "nebius.filesystems.controller_spool", "{}", "exactly one", "add one"),
    "a submount at /": (
        submount("/"), "nebius.filesystems.submounts.data.mount", "/", "an absolute path", "from the root"),
    "a submount at /home": (
        submount("/home"), "nebius.filesystems.submounts.data.mount", "/home", "any directory but /home", "/data"),
    "a submount that hides the system": (
        submount("/usr"), "nebius.filesystems.submounts.data.mount", "/usr", "neither the operating system", "hidden"),
    "a submount that hides Soperator": (
        submount("/opt"), "nebius.filesystems.submounts.data.mount", "/opt", "apart from /opt/bin", "elsewhere"),
    "a submount within another": (
        filesystems(submounts={
            "data": {"mount": "/data", "spec": SPEC}, "more": {"mount": "/data/more", "existing": EXISTING}}),
        "nebius.filesystems.submounts.more.mount", "/data/more", "apart from all others", "elsewhere"),
    "a local disk at a submount": (
        {"nebius": {
            "filesystems": {"submounts": {"data": {"mount": "/data", "spec": SPEC}}},
            "workers": {"worker": {"local_disks": {"scratch": {"mount": "/data", "size_gib": 93}}}}}},
        "nebius.workers.worker.local_disks.scratch.mount", "/data", "apart from all others", "elsewhere"),
    "one file system twice": (
        filesystems(submounts={
            "a": {"mount": "/a", "existing": EXISTING}, "b": {"mount": "/b", "existing": EXISTING}}),
        "nebius.filesystems.submounts.b.existing", EXISTING, "a file system of its own", "another id"),
    "a block of 5 KiB": (
        submount("/data", spec={"size_gib": 100, "block_kib": 5}),
        "nebius.filesystems.submounts.data.spec.block_kib", "5", "4, 8, 16, 32, 64, 128", "write one"),
    "an id of something else": (
        filesystems(accounting={"existing": "computedisk-e00abc"}),
        "nebius.filesystems.accounting.existing", "computedisk-e00abc", "computefilesystem-", "filesystem list"),
    "a jail that may not be overwritten": (
        filesystems(jail={"existing": EXISTING}),
        "nebius.filesystems.jail.existing", EXISTING, "overwrite_existing: true", "as a submount"),
    "a new jail that may be overwritten": (
        filesystems(jail={"spec": SPEC, "overwrite_existing": True}),
        "nebius.filesystems.jail.overwrite_existing", "true", "with `existing` alone", "remove it"),
    "an IO_M3 disk of 100 GiB": (
        worker(image_disk={"size_gib": 100}),
        "nebius.workers.worker.image_disk", "100", "a multiple of 93 for network-ssd-io-m3, e.g. 186", "write 186"),
    "a non-replicated disk of 94 GiB": (
        worker(local_disks={"scratch": {"mount": "/scratch", "size_gib": 94, "type": "network-ssd-non-replicated"}}),
        "nebius.workers.worker.local_disks.scratch", "94", "a multiple of 93", "write 186"),
    "a disk type of another cloud": (
        worker(image_disk={"size_gib": 93, "type": "pd-ssd"}),
        "nebius.workers.worker.image_disk.type", "pd-ssd", "network-ssd-io-m3", "take one of these"),
    "a key that is none": (
        {"nebius": {"login": {"root_keys": ["ssh-ed25519 AAAA"]}}},
        "nebius.login.root_keys[0]", "ssh-ed25519 AAAA", "key", "id_ed25519.pub"),
    "a private key": (
        {"nebius": {"login": {"root_keys": ["-----BEGIN OPENSSH PRIVATE KEY-----"]}}},
        "nebius.login.root_keys[0]", "not shown", "a public key", "new pair"),
}  # fmt: skip


NODES: dict[str, Case] = {
    "the guide's operator": (
        version("1.15.3", **gpus()), "nebius.soperator.version", "1.15.3", "4.1.4 or later", "write 4.1.7"),
    "an operator of the series before": (
        version("4.0.5"), "nebius.soperator.version", "4.0.5", "4.1.4 or later", "write 4.1.7"),
    "an operator that spoils GPU libraries": (
        version("4.1.3"), "nebius.soperator.version", "4.1.3", "4.1.4 or later", "write 4.1.7"),
    "an operator before all": (
        version("1.13.0"), "nebius.soperator.version", "1.13.0", "4.1.4 or later", "write 4.1.7"),
    "a version that is a number": (
        {"nebius": {"soperator": {"version": 4.1}}}, "nebius.soperator.version", "4.1", "text", "write it so"),
    "a version of two numbers": (
        {"nebius": {"soperator": {"version": "4.1"}}},
        "nebius.soperator.version", "4.1", "three numbers", "quote it"),
    "two architectures": (
        {"nodesets": {"cpu": {"machine_type": CPU}, "gpu": {"machine_type": GB300}}},
        "nodesets.gpu.machine_type", "gpu-gb300, which is arm64", "x86_64, as nodeset cpu", "a stack of its own"),
    "a region without the platform": (
        gpus(nebius={"region": "us-north1"}),
        "nodesets.worker.machine_type", H100, "gpu-b300-sxm", "nebius.region"),
    "a region that is none": (
        {"nebius": {"region": "eu-nort1"}}, "nebius.region", "eu-nort1", "a region of Nebius", "write eu-north1"),
    "a machine type of another cloud": (
        nodeset(machine_type="n2-standard-8"),
        "nodesets.worker.machine_type", "n2-standard-8", "a machine type of nebius", "write"),
    "a group of another cloud's machines": (
        {"nebius": {"system": {"machine_type": "n2-standard-8"}}},
        "nebius.system.machine_type", "n2-standard-8", "a machine type of nebius", "PLATFORM/PRESET"),
    "a controller with GPUs": (
        {"controller": {"machine_type": H100}},
        "controller.machine_type", H100, "a platform without GPUs", "one of cpu-d3"),
    "a system group that is too small": (
        {"nebius": {"system": {"machine_type": "cpu-d3/4vcpu-16gb"}}},
        "nebius.system.machine_type", "cpu-d3/4vcpu-16gb", "8 vCPUs or more", "write cpu-d3/8vcpu-32gb"),
    "a worker that is too small": (
        nodeset(machine_type="cpu-e2/4vcpu-16gb"),
        "nodesets.worker.machine_type", "cpu-e2/4vcpu-16gb", "8 vCPUs or more", "write cpu-e2/8vcpu-32gb"),
    "a boot disk that is too small": (
        nodeset(machine_type=H100, disk={"size_gb": 200}, count=1),
        "nodesets.worker.disk.size_gb", "200", "512 to 8192 GiB", "write 512"),
    "a boot disk of a login node": (
        {"login": {"disk": {"size_gb": 128}}}, "login.disk.size_gb", "128", "256 to 8192 GiB", "write 256"),
    "a boot disk of another type": (
        {"controller": {"disk": {"type": "pd-ssd"}}},
        "controller.disk.type", "pd-ssd", "size_gb alone", "remove it"),
    "a boot disk of a group": (
        {"nebius": {"accounting": {"disk_gib": 64}}},
        "nebius.accounting.disk_gib", "64", "at least 128", "raise it"),
    "fewer nodes at most than at least": (
        {"nebius": {"system": {"min_nodes": 5, "max_nodes": 3}}},
        "nebius.system", "min_nodes: 5", "min_nodes of at most max_nodes", "raise max_nodes"),
    "101 nodes in one group": (
        worker(nodes_per_group=101), "nebius.workers.worker.nodes_per_group", "101", "at most 100", "lower it"),
    "workers of no nodeset": (
        {"nebius": {"workers": {"wroker": {}}}},
        "nebius.workers.wroker", "wroker", "a nodeset that exists: worker", "write worker"),
    "flex start": (
        nodeset(capacity={"flex": {}}),
        "nodesets.worker.capacity.flex", "flex", "on_demand, spot, reservation", "{spot: {}}"),
    "a future reservation": (
        nodeset(capacity={"calendar": "my-week"}),
        "nodesets.worker.capacity.calendar", "calendar", "on_demand, spot, reservation", "capacityblockgroup-"),
    "a reservation by name": (
        nodeset(capacity={"reservation": "my-reservation"}),
        "nodesets.worker.capacity.reservation", "my-reservation", "capacityblockgroup-e00abc", "copy it"),
    "placement": (
        nodeset(capacity={"spot": {"placement": {}}}),
        "nodesets.worker.capacity.spot.placement", "max_distance 2", "one fabric", "infiniband"),
    "no login pods": ({"login": {"count": 0}}, "login.count", "0", "1 or more", "write 2"),
    "a controller that is the login machine": (
        {"login": {"on": "controller"}}, "login.on", "controller", "nothing on nebius", "remove it"),
    "an image": (
        {"image": {"bake": True}}, "image.bake", "true", "nothing on nebius: bake is for Google Cloud", "remove it"),
    "an operating system": (
        {"image": {"base": "ubuntu-2204"}}, "image.base", "ubuntu-2204", "on nebius: soperator", "remove the key"),
    "storage of another cloud": (
        {"storage": {"filestore": {}}}, "storage.filestore", "{}", "nothing on nebius", "remove it"),
    "a network": (
        {"network": {"cidr": "10.99.0.0/20"}},
        "network.cidr", "10.99.0.0/20", "addresses of nebius.subnet", "remove it"),
    "host names of machines": (
        {"host_names": "cluster"}, "host_names", "cluster", "pods: Soperator names the pods", "remove it"),
    "a prolog": (
        {"slurm": {"scripts": [{"name": "check", "text": "#!/bin/sh\n"}]}},
        "slurm.scripts", "check", "nothing on nebius", "remove it"),
    "a prolog of a partition": (
        {"partitions": {"main": {
            "nodesets": ["worker"], "default": True, "scripts": [{"name": "check", "text": "#!/bin/sh\n"}]}}},
        "partitions.main.scripts", "check", "nothing on nebius", "remove it"),
    "job_submit.lua": (
        {"slurm": {"job_submit_lua": "function slurm_job_submit(job, partitions, uid)\nreturn slurm.SUCCESS\nend\n"
                                     "function slurm_job_modify(job, record, partitions, uid)\n"
                                     "return slurm.SUCCESS\nend\n"}},
        "slurm.job_submit_lua", "function", "nothing on nebius", "remove it"),
    "a warm-up": (
        {"slurm": {"warm_up": {"containers": ["alpine:3.20"]}}},
        "slurm.warm_up", "alpine:3.20", "nothing on nebius", "./hpc warm-up STACK --image IMAGE after `up`"),
    "pam_slurm_adopt": (
        {"slurm": {"pam_slurm_adopt": True}},
        "slurm.pam_slurm_adopt", "true", "false on soperator", "leave it out"),
    "memory of a node": (
        nodeset(node_conf={"RealMemory": 1000}),
        "nodesets.worker.node_conf.RealMemory", "1000", "follows from the machine type", "remove it"),
    "a release of Slurm": (
        {"slurm": {"version": "26.05"}},
        "slurm.version", "26.05", "25.11, the release of Soperator 4.1.7", "remove it"),
    "a parameter of a later release": (
        {"slurm": {"extra": {"HealthCheckTimeout": 10}}},
        "slurm.extra.HealthCheckTimeout", "HealthCheckTimeout", "is in 26.05", "such a release"),
    "drivers that Kubernetes 1.30 does not have": (
        gpus(nebius={"kubernetes": {"version": "1.30"}}),
        "nebius.gpu.drivers_preset", "cuda13.0", "with Kubernetes 1.30 on gpu-h100-sxm: cuda12", "write cuda12"),
    "drivers that Kubernetes 1.35 has no more": (
        gpus(nebius={"gpu": {"drivers_preset": "cuda12.8"}}),
        "nebius.gpu.drivers_preset", "cuda12.8", "with Kubernetes 1.35 on gpu-h100-sxm: cuda13.0", "write cuda13.0"),
    "an internal address of nodes": (
        {"nebius": {"login": {"service": "NodePort", "exposure": "internal"}}},
        "nebius.login.exposure", "internal", "internal with LoadBalancer", "write service"),
    "a nodeset named like other pods": (
        {"nodesets": {"accounting": {}}}, "nodesets.accounting", "accounting", "any other name", "rename"),
    "the partition of the checks": (
        {"partitions": {"hidden": {"nodesets": ["worker"], "default": True}}},
        "partitions.hidden", "hidden", "any other name", "Soperator's checks run"),
    "a user of the checks": (
        {"users": [{"name": "soperatorchecks", "uid": 2001}]},
        "users[0].name", "soperatorchecks", "any other name", "creates one"),
    "a fabric and a GPU cluster": (
        {**gpus(), "nebius": {"workers": {"worker": {
            "infiniband": {"fabric": "fabric-3", "existing": "computegpucluster-e00abc"}}}}},
        "nebius.workers.worker.infiniband", "fabric-3", "exactly one of fabric and existing", "keep one"),
    "a name that is no namespace": ({"name": "Slurm"}, "name", "Slurm", "a letter first", "host name"),
    "a name that the chart of active checks does not have": (
        {"name": "slurm"}, "name", "slurm", "soperator with Soperator 4.1.7", "write name: soperator"),
    "no project": (
        {"nebius": {"project": None}}, "nebius.project", "nothing", "text", "write it so"),
    "no MPI": ({"slurm": {"mpi_default": "none"}}, "slurm.mpi_default", "none", "nothing on Nebius", "remove it"),
    "values of no release": (
        values({"slurm-clusters": {"maintenance": "none"}}),
        "nebius.values.slurm-clusters", "slurm-clusters", "a release of this cluster", "write slurm-cluster"),
    "a value that deletes the jail": (
        values({"slurm-cluster": {"populateJail": {"overwrite": True}}}),
        "nebius.values.slurm-cluster.populateJail.overwrite", "true", "deletes everything in the jail", "remove it"),
    "a value that deletes the jail or every pod": (
        values({"slurm-cluster": {"maintenance": "downscale"}}),
        "nebius.values.slurm-cluster.maintenance", "downscale", "delete the jail", "remove it"),
    "a value that makes nodes elastic": (
        values({"nodesets": {"nodesets": [{"name": "worker", "ephemeralNodes": True}]}}),
        "nebius.values.nodesets.nodesets.ephemeralNodes", "true", "decides this one", "and write nodesets.NAME.count"),
    "several ways for elastic nodes": (
        nodeset(count={"min": 1, "max": 4}, capacity=[{"spot": {}}, {"on_demand": {}}]),
        "nodesets.worker.capacity", "on_demand", "Soperator tries no other", "make a nodeset for each"),
    "a value that the stack file decides": (
        values({"slurm-cluster": {"clusterName": "other"}}),
        "nebius.values.slurm-cluster.clusterName", "other", "decides this one", "and write name"),
    "the number of login pods": (
        values({"slurm-cluster": {"slurmNodes": {"login": {"size": 3}}}}),
        "nebius.values.slurm-cluster.slurmNodes.login.size", "3", "decides this one", "and write login.count"),
    "the number of a nodeset's pods": (
        values({"nodesets": {"nodesets": [{"name": "worker", "replicas": 9}]}}),
        "nebius.values.nodesets.nodesets.replicas", "9", "decides this one", "and write nodesets.NAME.count"),
    "values of a nodeset that there is not": (
        values({"nodesets": {"nodesets": [{"name": "wroker"}]}}),
        "nebius.values.nodesets.nodesets[0]", "wroker", "the name of a nodeset: worker", "write name: worker"),
    "more nodes than Soperator has": (
        {**gpus(count=1100)}, "nodesets.worker.count", "1100", "MaxNodeCount", "lower the count"),
}  # fmt: skip


CASES = {**FILES, **NODES}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_once_with_what_to_do(case: str) -> None:
    changes, where, given, allowed, todo = CASES[case]
    found = findings(**changes)
    assert [*found] == [where], {place: str(one) for place, one in found.items()}
    finding = found[where]
    assert given in finding.given
    assert allowed in finding.allowed
    assert todo in finding.todo


FINE: dict[str, Changes] = {
    "preemptible nodes": nodeset(capacity={"spot": {}}),
    "nodes on demand": nodeset(capacity={"on_demand": {}}),
    "nodes of a capacity block": nodeset(capacity={"reservation": "capacityblockgroup-e00abc"}),
    "101 nodes": gpus(count=101),
    "a fabric of another region": {**gpus(), "nebius": {"workers": {"worker": {"infiniband": {"fabric": "fabric-5"}}}}},
    "a jail that may be overwritten": filesystems(jail={"existing": EXISTING, "overwrite_existing": True}),
    "elastic nodes": nodeset(count={"min": 0, "max": 4}, idle="20m"),
    "a submount below /home": submount("/home/data"),
    "a later patch": version("4.1.11", **gpus()),
    "a version to come": version("5.0.0", **gpus()),
    "another name with it": version("5.0.0", name="research"),
    "parameters": {"slurm": {"extra": {"MaxArraySize": 5000}, "timers": {"kill_wait": 60}}},
    "REST API": {"slurm": {"slurmrestd": True}},
    "a root key": {"nebius": {"login": {"root_keys": [KEY]}}},
    "nodes of ARM": {
        "nodesets": {"gpu": {"machine_type": GB300}}, "nebius": {"workers": {"gpu": FABRIC}}},
    "a network of its own": {"nebius": {"subnet": "create"}},
}  # fmt: skip


@pytest.mark.parametrize("case", FINE)
def test_it_is_accepted(case: str) -> None:
    assert nebius(**FINE[case]).platform == "nebius"


def told(**changes: Any) -> dict[str, str]:
    return {one.id: one.what for one in find_warnings(nebius(**changes))}


def test_the_stack_that_is_here_to_start_from_has_no_warning() -> None:
    assert [one.id for one in find_warnings(config("nebius")) if one.level is not Level.INFO] == []


def test_a_fabric_of_another_region_or_platform() -> None:
    workers = {"worker": {"infiniband": {"fabric": "fabric-5"}}}
    what = told(**gpus(nebius={"workers": workers}))["nebius-fabric"]
    assert "fabric-5 is of gpu-h200-sxm in eu-west1, and the nodes are gpu-h100-sxm in eu-north1" in what


def test_a_fabric_that_is_not_known_here() -> None:
    workers = {"worker": {"infiniband": {"fabric": "fabric-99"}}}
    assert "none of those that are known" in told(**gpus(nebius={"workers": workers}))["nebius-fabric"]


def test_gpu_nodes_without_infiniband() -> None:
    assert "Ethernet in place of InfiniBand" in told(**{**gpus(), "nebius": {}})["nebius-no-gpu-cluster"]
    assert told(**gpus()) == {}


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("1.31", "creates no clusters of it any more, and ended it on 2026-09-01 (as of 2026-09-23)"),
        ("1.99", "none of those that are known here"),
    ],
)
def test_a_version_of_kubernetes_that_no_new_cluster_has(version: str, why: str) -> None:
    """One that is up with it stays up, so it is no error."""
    section = {"kubernetes": {"version": version}, "gpu": {"driver": "operator"}}
    assert why in told(**gpus(nebius=section))["nebius-kubernetes-version"]


def test_a_version_with_faults_that_are_not_fatal() -> None:
    assert "node-undrained" in told(**version("4.1.6", **gpus()))["nebius-soperator-faults"]


def test_an_unknown_version() -> None:
    assert "without charts of that version `up` fails" in told(**version("4.9.0"))["nebius-soperator-unknown"]
    assert told(**version("4.1.11")) == {}


def test_large_file_systems_need_a_request() -> None:
    section = {"filesystems": {"jail": {"spec": {"size_gib": 4096}}}}
    assert "jail (4096 GiB)" in told(nebius=section)["nebius-filesystem-large"]


def test_backups_of_a_large_jail() -> None:
    section = {"filesystems": {"jail": {"spec": {"size_gib": 20_000}}}, "backups": {"enabled": True}}
    assert "20000 GiB" in told(nebius=section)["nebius-backup-size"]


def test_a_number_that_users_of_checks_may_have() -> None:
    assert "1001 may be taken" in told(users=[{"name": "alice", "uid": 1001}])["nebius-user-uid"]
    assert told(users=[{"name": "alice", "uid": 2001}]) == {}
