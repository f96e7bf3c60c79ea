"""Stacks on Google Cloud that are refused.

Each case: what is replaced in a small cluster. tests/golden/refused has the errors.
"""

from typing import Any

from tests.clouds import A3
from tests.cluster.stacks import Changes


def network(**keys: Any) -> Changes:
    return {"network": keys}


def managed(**keys: Any) -> Changes:
    return {"storage": {"lustre": {"kind": "managed", **keys}}}


PLACE = {
    "no zone": {"gcp:zone": None},
    "no project": {"gcp:project": None},
    "a project id with a typo": {"gcp:project": "My_Project"},
    "a zone that is a region": {"gcp:zone": "us-central1"},
    "a region that is not the zone's": {"gcp:region": "europe-west4"},
    "project and zone within the cluster": {"gcp": {"zone": "us-central1-a"}},
}

NETWORKS = {
    "machines and GPUs in one network": {**network(cidr="10.0.0.0/20"), "nodesets": {"a3": A3}},
    "GPUs in the machines' network": {**network(gpu_cidr="172.16.0.0/17"), "nodesets": {"a3": A3}},
    "services in the GPUs' network": {**network(services_cidr="10.0.16.0/20"), **managed(), "nodesets": {"a3": A3}},
    "services in the machines' network": {**network(services_cidr="172.16.0.0/20"), "storage": {"filestore": {}}},
    "more machines than addresses": {**network(cidr="172.16.0.0/26"), "nodesets": {"cpu": {"count": 200}}},
    "more GPU nodes than addresses": {**network(gpu_cidr="10.0.0.0/26"), "nodesets": {"a3": {**A3, "count": 5}}},
    "a network that has no eight parts": network(gpu_cidr="10.0.0.0/30"),
    "too few addresses for services": {**network(services_cidr="10.128.0.0/26"), **managed()},
    "the whole world": {**network(admin_cidrs=["0.0.0.0/0"]), "login": {"public": True}},
    "a public address for nobody": {"login": {"public": True}},
    "administrators of no public address": network(admin_cidrs=["203.0.113.7/32"]),
    "a public login machine that is not there": {
        **network(admin_cidrs=["203.0.113.7/32"]),
        "login": {"count": 0, "public": True},
    },
    "packages without a way out": network(nat=False),
    "a network that is an address": network(existing={"network": "https://example.org", "subnetwork": "hpc"}),
}


CLOSE = {"placement": {"max_distance": 2}}
ELSEWHERE = "projects/other-project/regions/us-central1/resourcePolicies/tight"


def a3(capacity: Any = None, **keys: Any) -> Changes:
    return {"nodesets": {"a3": {**A3, **({"capacity": capacity} if capacity else {}), **keys}}}


def cpu(capacity: Any = None, **keys: Any) -> Changes:
    return {"nodesets": {"cpu": {**({"capacity": capacity} if capacity else {}), **keys}}}


CAPACITY = {
    "a reservation with placement": a3({"reservation": "mine", **CLOSE}),
    "a placement policy beside a reservation": a3({"reservation": "mine", "placement_policy": "tight"}),
    "a placement policy of spot machines": a3({"spot": {}, "placement_policy": "tight"}),
    "a placement in a reservation": a3({"reservation": {"name": "mine", **CLOSE}}),
    "a placement policy that is no name": a3(
        {"reservation": {"name": "mine", "placement_policy": "projects/my-project/tight"}}
    ),
    "a placement policy of another project": a3({"reservation": {"name": "mine", "placement_policy": ELSEWHERE}}),
    "spot machines from a reservation": a3({"spot": {}, "reservation": "mine"}),
    "a way by a word that is none": cpu("spto"),
    "no way at all": {"nodesets": {"cpu": {"capacity": []}}},
    "several ways for nodes that stay": cpu(["spot", "on_demand"]),
    "capacity that says nothing": cpu({"spot": None}),
    "flex with placement": a3({"flex": CLOSE}),
    "placement of machines that have none": cpu({"on_demand": CLOSE}, machine_type="e2-standard-4"),
    "flex of a family that it does not give": cpu({"flex": {}}),
    "flex for eight days": a3({"flex": {"max_run": "8-00:00:00"}}),
    "flex for ever": a3({"flex": {"max_run": "INFINITE"}}),
    "an end of a calendar that is no time": a3({"calendar": {"name": "my-week", "ends": "2026-12-01"}}),
    "a calendar without GPUs": cpu({"calendar": "my-week"}),
    "a reservation that is no name": a3({"reservation": "projects/p/mine"}),
    "a controller from a reservation": {"controller": {"capacity": {"reservation": "mine"}}},
    "a controller close to itself": {"controller": {"capacity": {"spot": CLOSE}}},
    "spot and on demand": {"login": {"capacity": {"spot": {}, "on_demand": {}}}},
    "three T4": cpu(machine_type="n1-standard-4", gpus={"type": "t4", "count": 3}),
    "rehearsal machines": cpu(machine_type="local-2c"),
    "addresses of nodes": cpu(addresses="172.16.1.0/24"),
}


