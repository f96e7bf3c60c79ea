"""Bad input for Nebius is refused in words, once: where it stands, what was given, what is allowed, what to do."""

from collections.abc import Callable, Mapping
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
Reviewed = Callable[[str, Mapping[str, str]], None]


FILES: dict[str, Changes] = {
    "one GPU in a GPU cluster": {**gpus(ONE_GPU), "nebius": {"workers": {"worker": FABRIC}}},
    "a GPU cluster of nodes without GPUs": worker(**FABRIC),
    "spec and existing": filesystems(jail={"spec": SPEC, "existing": EXISTING, "overwrite_existing": True}),
    "neither spec nor existing": filesystems(controller_spool={}),
    "a submount at /": submount("/"),
    "a submount at /home": submount("/home"),
    "a submount that hides the system": submount("/usr"),
    "a submount that hides Soperator": submount("/opt"),
    "a submount within another": filesystems(
        submounts={"data": {"mount": "/data", "spec": SPEC}, "more": {"mount": "/data/more", "existing": EXISTING}}
    ),
    "a local disk at a submount": {
        "nebius": {
            "filesystems": {"submounts": {"data": {"mount": "/data", "spec": SPEC}}},
            "workers": {"worker": {"local_disks": {"scratch": {"mount": "/data", "size_gib": 93}}}},
        }
    },
    "one file system twice": filesystems(
        submounts={"a": {"mount": "/a", "existing": EXISTING}, "b": {"mount": "/b", "existing": EXISTING}}
    ),
    "a block of 5 KiB": submount("/data", spec={"size_gib": 100, "block_kib": 5}),
    "an id of something else": filesystems(accounting={"existing": "computedisk-e00abc"}),
    "a jail that may not be overwritten": filesystems(jail={"existing": EXISTING}),
    "a new jail that may be overwritten": filesystems(jail={"spec": SPEC, "overwrite_existing": True}),
    "an IO_M3 disk of 100 GiB": worker(image_disk={"size_gib": 100}),
    "a non-replicated disk of 94 GiB": worker(
        local_disks={"scratch": {"mount": "/scratch", "size_gib": 94, "type": "network-ssd-non-replicated"}}
    ),
    "a disk type of another cloud": worker(image_disk={"size_gib": 93, "type": "pd-ssd"}),
    "a key that is none": {"nebius": {"login": {"root_keys": ["ssh-ed25519 AAAA"]}}},
    "a private key": {"nebius": {"login": {"root_keys": ["-----BEGIN OPENSSH PRIVATE KEY-----"]}}},
}


NODES: dict[str, Changes] = {
    "the guide's operator": version("1.15.3", **gpus()),
    "an operator of the series before": version("4.0.5"),
    "an operator that spoils GPU libraries": version("4.1.3"),
    "an operator before all": version("1.13.0"),
    "a version that is a number": {"nebius": {"soperator": {"version": 4.1}}},
    "a version of two numbers": {"nebius": {"soperator": {"version": "4.1"}}},
    "two architectures": {"nodesets": {"cpu": {"machine_type": CPU}, "gpu": {"machine_type": GB300}}},
    "a region without the platform": gpus(nebius={"region": "us-north1"}),
    "a region that is none": {"nebius": {"region": "eu-nort1"}},
    "a machine type of another cloud": nodeset(machine_type="n2-standard-8"),
    "a group of another cloud's machines": {"nebius": {"system": {"machine_type": "n2-standard-8"}}},
    "a controller with GPUs": {"controller": {"machine_type": H100}},
    "a system group that is too small": {"nebius": {"system": {"machine_type": "cpu-d3/4vcpu-16gb"}}},
    "a worker that is too small": nodeset(machine_type="cpu-e2/4vcpu-16gb"),
    "a boot disk that is too small": nodeset(machine_type=H100, disk={"size_gb": 200}, count=1),
    "a boot disk of a login node": {"login": {"disk": {"size_gb": 128}}},
    "a boot disk of another type": {"controller": {"disk": {"type": "pd-ssd"}}},
    "a boot disk of a group": {"nebius": {"accounting": {"disk_gib": 64}}},
    "fewer nodes at most than at least": {"nebius": {"system": {"min_nodes": 5, "max_nodes": 3}}},
    "101 nodes in one group": worker(nodes_per_group=101),
    "workers of no nodeset": {"nebius": {"workers": {"wroker": {}}}},
    "flex start": nodeset(capacity={"flex": {}}),
    "a future reservation": nodeset(capacity={"calendar": "my-week"}),
    "a reservation by name": nodeset(capacity={"reservation": "my-reservation"}),
    "placement": nodeset(capacity={"spot": {"placement": {}}}),
    "no login pods": {"login": {"count": 0}},
    "a controller that is the login machine": {"login": {"on": "controller"}},
    "an image": {"image": {"bake": True}},
    "an operating system": {"image": {"base": "ubuntu-2204"}},
    "storage of another cloud": {"storage": {"filestore": {}}},
    "a network": {"network": {"cidr": "10.99.0.0/20"}},
    "host names of machines": {"host_names": "cluster"},
    "a prolog": {"slurm": {"scripts": [{"name": "check", "text": "#!/bin/sh\n"}]}},
    "a prolog of a partition": {
        "partitions": {
            "main": {"nodesets": ["worker"], "default": True, "scripts": [{"name": "check", "text": "#!/bin/sh\n"}]}
        }
    },
    "job_submit.lua": {
        "slurm": {
            "job_submit_lua": "function slurm_job_submit(job, partitions, uid)\nreturn slurm.SUCCESS\nend\n"
            "function slurm_job_modify(job, record, partitions, uid)\n"
            "return slurm.SUCCESS\nend\n"
        }
    },
    "a warm-up": {"slurm": {"warm_up": {"containers": ["alpine:3.20"]}}},
    "pam_slurm_adopt": {"slurm": {"pam_slurm_adopt": True}},
    "memory of a node": nodeset(node_conf={"RealMemory": 1000}),
    "a release of Slurm": {"slurm": {"version": "26.05"}},
    "a parameter of a later release": {"slurm": {"extra": {"HealthCheckTimeout": 10}}},
    "drivers that Kubernetes 1.30 does not have": gpus(nebius={"kubernetes": {"version": "1.30"}}),
    "drivers that Kubernetes 1.35 has no more": gpus(nebius={"gpu": {"drivers_preset": "cuda12.8"}}),
    "an internal address of nodes": {"nebius": {"login": {"service": "NodePort", "exposure": "internal"}}},
    "a nodeset named like other pods": {"nodesets": {"accounting": {}}},
    "the partition of the checks": {"partitions": {"hidden": {"nodesets": ["worker"], "default": True}}},
    "a user of the checks": {"users": [{"name": "soperatorchecks", "uid": 2001}]},
    "a fabric and a GPU cluster": {
        **gpus(),
        "nebius": {
            "workers": {"worker": {"infiniband": {"fabric": "fabric-3", "existing": "computegpucluster-e00abc"}}}
        },
    },
    "a name that is no namespace": {"name": "Slurm"},
    "a name that the chart of active checks does not have": {"name": "slurm"},
    "no project": {"nebius": {"project": None}},
    "no MPI": {"slurm": {"mpi_default": "none"}},
    "values of no release": values({"slurm-clusters": {"maintenance": "none"}}),
    "a value that deletes the jail": values({"slurm-cluster": {"populateJail": {"overwrite": True}}}),
    "a value that deletes the jail or every pod": values({"slurm-cluster": {"maintenance": "downscale"}}),
    "a value that makes nodes elastic": values(
        {"nodesets": {"nodesets": [{"name": "worker", "ephemeralNodes": True}]}}
    ),
    "several ways for elastic nodes": nodeset(count={"min": 1, "max": 4}, capacity=[{"spot": {}}, {"on_demand": {}}]),
    "a value that the stack file decides": values({"slurm-cluster": {"clusterName": "other"}}),
    "the number of login pods": values({"slurm-cluster": {"slurmNodes": {"login": {"size": 3}}}}),
    "the number of a nodeset's pods": values({"nodesets": {"nodesets": [{"name": "worker", "replicas": 9}]}}),
    "values of a nodeset that there is not": values({"nodesets": {"nodesets": [{"name": "wroker"}]}}),
    "more nodes than Soperator has": {**gpus(count=1100)},
}


