"""Bad input for Nebius: versions, nodes, settings, names."""

from tests.cluster.nebius.changes import Case, nodeset, version, worker
from tests.cluster.nebius.samples import CPU, FABRIC, GB300, H100, gpus

CASES: dict[str, Case] = {
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
        {**gpus(), "nebius": {"region": "us-north1", "workers": {"worker": FABRIC}}},
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
        {**gpus(), "nebius": {"kubernetes": {"version": "1.30"}, "workers": {"worker": FABRIC}}},
        "nebius.gpu.drivers_preset", "cuda13.0", "with Kubernetes 1.30 on gpu-h100-sxm: cuda12", "write cuda12"),
    "drivers that Kubernetes 1.35 has no more": (
        {**gpus(), "nebius": {"gpu": {"drivers_preset": "cuda12.8"}, "workers": {"worker": FABRIC}}},
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
        {"nebius": {"values": {"slurm-clusters": {"maintenance": "none"}}}},
        "nebius.values.slurm-clusters",
        "slurm-clusters",
        "a release of this cluster",
        "write slurm-cluster",
    ),
    "a value that deletes the jail": (
        {"nebius": {"values": {"slurm-cluster": {"populateJail": {"overwrite": True}}}}},
        "nebius.values.slurm-cluster.populateJail.overwrite",
        "true",
        "deletes everything in the jail",
        "remove it",
    ),
    "a value that the stack file decides": (
        {"nebius": {"values": {"slurm-cluster": {"clusterName": "other"}}}},
        "nebius.values.slurm-cluster.clusterName",
        "other",
        "decides this one",
        "remove it",
    ),
    "more nodes than Soperator has": (
        {**gpus(count=1100)}, "nodesets.worker.count", "1100", "MaxNodeCount", "lower the count"),
}  # fmt: skip