def elastic(*ways: Any, max_time: str = "1-00:00:00", **keys: Any) -> Changes:
    """Elastic nodes that are asked for in these ways, for jobs of at most this time."""
    main = {"nodesets": ["a3"], "default": True, "max_time": max_time}
    return {**a3([*ways], count={"min": 2, "max": 16}, **keys), "partitions": {"main": main}}


HELD = {"flex": {"max_run": "2-00:00:00"}}
ELASTIC = {
    "a way twice": elastic({"reservation": "mine"}, "spot", {"spot": {}}),
    "as many spares as nodes": a3(count=2, spare=2),
    "a parameter of power saving for elastic nodes": {
        **elastic("spot"),
        "slurm": {"extra": {"suspendprogram": "/usr/local/sbin/off", "SuspendTimeout": 300}},
    },
    "elastic nodes that are paid for anyway": elastic("spot", {"calendar": "week"}),
    "flex start before another way": elastic(HELD, "spot"),
    "a minute more than flex start holds machines": elastic("spot", HELD, max_time="1-23:46:00"),
    "any time where flex start holds machines": elastic("spot", HELD, max_time="INFINITE"),
}


def image(**keys: Any) -> Changes:
    return {"image": keys}


ALONE = {
    f"{role} machines with GPUs": {role: {"machine_type": "a3-megagpu-8g", "disk": {"type": "pd-ssd"}, **more}}
    for role, more in (("controller", {"state_disk": {"type": "pd-ssd"}}), ("login", {}))
}

DISKS = {
    "GPUs connected by GPUDirect-TCPX": {"nodesets": {"gpu": {"machine_type": "a3-highgpu-8g"}}},
    "two fabrics": {
        "nodesets": {"mega": {"machine_type": "a3-megagpu-8g"}, "ultra": {"machine_type": "a3-ultragpu-8g"}}
    },
    "a disk that A3 does not take": a3(disk={"type": "pd-standard"}),
    "a disk that nothing boots from": a3(disk={"type": "hyperdisk-throughput", "size_gb": 4096}),
    "a boot disk smaller than the image": a3(disk={"size_gb": 100}),
    "metrics that do not fit the disk": {"monitoring": {"disk_gb": 300}},
    "metrics that do not fit the disk of their machine": {
        "monitoring": {"disk_gb": 281, "machine": {"disk": {"size_gb": 300}}},
        "controller": {"disk": {"size_gb": 1000}},
    },
    "a boot disk smaller than the system": {**image(base="ubuntu-2404"), "login": {"disk": {"size_gb": 12}}},
    "a state disk that the controller does not take": {"controller": {"state_disk": {"type": "hyperdisk-balanced"}}},
}

IMAGES = {
    "an image family": image(name="projects/my-project/global/images/family/a3mega"),
    "a recipe that does not exist": image(recipe="2026-12"),
    "a day that is none": image(snapshot="20261301T000000Z"),
    "a day before there were snapshots": image(snapshot="20230228T000000Z"),
    "a day that is still to come": image(snapshot="20991231T000000Z"),
    "packages for an image that is there": image(name="a3mega-0123456789ab", snapshot="20261115T000000Z"),
    "an image that is there and baked": image(name="a3mega-0123456789ab", bake=True),
    "steps for an image that is there": image(
        name="a3mega-0123456789ab", provision=[{"name": "ours", "text": "#!/bin/sh\n"}]
    ),
    "packages of one's own for an image that is there": image(name="a3mega-0123456789ab", packages=["podman"]),
    "a bake of what needs none": image(base="ubuntu-2404", bake=True),
    "a builder for no image": image(base="ubuntu-2404", builder={"size_gb": 100}),
    "a builder of an N series": image(builder={"machine_type": "n2-standard-8"}),
    "a builder with GPUs": image(builder={"machine_type": "a3-megagpu-8g"}),
    "a system of the rehearsal": image(base="debian-12"),
    "a system that machines say they are": image(presents_as="ubuntu-2204"),
}


def lustre(**keys: Any) -> Changes:
    return {"storage": {"lustre": {"kind": "exascaler", **keys}}}


def buckets(*mounts: str, **more: Any) -> Changes:
    listed = [{"name": f"data-{index}", "mount": mount} for index, mount in enumerate(mounts)]
    return {"storage": {"buckets": listed, **more}}


def ost(**keys: Any) -> Changes:
    return lustre(oss={"ost": {"type": "pd-ssd", "size_gb": 3500, **keys}})


