"""One edit of every field that only Google Cloud has, and its expected effect on running jobs."""

from typing import Any

from cluster.config.impact_annotations import Effect
from tests.cluster.samples import Cluster, Sample, at, gone

IN_TWO_ZONES = {"machine_type": "n2-standard-8", "failover": True, "failover_zone": "us-central1-b"}

CLOUD: Cluster = {
    "platform": "gcp",
    "gcp": {"project": "my-project", "zone": "us-central1-a"},
    "name": "cloud",
    "storage": {
        "lustre": {
            "kind": "exascaler",
            "mgs": {"mgt": {"type": "pd-standard", "size_gb": 128}, "mnt": {"type": "pd-standard", "size_gb": 128}},
            "mds": {"mdt": {"type": "pd-ssd", "size_gb": 3500}},
            "oss": {"ost": {"type": "pd-ssd", "size_gb": 3500}},
        },
        "buckets": [{"name": "data-one", "mount": "/gcs"}, {"name": "data-two", "mount": "/more"}],
    },
    "image": {"provision": [{"name": "ours", "text": "#!/bin/sh\n"}]},
    "login": {"public": True},
    "network": {
        "cidr": "172.16.0.0/20",
        "gpu_cidr": "10.0.0.0/17",
        "second_cidr": "10.1.0.0/20",
        "services_cidr": "10.128.0.0/20",
        "admin_cidrs": ["203.0.113.7/32"],
        "existing": {"network": "net", "subnetwork": "sub"},
    },
    "nodesets": {"cpu": {"count": 2}, "gpu": {"machine_type": "n1-standard-4", "gpus": {"type": "t4", "count": 1}}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
}
MANAGED: Cluster = {
    **CLOUD,
    "monitoring": {"web": {"user": "grafana"}},
    "controller": {"disk": {"size_gb": 250}},
    "login": {"public": True, "disk": {"size_gb": 250}},
    "storage": {"lustre": {"kind": "managed"}, "filestore": {"mount": "/home"}},
}
SHEBANG = "#!/bin/sh\nexit 0\n"
HASH = "0" * 64
URL = "https://example.org/a.sh"
_REPLACE, _REFUSED, _NOTHING = Effect.REPLACE, Effect.REFUSED, Effect.NOTHING


def provision(**values: str) -> Any:
    return at("image", provision=[{"name": "ours", **values}])


def lustre(*path: str, effect: Effect = _REFUSED, **values: Any) -> Sample:
    return (".".join(("storage.lustre", *path, *values)), at("storage", "lustre", *path, **values), effect)


def provisioned(server: str, part: str, **value: int) -> Any:
    """Disks that have what is paid for, on servers that take them."""
    kind = {"iops": {"type": "pd-extreme", "size_gb": 3500}, "mbps": {"type": "hyperdisk-throughput", "size_gb": 3500}}

    def change(cluster: Cluster) -> None:
        at("storage", "lustre", server, machine_type="n2-standard-64")(cluster)
        at("storage", "lustre", server, part, **kind[next(iter(value))], **value)(cluster)

    return change


SAMPLES: list[Sample] = [
    ("platform", lambda c: c.update(platform="local", **dict.fromkeys(("gcp", "storage", "image", "login", "network"))),
     _REFUSED),
    ("image.base", lambda c: [at(image={"base": "ubuntu-2404"})(c), gone("storage", "lustre")(c)], _REFUSED),
    ("slurm.version", at("slurm", version="24.11"), _REFUSED),
    ("slurm.slurmrestd", at("slurm", slurmrestd=True), Effect.RESTART),
    ("slurm.pam_slurm_adopt", at("slurm", pam_slurm_adopt=True), _NOTHING),
    ("gcp.project", at("gcp", project="other-project"), _REFUSED),
    ("gcp.zone", at("gcp", zone="us-central1-b"), _REFUSED),
    ("network.gpu_cidr", at("network", gpu_cidr="10.64.0.0/17"), _REFUSED),
    ("network.second_cidr", at("network", second_cidr="10.66.0.0/20"), _REFUSED),
    ("network.services_cidr", at("network", services_cidr="10.65.0.0/20"), _REFUSED),
    ("network.existing", gone("network", "existing"), _REFUSED),
    ("network.existing.network", at("network", "existing", network="other"), _REFUSED),
    ("network.existing.subnetwork", at("network", "existing", subnetwork="other"), _REFUSED),
    ("network.nat", at("network", nat=False), _NOTHING),
    ("network.admin_cidrs", at("network", admin_cidrs=["198.51.100.0/24"]), _NOTHING),
    ("storage.lustre", gone("storage", "lustre"), _REFUSED),
    lustre(mount="/work"),
    lustre(fsname="other"),
    lustre(image="projects/ddn-public/global/images/family/exascaler-cloud-6-2-rocky-linux-8-optimized-gcp"),
    lustre("mgs", machine_type="n2-standard-16", effect=_REPLACE),
    lustre("mds", machine_type="n2-standard-16", effect=_REPLACE),
    lustre("oss", machine_type="n2-standard-32", effect=_REPLACE),
    lustre("mds", count=2, effect=_NOTHING),
    lustre("oss", count=4, effect=_NOTHING),
    lustre("oss", count=2),
    *(
        (".".join(("storage.lustre", *place, *values)), at("storage", "lustre", *place, **values), _REFUSED)
        for place in (("mgs", "mgt"), ("mgs", "mnt"), ("mds", "mdt"), ("oss", "ost"))
        for values in ({"type": "pd-balanced"}, {"size_gb": 100}, {"count": 2})
    ),
    *(
        lustre(*place, size_gb=4000, effect=_NOTHING)
        for place in (("mgs", "mgt"), ("mgs", "mnt"), ("mds", "mdt"), ("oss", "ost"))
    ),
    *(
        (f"storage.lustre.{'.'.join(place)}.{key}", provisioned(*place, **{key: value}), effect)
        for place in (("mgs", "mgt"), ("mgs", "mnt"), ("mds", "mdt"), ("oss", "ost"))
        for key, value, effect in (("iops", 20_000, _REFUSED), ("mbps", 400, _NOTHING))
    ),
    ("storage.buckets.*", lambda c: c["storage"]["buckets"].append({"name": "data-three", "mount": "/3"}), _NOTHING),
    ("storage.buckets.*", gone("storage", "buckets", "data-two"), _NOTHING),
    ("storage.buckets.*.mount", at("storage", "buckets", "data-one", mount="/other"), _NOTHING),
    ("storage.buckets.*.read_only", at("storage", "buckets", "data-one", read_only=True), _NOTHING),
    ("storage.buckets.*.cache", at("storage", "buckets", "data-one", cache=False), _NOTHING),
    ("storage.filestore", at("storage", filestore={"mount": "/share"}), _NOTHING),
    ("storage.filestore", at("storage", filestore={"mount": "/home"}), _REFUSED),
    ("storage.lustre.existing", at("storage", "lustre", existing="10.0.0.9"), _REFUSED),
    ("storage.nfs", at("storage", nfs=[{"server": "10.0.0.9", "path": "/all", "mount": "/data"}]), _NOTHING),
    ("storage.nfs", at("storage", nfs=[{"server": "10.0.0.9", "path": "/all", "mount": "/home"}]), _REFUSED),
    ("image.bake", at("image", bake=False), _REPLACE),
    ("image.recipe", at("image", recipe="2025-01"), _REPLACE),
    ("image.recipe", lambda c: [at(image={"name": "a"})(c), at("image", recipe="2025-01")(c)], _NOTHING),
    ("image.snapshot", at("image", snapshot="20261115T000000Z"), _REPLACE),
    ("image.name", at(image={"name": "a3mega-0123456789ab"}), _REPLACE),
    ("image.packages", at("image", packages=["podman"]), _REPLACE),
    ("monitoring", at(monitoring={}), _REPLACE),
    ("image.provision.*", gone("image", "provision", "ours"), _REPLACE),
    ("image.provision.*.text", provision(text=SHEBANG), _REPLACE),
    ("image.provision.*.file", provision(file="README.md"), _REPLACE),
    ("image.provision.*.url", provision(url=URL, sha256=HASH), _REPLACE),
    ("image.provision.*.sha256", provision(url=URL, sha256=HASH), _REPLACE),
    ("image.builder.machine_type", at("image", "builder", machine_type="c2-standard-4"), _NOTHING),
    ("image.builder.size_gb", at("image", "builder", size_gb=100), _REPLACE),
    ("image.builder.minutes", at("image", "builder", minutes=60), _NOTHING),
    ("controller.machine_type", at("controller", machine_type="c2-standard-4"), _REPLACE),
    ("controller.disk.type", at("controller", "disk", type="pd-balanced"), _REPLACE),
    ("controller.disk.size_gb", at("controller", "disk", size_gb=300), _NOTHING),
    ("controller.capacity", at("controller", capacity={"spot": {}}), _REPLACE),
    ("controller.state_disk.type", at("controller", "state_disk", type="pd-balanced"), _REFUSED),
    ("controller.state_disk.size_gb", at("controller", "state_disk", size_gb=200), _NOTHING),
    ("controller.state_disk.size_gb", at("controller", "state_disk", size_gb=50), _REFUSED),
    ("controller.failover", at("controller", **IN_TWO_ZONES), _REFUSED),
    ("controller.failover_zone", at("controller", **IN_TWO_ZONES), _REFUSED),
    ("controller.failover_mode", at("controller", failover_mode="advise"), _NOTHING),
    ("login.disk.type", at("login", "disk", type="pd-ssd"), _REPLACE),
    ("login.disk.size_gb", at("login", "disk", size_gb=300), _NOTHING),
    ("login.capacity", at("login", capacity={"spot": {}}), _REPLACE),
    ("login.public", lambda c: [at("login", public=False)(c), at("network", admin_cidrs=[])(c)], _NOTHING),
    ("nodesets.*.disk.type", at("nodesets", "cpu", "disk", type="pd-balanced"), _REPLACE),
    ("nodesets.*.disk.size_gb", at("nodesets", "cpu", "disk", size_gb=300), _REPLACE),
    ("nodesets.*.capacity", at("nodesets", "cpu", capacity={"spot": {}}), _REPLACE),
    ("nodesets.*.capacity", at("nodesets", "cpu", capacity={"on_demand": {}}), _NOTHING),
    ("nodesets.*.capacity", at("nodesets", "cpu", capacity={"reservation": {"name": "r", "placement_policy": "p"}}),
     _REPLACE),
    ("nodesets.*.disk.type", at("nodesets", "cpu", "disk", type="pd-ssd"), _NOTHING),
    ("controller.disk.size_gb", at("controller", "disk", size_gb=200), _NOTHING),
    ("login.capacity", at("login", capacity={"on_demand": {}}), _NOTHING),
    ("nodesets.*", at("nodesets", more={"machine_type": "n1-standard-1", "gpus": {"type": "t4", "count": 1}}),
     Effect.RESTART),
    ("nodesets.*", at("nodesets", a3={"machine_type": "a3-megagpu-8g"}), _REPLACE),
    ("nodesets.*", gone("nodesets", "gpu"), _REPLACE),
    ("nodesets.*.gpus.type", at("nodesets", "gpu", "gpus", type="v100"), _REPLACE),
    ("customize", at(customize=[{"type": "gcp:compute/disk:Disk", "set": {"description": "x"}}]), _REPLACE),
    ("nodesets.*.gpus", at("nodesets", "cpu", machine_type="n1-standard-1", gpus={"type": "t4", "count": 1}), _REPLACE),
]  # fmt: skip
_MACHINE = ("monitoring", "machine")
APART: Cluster = {**CLOUD, "monitoring": {"machine": {"disk": {"size_gb": 250}}}}
"""A cluster whose Prometheus has a machine of its own."""
APART_SAMPLES: list[Sample] = [
    ("monitoring.machine.machine_type", at(*_MACHINE, machine_type="n2-standard-8"), _REPLACE),
    ("monitoring.machine.disk.type", at(*_MACHINE, "disk", type="pd-ssd"), _REPLACE),
    ("monitoring.machine.disk.size_gb", at(*_MACHINE, "disk", size_gb=300), _NOTHING),
    ("monitoring.machine.disk.size_gb", at(*_MACHINE, "disk", size_gb=220), _REFUSED),
]
MANAGED_SAMPLES: list[Sample] = [
    ("monitoring.ops_agent", at("monitoring", ops_agent=True), _NOTHING),
    ("monitoring.web.cidrs", at("monitoring", "web", cidrs=["10.0.0.0/8"]), _NOTHING),
    ("controller.disk.size_gb", at("controller", "disk", size_gb=220), _REFUSED),
    ("login.disk.size_gb", at("login", "disk", size_gb=220), _REFUSED),
    ("storage.buckets.*", at("storage", buckets=[{"name": "first", "mount": "/gcs"}]), _REPLACE),
    ("storage.lustre.kind", at("storage", lustre={"kind": "exascaler"}), _REFUSED),
    ("storage.lustre.size_gib", at("storage", "lustre", size_gib=72000), _NOTHING),
    ("storage.lustre.size_gib", at("storage", "lustre", size_gib=18000), _REFUSED),
    lustre(throughput=1000),
    lustre(fsname="other"),
    ("storage.filestore", gone("storage", "filestore"), _REFUSED),
    ("storage.filestore.mount", at("storage", "filestore", mount="/share"), _REFUSED),
    ("storage.filestore.tier", at("storage", "filestore", tier="REGIONAL"), _REFUSED),
    ("storage.filestore.size_gb", at("storage", "filestore", size_gb=2048), _NOTHING),
]
