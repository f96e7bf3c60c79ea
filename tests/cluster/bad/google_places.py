"""Google Cloud: project and zone, networks, file systems.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from typing import Any

from tests.clouds import A3

Changes = dict[str, Any]


def network(**keys: Any) -> Changes:
    return {"network": keys}


def lustre(**keys: Any) -> Changes:
    return {"storage": {"lustre": {"kind": "exascaler", **keys}}}


def managed(**keys: Any) -> Changes:
    return {"storage": {"lustre": {"kind": "managed", **keys}}}


def buckets(*mounts: str, **more: Any) -> Changes:
    listed = [{"name": f"data-{index}", "mount": mount} for index, mount in enumerate(mounts)]
    return {"storage": {"buckets": listed, **more}}


def ost(**keys: Any) -> Changes:
    return lustre(oss={"ost": {"type": "pd-ssd", "size_gb": 3500, **keys}})


PLACE = {
    "no zone": ({"gcp:zone": None}, "gcp:zone", "nothing", "us-central1-a", "pulumi config set gcp:zone us-central1-a"),
    "no project": ({"gcp:project": None}, "gcp:project", "nothing", "my-project", "add `gcp:project:"),
    "a project id with a typo": (
        {"gcp:project": "My_Project"},
        "gcp:project",
        "My_Project",
        "6 to 30 of a-z, 0-9 and -",
        "gcloud projects list",
    ),
    "a project number": ({"gcp:project": 123456789012}, "gcp:project", "123456789012", "text", "write it so"),
    "a zone that is a region": ({"gcp:zone": "us-central1"}, "gcp:zone", "us-central1", "us-central1-a", "letter"),
    "a zone without A3 Mega": (
        {"gcp:zone": "us-west4-b", "nodesets": {"a3": A3}},
        "gcp:zone",
        "us-west4-b",
        "a zone that has a3-megagpu-8g: us-central1-a, us-central1-b",
        "cluster/catalog/zones.py",
    ),
    "a zone without T4": (
        {
            "gcp:zone": "us-central1-d",
            "nodesets": {"gpu": {"machine_type": "n1-standard-4", "gpus": {"type": "t4", "count": 1}}},
        },
        "gcp:zone",
        "us-central1-d",
        "a zone that has t4: us-central1-a",
        "accelerator-types list --filter zone:us-central1-d",
    ),
    "a region that is not the zone's": (
        {"gcp:region": "europe-west4"},
        "gcp:region",
        "europe-west4",
        "us-central1",
        "the zone says the region",
    ),
    "project and zone within the cluster": (
        {"gcp": {"zone": "us-central1-a"}},
        "gcp",
        "us-central1-a",
        "gcp:project and gcp:zone beside hpc:cluster",
        "under `config:`",
    ),
}

NETWORKS = {
    "machines and GPUs in one network": (
        {**network(cidr="10.0.0.0/20"), "nodesets": {"a3": A3}},
        "network.cidr",
        "10.0.0.0/20",
        "10.0.0.0/17 is the GPUs' (gpu_cidr)",
        "e.g. the default 172.16.0.0/20",
    ),
    "GPUs in the machines' network": (
        {**network(gpu_cidr="172.16.0.0/17"), "nodesets": {"a3": A3}},
        "network.gpu_cidr",
        "172.16.0.0/17",
        "172.16.0.0/20 is the machines' (cidr)",
        "e.g. the default 10.0.0.0/17",
    ),
    "services in the GPUs' network": (
        {**network(services_cidr="10.0.16.0/20"), **managed(), "nodesets": {"a3": A3}},
        "network.services_cidr",
        "10.0.16.0/20",
        "10.0.0.0/17 is the GPUs'",
        "e.g. the default 10.128.0.0/20",
    ),
    "services in the machines' network": (
        {**network(services_cidr="172.16.0.0/20"), "storage": {"filestore": {}}},
        "network.services_cidr",
        "172.16.0.0/20",
        "172.16.0.0/20 is the machines'",
        "e.g. the default 10.128.0.0/20",
    ),
    "more machines than addresses": (
        {**network(cidr="172.16.0.0/26"), "nodesets": {"cpu": {"count": 200}}},
        "network.cidr",
        "172.16.0.0/26: 200 nodes, for 28 addresses",
        "e.g. 172.16.0.0/20",
        "widen it",
    ),
    "more GPU nodes than addresses": (
        {**network(gpu_cidr="10.0.0.0/26"), "nodesets": {"a3": {**A3, "count": 5}}},
        "network.gpu_cidr",
        "10.0.0.0/26",
        "whose eighth holds 5 nodes and 4 addresses of Google's",
        "widen it",
    ),
    "a network that has no eight parts": (
        network(gpu_cidr="10.0.0.0/30"),
        "network.gpu_cidr",
        "10.0.0.0/30",
        "/26 or larger",
        "widen it",
    ),
    "too few addresses for services": (
        {**network(services_cidr="10.128.0.0/26"), **managed()},
        "network.services_cidr",
        "10.128.0.0/26",
        "/22 or larger",
        "widen it",
    ),
    "the whole world": (
        {**network(admin_cidrs=["0.0.0.0/0"]), "login": {"public": True}},
        "network.admin_cidrs[0]",
        "0.0.0.0/0",
        "203.0.113.7/32",
        "SSH is never open to the world",
    ),
    "a public address for nobody": (
        {"login": {"public": True}},
        "login.public",
        "nobody in network.admin_cidrs",
        "[203.0.113.7/32]",
        "say who may reach it",
    ),
    "administrators of no public address": (
        network(admin_cidrs=["203.0.113.7/32"]),
        "network.admin_cidrs",
        "203.0.113.7/32",
        "which no machine has",
        "login: {public: true}",
    ),
    "a public login machine that is not there": (
        {**network(admin_cidrs=["203.0.113.7/32"]), "login": {"count": 0, "public": True}},
        "login.public",
        "with no login machine",
        "`on: controller`",
        "raise login.count",
    ),
    "packages without a way out": (network(nat=False), "network.nat", "false", "where machines install", "remove it"),
    "a network that is an address": (
        network(existing={"network": "https://example.org", "subnetwork": "hpc"}),
        "network.existing.network",
        "https://example.org",
        "shared-vpc",
        "gcloud compute networks list",
    ),
}

STORAGE = {
    "two mounts of one EXAScaler": (
        lustre(mount=["/lustre", "/home"]),
        "storage.lustre.mount",
        "[/lustre, /home]",
        "mounted at one place",
        "/home/data",
    ),
    "two EXAScaler file systems": (
        {"storage": {"lustre": [{"kind": "exascaler"}, {"kind": "exascaler", "mount": "/more"}]}},
        "storage.lustre",
        "{kind: exascaler}",
        "one Lustre file system",
        "keep one",
    ),
    "a kind that is none": (
        {"storage": {"lustre": {"kind": "exascalar"}}},
        "storage.lustre.kind",
        "exascalar",
        "exascaler, managed",
        "write exascaler",
    ),
    "a fsname of nine letters": (lustre(fsname="exacloud9"), "storage.lustre.fsname", "exacloud9", "1 to 8", "shorten"),
    "an unknown disk type": (ost(type="pd-sdd"), "storage.lustre.oss.ost.type", "pd-sdd", "pd-ssd", "write pd-ssd"),
    "an OSS disk beyond all limits": (
        ost(size_gb=70_000),
        "storage.lustre.oss.ost.size_gb",
        "70000",
        "at most 65536",
        "lower it",
    ),
    "an OSS disk beyond its type's limit": (
        ost(type="hyperdisk-throughput", size_gb=40_000),
        "storage.lustre.oss.ost.size_gb",
        "40000, of hyperdisk-throughput",
        "2048 to 32768 GB",
        "correct the size, or take another type",
    ),
    "a disk that the server does not take": (
        ost(type="hyperdisk-balanced"),
        "storage.lustre.oss.ost.type",
        "hyperdisk-balanced, of n2-standard-16",
        "pd-ssd",
        "another machine type",
    ),
    "a disk for which the server is too small": (
        ost(type="pd-extreme"),
        "storage.lustre.oss.ost.type",
        "pd-extreme, of n2-standard-16",
        "pd-extreme needs 64 vCPUs",
        "another machine type",
    ),
    "bandwidth of a disk that has what its size gives": (
        ost(mbps=400),
        "storage.lustre.oss.ost.mbps",
        "400, of pd-ssd",
        "mbps of hyperdisk-balanced, hyperdisk-throughput",
        "remove it",
    ),
    "more bandwidth than a disk can have": (
        ost(type="hyperdisk-throughput", mbps=4000),
        "storage.lustre.oss.ost.mbps",
        "4000",
        "10 to 600",
        "correct it",
    ),
    "servers on rehearsal machines": (
        lustre(oss={"machine_type": "local-2c"}),
        "storage.lustre.oss.machine_type",
        "local-2c",
        "a machine type of gcp",
        "write ",
    ),
    "an image of servers that is none": (
        lustre(image="exascaler"),
        "storage.lustre.image",
        "exascaler",
        "global/images/family/NAME",
        "Marketplace",
    ),
    "servers of a managed file system": (
        managed(oss={"count": 4}),
        "storage.lustre.oss",
        "{count: 4}",
        "nothing with kind: managed; oss is for kind: exascaler",
        "remove it",
    ),
    "the size of a file system of servers": (
        lustre(size_gib=18_000),
        "storage.lustre.size_gib",
        "18000",
        "nothing with kind: exascaler",
        "write `kind: managed`",
    ),
    "a throughput that is not sold": (
        managed(throughput=600),
        "storage.lustre.throughput",
        "600",
        "125, 250, 500, 1000",
        "take one",
    ),
    "a size that is not sold at that throughput": (
        managed(size_gib=10_000),
        "storage.lustre.size_gib",
        "10000, at 500 MB/s",
        "18000 to 1908000 in steps of 18000",
        "write 18000",
    ),
    "no Lustre client for the kernel": (
        {**lustre(), "image": {"base": "ubuntu-2404"}},
        "image.base",
        "ubuntu-2404, with exascaler Lustre",
        "ubuntu-2204",
        "write `base: ubuntu-2204`",
    ),
    "a small Filestore": (
        {"storage": {"filestore": {"tier": "BASIC_SSD", "size_gb": 1024}}},
        "storage.filestore.size_gb",
        "1024, of tier BASIC_SSD",
        "2560 to",
        "write 2560",
    ),
    "a bucket over /home": (
        buckets("/home"),
        "storage.buckets[0].mount",
        "/home",
        "apart from /home, which need",
        "e.g. /gcs",
    ),
    "a bucket over /opt/apps": (
        buckets("/opt/apps"),
        "storage.buckets[0].mount",
        "/opt/apps",
        "apart from /opt/apps",
        "elsewhere",
    ),
    "a file system around /opt/apps": (lustre(mount="/opt"), "storage.lustre.mount", "/opt", "/opt/apps", "/lustre"),
    "a bucket over local SSDs": (
        buckets("/mnt/localssd"),
        "storage.buckets[0].mount",
        "/mnt/localssd",
        "local SSDs",
        "elsewhere",
    ),
    "two buckets at one place": (
        buckets("/gcs", "/gcs"),
        "storage.buckets[1].mount",
        "/gcs",
        "/gcs is bucket data-0's",
        "mount it elsewhere",
    ),
    "a bucket below another": (
        buckets("/gcs", "/gcs/more"),
        "storage.buckets[1].mount",
        "/gcs/more",
        "/gcs is bucket data-0's",
        "mount it elsewhere",
    ),
    "a bucket below Lustre": (
        buckets("/lustre/sets", lustre={"kind": "exascaler"}),
        "storage.buckets[0].mount",
        "/lustre/sets",
        "/lustre is Lustre's",
        "mount it elsewhere",
    ),
    "Lustre and Filestore at one place": (
        {"storage": {"lustre": {"kind": "exascaler", "mount": "/home"}, "filestore": {}}},
        "storage.filestore.mount",
        "/home",
        "/home is Lustre's",
        "mount it elsewhere",
    ),
    "a bucket twice": (
        {"storage": {"buckets": [{"name": "data", "mount": "/a"}, {"name": "data", "mount": "/b"}]}},
        "storage.buckets[1].name",
        "data",
        "each bucket once",
        "remove one",
    ),
    "a bucket by its address": (
        {"storage": {"buckets": [{"name": "gs://data", "mount": "/a"}]}},
        "storage.buckets[0].name",
        "gs://data",
        "my-datasets",
        "without gs://",
    ),
    "folders of a rehearsal": (
        {"storage": {"shared": ["/home"]}},
        "storage.shared",
        "[/home]",
        "nothing on gcp: shared is for the rehearsal",
        "remove it",
    ),
}
CASES = PLACE | NETWORKS | STORAGE
