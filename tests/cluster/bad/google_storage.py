"""Google Cloud: file systems.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from typing import Any

from tests.cluster.bad.google_places import Changes, managed


def lustre(**keys: Any) -> Changes:
    return {"storage": {"lustre": {"kind": "exascaler", **keys}}}


def buckets(*mounts: str, **more: Any) -> Changes:
    listed = [{"name": f"data-{index}", "mount": mount} for index, mount in enumerate(mounts)]
    return {"storage": {"buckets": listed, **more}}


def ost(**keys: Any) -> Changes:
    return lustre(oss={"ost": {"type": "pd-ssd", "size_gb": 3500, **keys}})


CASES = {
    "an existing Lustre by its mount": (
        lustre(existing="10.1.1.1@tcp:/lustre"),
        "storage.lustre.existing",
        "10.1.1.1@tcp:/lustre",
        "a private IPv4 address",
        "without @tcp",
    ),
    "an existing Lustre at a public address": (
        lustre(existing="8.8.8.8"),
        "storage.lustre.existing",
        "8.8.8.8",
        "a private IPv4 address",
        "reach the server",
    ),
    "servers for a Lustre that exists": (
        lustre(existing="10.1.1.1", oss={"count": 4}),
        "storage.lustre.oss",
        "{count: 4}",
        "nothing with existing: 10.1.1.1",
        "remove it",
    ),
    "NFS over what Lustre has": (
        {
            "storage": {
                "lustre": {"kind": "exascaler", "existing": "10.1.1.1", "mount": "/data"},
                "nfs": [{"server": "10.1.1.2", "path": "/x", "mount": "/data/x"}],
            }
        },
        "storage.nfs[0].mount",
        "/data/x",
        "apart from all others",
        "elsewhere",
    ),
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
        "nothing on gcp: shared is for local machines",
        "remove it",
    ),
}