STORAGE = {
    "an existing Lustre by its mount": lustre(existing="10.1.1.1@tcp:/lustre"),
    "an existing Lustre at a public address": lustre(existing="8.8.8.8"),
    "servers for a Lustre that exists": lustre(existing="10.1.1.1", oss={"count": 4}),
    "NFS over what Lustre has": {
        "storage": {
            "lustre": {"kind": "exascaler", "existing": "10.1.1.1", "mount": "/data"},
            "nfs": [{"server": "10.1.1.2", "path": "/x", "mount": "/data/x"}],
        }
    },
    "two mounts of one EXAScaler": lustre(mount=["/lustre", "/home"]),
    "two EXAScaler file systems": {
        "storage": {"lustre": [{"kind": "exascaler"}, {"kind": "exascaler", "mount": "/more"}]}
    },
    "a kind that is none": {"storage": {"lustre": {"kind": "exascalar"}}},
    "a fsname of nine letters": lustre(fsname="exacloud9"),
    "an unknown disk type": ost(type="pd-sdd"),
    "an OSS disk beyond its type's limit": ost(type="hyperdisk-throughput", size_gb=40_000),
    "a disk that the server does not take": ost(type="hyperdisk-balanced"),
    "a disk for which the server is too small": ost(type="pd-extreme"),
    "bandwidth of a disk that has what its size gives": ost(mbps=400),
    "more bandwidth than a disk can have": ost(type="hyperdisk-throughput", mbps=4000),
    "servers on rehearsal machines": lustre(oss={"machine_type": "local-2c"}),
    "an image of servers that is none": lustre(image="exascaler"),
    "servers of a managed file system": managed(oss={"count": 4}),
    "the size of a file system of servers": lustre(size_gib=18_000),
    "a throughput that is not sold": managed(throughput=600),
    "a size that is not sold at that throughput": managed(size_gib=10_000),
    "no Lustre client for the kernel": {**lustre(), "image": {"base": "ubuntu-2404"}},
    "a small Filestore": {"storage": {"filestore": {"tier": "BASIC_SSD", "size_gb": 1024}}},
    "a bucket over /home": buckets("/home"),
    "a file system around /opt/apps": lustre(mount="/opt"),
    "a bucket over local SSDs": buckets("/mnt/localssd"),
    "a bucket below another": buckets("/gcs", "/gcs/more"),
    "a bucket below Lustre": buckets("/lustre/sets", lustre={"kind": "exascaler"}),
    "Lustre and Filestore at one place": {
        "storage": {"lustre": {"kind": "exascaler", "mount": "/home"}, "filestore": {}}
    },
    "a bucket twice": {"storage": {"buckets": [{"name": "data", "mount": "/a"}, {"name": "data", "mount": "/b"}]}},
    "a bucket by its address": {"storage": {"buckets": [{"name": "gs://data", "mount": "/a"}]}},
    "folders of a rehearsal": {"storage": {"shared": ["/home"]}},
}


LOCAL = {"platform": "local", "gcp:project": None, "gcp:zone": None}
ON_LOCAL = {
    f"{field} on local": {**LOCAL, **changes}
    for field, changes in {
        "storage.lustre": {"storage": {"lustre": {"kind": "exascaler"}}},
        "storage.buckets": {"storage": {"buckets": [{"name": "data", "mount": "/a"}]}},
        "network.admin_cidrs": {"network": {"admin_cidrs": ["203.0.113.7/32"]}},
        "network.nat": {"network": {"nat": False}},
        "image.bake": {"image": {"bake": True}},
        "controller.state_disk": {"controller": {"state_disk": {"size_gb": 500}}},
        "customize": {"customize": [{"type": "gcp:compute/instance:Instance", "set": {"description": "x"}}]},
        "login.public": {"login": {"public": True}},
        "nodesets.cpu.disk": cpu(disk={"size_gb": 300}),
    }.items()
}


INSTANCE = "gcp:compute/instance:Instance"


def change(**entry: Any) -> dict[str, Any]:
    return {"customize": [{"type": INSTANCE, **entry}]}


CUSTOMIZE = {
    "a type of another provider": {"customize": [{"type": "aws:ec2/instance:Instance", "set": {"a": 1}}]},
    **{f"a customized {name}": change(set={name: "x"}) for name in ("name", "project", "zone", "network_interfaces")},
    "a label of the program's": change(set={"labels": {"team": "ml", "hpc-cluster": "other"}}),
    "no metadata at all": change(set={"metadata": None}),
    "nothing to set": change(set={}),
}


RXDM = {
    "rxdm on nodes that are no A3 Mega": {
        "nodesets": {"a3": {"machine_type": "a3-megagpu-8g"}, "cpu": {"machine_type": "n2-standard-2"}},
        "slurm": {"rxdm": {"partitions": ["main"]}},
    },
}


TWO_ZONES = {
    f"a controller in two zones, {case}": {
        "controller": {
            "machine_type": "n2-standard-8", "failover": True, "failover_zone": "us-central1-b", **changes,
        }
    }
    for case, changes in {
        "one of which is not given": {"failover_zone": None},
        "which are the same": {"failover_zone": "us-central1-a"},
        "of two regions": {"failover_zone": "us-east1-b"},
        "without failover": {"failover": False},
        "without regional disks": {"machine_type": "c2-standard-8"},
        "with a disk that is in one": {
            "machine_type": "n2-standard-80", "state_disk": {"type": "pd-extreme", "size_gb": 500}
        },
        "with a disk too small": {"state_disk": {"type": "pd-standard", "size_gb": 100}},
    }.items()
}  # fmt: skip


CASES = (
    PLACE | TWO_ZONES | NETWORKS | CAPACITY | ELASTIC | ALONE | DISKS | IMAGES | STORAGE | ON_LOCAL | CUSTOMIZE | RXDM
)