CASES = {**FILES, **NODES}


def test_it_is_refused_once_with_what_to_do(reviewed: Reviewed) -> None:
    found = {case: findings(**changes) for case, changes in CASES.items()}
    assert [case for case, every in found.items() if len(every) != 1] == []
    reviewed("refused/nebius", {case: "\n".join(map(str, every.values())) for case, every in found.items()})


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
    "nodes of ARM": {"nodesets": {"gpu": {"machine_type": GB300}}, "nebius": {"workers": {"gpu": FABRIC}}},
    "a network of its own": {"nebius": {"subnet": "create"}},
}


@pytest.mark.parametrize("case", FINE)
def test_it_is_accepted(case: str) -> None:
    assert nebius(**FINE[case]).platform == "nebius"


def test_the_stack_that_is_here_to_start_from_has_no_warning() -> None:
    assert [warning.id for warning in find_warnings(config("nebius")) if warning.level is not Level.INFO] == []


WARNED: dict[str, Changes] = {
    "a fabric of another region or platform": gpus(
        nebius={"workers": {"worker": {"infiniband": {"fabric": "fabric-5"}}}}
    ),
    "a fabric that is not known here": gpus(nebius={"workers": {"worker": {"infiniband": {"fabric": "fabric-99"}}}}),
    "GPU nodes without InfiniBand": {**gpus(), "nebius": {}},
    "GPU nodes with it": gpus(),
    # One that is up with it stays up, so it is no error.
    "a Kubernetes that no new cluster has": gpus(
        nebius={"kubernetes": {"version": "1.31"}, "gpu": {"driver": "operator"}}
    ),
    "a Kubernetes that is not known here": gpus(
        nebius={"kubernetes": {"version": "1.99"}, "gpu": {"driver": "operator"}}
    ),
    "a version with faults that are not fatal": version("4.1.6", **gpus()),
    "an unknown version": version("4.9.0"),
    "a later patch of a known one": version("4.1.11"),
    "a file system that needs a request": filesystems(jail={"spec": {"size_gib": 4096}}),
    "backups of a large jail": {
        "nebius": {"filesystems": {"jail": {"spec": {"size_gib": 20_000}}}, "backups": {"enabled": True}}
    },
    "a uid that users of checks may have": {"users": [{"name": "alice", "uid": 1001}]},
    "another uid": {"users": [{"name": "alice", "uid": 2001}]},
}


def test_it_is_warned_of(reviewed: Reviewed) -> None:
    found = {case: find_warnings(nebius(**changes)) for case, changes in WARNED.items()}
    reviewed("refused/nebius-warned", {case: "\n".join(map(str, every)) for case, every in found.items()})
