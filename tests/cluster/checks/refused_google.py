"""Stacks on Google Cloud that are refused.

Each case: what is replaced in a small cluster, and words of its error, `where | given | allowed | to do`.
"""

from typing import Any

from tests.clouds import A3
from tests.cluster.stacks import Changes


def network(**keys: Any) -> Changes:
    return {"network": keys}


def managed(**keys: Any) -> Changes:
    return {"storage": {"lustre": {"kind": "managed", **keys}}}


PLACE = {
    "no zone": ({"gcp:zone": None}, "gcp:zone | nothing | us-central1-a | pulumi config set gcp:zone us-central1-a"),
    "no project": ({"gcp:project": None}, "gcp:project | nothing | my-project | add `gcp:project:"),
    "a project id with a typo": (
        {"gcp:project": "My_Project"},
        "gcp:project | My_Project | 6 to 30 of a-z, 0-9 and - | gcloud projects list",
    ),
    "a zone that is a region": ({"gcp:zone": "us-central1"}, "gcp:zone | us-central1 | us-central1-a | letter"),
    "a region that is not the zone's": (
        {"gcp:region": "europe-west4"},
        "gcp:region | europe-west4 | us-central1 | the zone says the region",
    ),
    "project and zone within the cluster": (
        {"gcp": {"zone": "us-central1-a"}},
        "gcp | us-central1-a | gcp:project and gcp:zone beside hpc:cluster | under `config:`",
    ),
}

NETWORKS = {
    "machines and GPUs in one network": (
        {**network(cidr="10.0.0.0/20"), "nodesets": {"a3": A3}},
        "network.cidr | 10.0.0.0/20 | 10.0.0.0/17 is the GPUs' (gpu_cidr) | e.g. the default 172.16.0.0/20",
    ),
    "GPUs in the machines' network": (
        {**network(gpu_cidr="172.16.0.0/17"), "nodesets": {"a3": A3}},
        ("network.gpu_cidr | 172.16.0.0/17 | 172.16.0.0/20 is the machines' (cidr) | e.g. the default 10.0.0.0/17"),
    ),
    "services in the GPUs' network": (
        {**network(services_cidr="10.0.16.0/20"), **managed(), "nodesets": {"a3": A3}},
        "network.services_cidr | 10.0.16.0/20 | 10.0.0.0/17 is the GPUs' | e.g. the default 10.128.0.0/20",
    ),
    "services in the machines' network": (
        {**network(services_cidr="172.16.0.0/20"), "storage": {"filestore": {}}},
        ("network.services_cidr | 172.16.0.0/20 | 172.16.0.0/20 is the machines' | e.g. the default 10.128.0.0/20"),
    ),
    "more machines than addresses": (
        {**network(cidr="172.16.0.0/26"), "nodesets": {"cpu": {"count": 200}}},
        "network.cidr | 172.16.0.0/26: 200 nodes, for 28 addresses | e.g. 172.16.0.0/20 | widen it",
    ),
    "more GPU nodes than addresses": (
        {**network(gpu_cidr="10.0.0.0/26"), "nodesets": {"a3": {**A3, "count": 5}}},
        "network.gpu_cidr | 10.0.0.0/26 | whose eighth holds 5 nodes and 4 addresses of Google's | widen it",
    ),
    "a network that has no eight parts": (
        network(gpu_cidr="10.0.0.0/30"),
        "network.gpu_cidr | 10.0.0.0/30 | /26 or larger | widen it",
    ),
    "too few addresses for services": (
        {**network(services_cidr="10.128.0.0/26"), **managed()},
        "network.services_cidr | 10.128.0.0/26 | /22 or larger | widen it",
    ),
    "the whole world": (
        {**network(admin_cidrs=["0.0.0.0/0"]), "login": {"public": True}},
        "network.admin_cidrs[0] | 0.0.0.0/0 | 203.0.113.7/32 | SSH is never open to the world",
    ),
    "a public address for nobody": (
        {"login": {"public": True}},
        "login.public | nobody in network.admin_cidrs | [203.0.113.7/32] | say who may reach it",
    ),
    "administrators of no public address": (
        network(admin_cidrs=["203.0.113.7/32"]),
        "network.admin_cidrs | 203.0.113.7/32 | which no machine has | login: {public: true}",
    ),
    "a public login machine that is not there": (
        {**network(admin_cidrs=["203.0.113.7/32"]), "login": {"count": 0, "public": True}},
        "login.public | with no login machine | `on: controller` | raise login.count",
    ),
    "packages without a way out": (network(nat=False), "network.nat | false | where machines install | remove it"),
    "a network that is an address": (
        network(existing={"network": "https://example.org", "subnetwork": "hpc"}),
        "network.existing.network | https://example.org | shared-vpc | gcloud compute networks list",
    ),
}


CLOSE = {"placement": {"max_distance": 2}}
ELSEWHERE = "projects/other-project/regions/us-central1/resourcePolicies/tight"


def a3(capacity: Any = None, **keys: Any) -> Changes:
    return {"nodesets": {"a3": {**A3, **({"capacity": capacity} if capacity else {}), **keys}}}


def cpu(capacity: Any = None, **keys: Any) -> Changes:
    return {"nodesets": {"cpu": {**({"capacity": capacity} if capacity else {}), **keys}}}


CAPACITY = {
    "a reservation with placement": (
        a3({"reservation": "mine", **CLOSE}),
        (
            "nodesets.a3.capacity | {reservation: mine, placement: {max_distance: 2}} | "
            "placement within on_demand or spot | a reservation brings its own"
        ),
    ),
    "a placement policy beside a reservation": (
        a3({"reservation": "mine", "placement_policy": "tight"}),
        (
            "nodesets.a3.capacity | {reservation: mine, placement_policy: tight} | "
            "placement_policy within reservation | the reservation's own"
        ),
    ),
    "a placement policy of spot machines": (
        a3({"spot": {}, "placement_policy": "tight"}),
        (
            "nodesets.a3.capacity | {spot: {}, placement_policy: tight} | placement_policy within reservation | "
            "`placement` keeps machines close without"
        ),
    ),
    "a placement in a reservation": (
        a3({"reservation": {"name": "mine", **CLOSE}}),
        (
            "nodesets.a3.capacity.reservation.placement | placement: {max_distance: 2} | "
            "the keys name, placement_policy | write `placement_policy:`"
        ),
    ),
    "a placement policy that is no name": (
        a3({"reservation": {"name": "mine", "placement_policy": "projects/my-project/tight"}}),
        (
            "nodesets.a3.capacity.reservation.placement_policy | projects/my-project/tight | "
            "projects/PROJECT/regions/REGION/resourcePolicies/NAME | gcloud compute resource-policies list"
        ),
    ),
    "a placement policy of another project": (
        a3({"reservation": {"name": "mine", "placement_policy": ELSEWHERE}}),
        (
            f"nodesets.a3.capacity.reservation.placement_policy | {ELSEWHERE} | "
            "a policy of the stack's own project and region: "
            "projects/my-project/regions/us-central1/resourcePolicies/NAME | "
            "create one there"
        ),
    ),
    "spot machines from a reservation": (
        a3({"spot": {}, "reservation": "mine"}),
        ("nodesets.a3.capacity | {spot: {}, reservation: mine} | exactly one of | keep one of spot and reservation"),
    ),
    "a way by a word that is none": (
        cpu("spto"),
        "nodesets.cpu.capacity | spto | on_demand, spot or flex | write spot",
    ),
    "no way at all": (
        {"nodesets": {"cpu": {"capacity": []}}},
        "nodesets.cpu.capacity | [] | 1 to 10 ways | remove `capacity`",
    ),
    "several ways for nodes that stay": (
        cpu(["spot", "on_demand"]),
        "nodesets.cpu.capacity | [{spot: {}}, {on_demand: {}}] | one way | keep one of them",
    ),
    "capacity that says nothing": (cpu({"spot": None}), "nodesets.cpu.capacity | {spot: null} | exactly one | name"),
    "flex with placement": (
        a3({"flex": CLOSE}),
        "nodesets.a3.capacity.flex.placement | placement | max_run | remove it",
    ),
    "placement of machines that have none": (
        cpu({"on_demand": CLOSE}, machine_type="e2-standard-4"),
        ("nodesets.cpu.capacity.on_demand.placement | on e2-standard-4 | other than e2, n1 | another machine type"),
    ),
    "flex of a family that it does not give": (
        cpu({"flex": {}}),
        "nodesets.cpu.capacity.flex | flex on n2-standard-2 | accelerator-optimized machines | on_demand",
    ),
    "flex for eight days": (
        a3({"flex": {"max_run": "8-00:00:00"}}),
        "nodesets.a3.capacity.flex.max_run | 8-00:00:00 | ten minutes to seven days | shorten it",
    ),
    "flex for ever": (
        a3({"flex": {"max_run": "INFINITE"}}),
        "nodesets.a3.capacity.flex.max_run | INFINITE | seven days | shorten it",
    ),
    "an end of a calendar that is no time": (
        a3({"calendar": {"name": "my-week", "ends": "2026-12-01"}}),
        (
            "nodesets.a3.capacity.calendar.ends | 2026-12-01 | a time in UTC, YYYYMMDDTHHMMSSZ | "
            "future-reservations describe"
        ),
    ),
    "a calendar without GPUs": (
        cpu({"calendar": "my-week"}),
        "nodesets.cpu.capacity.calendar | my-week for n2-standard-2 | A3 machines | on_demand",
    ),
    "a reservation that is no name": (
        a3({"reservation": "projects/p/mine"}),
        (
            "nodesets.a3.capacity.reservation | projects/p/mine | projects/PROJECT/reservations/NAME | "
            "gcloud compute reservations list"
        ),
    ),
    "a controller from a reservation": (
        {"controller": {"capacity": {"reservation": "mine"}}},
        "controller.capacity.reservation | reservation: mine | on_demand, spot | remove it",
    ),
    "a controller close to itself": (
        {"controller": {"capacity": {"spot": CLOSE}}},
        "controller.capacity.spot.placement | {max_distance: 2} | placement of nodesets | remove it here",
    ),
    "spot and on demand": (
        {"login": {"capacity": {"spot": {}, "on_demand": {}}}},
        "login.capacity | {spot: {}, on_demand: {}} | exactly one of | keep one",
    ),
    "three T4": (
        cpu(machine_type="n1-standard-4", gpus={"type": "t4", "count": 3}),
        "nodesets.cpu.gpus.count | 3 | 1, 2, 4 | more nodes",
    ),
    "rehearsal machines": (
        cpu(machine_type="local-2c"),
        "nodesets.cpu.machine_type | local-2c | a machine type of gcp | write ",
    ),
    "addresses of nodes": (
        cpu(addresses="172.16.1.0/24"),
        "nodesets.cpu.addresses | 172.16.1.0/24 | nothing on gcp | remove it",
    ),
}


def image(**keys: Any) -> Changes:
    return {"image": keys}


ALONE = {
    f"{role} machines with GPUs": (
        {role: {"machine_type": "a3-megagpu-8g", "disk": {"type": "pd-ssd"}, **more}},
        f"{role}.machine_type | a3-megagpu-8g | without GPUs | make a nodeset",
    )
    for role, more in (("controller", {"state_disk": {"type": "pd-ssd"}}), ("login", {}))
}

DISKS = {
    "GPUs connected by GPUDirect-TCPX": (
        {"nodesets": {"gpu": {"machine_type": "a3-highgpu-8g"}}},
        (
            "nodesets.gpu.machine_type | a3-highgpu-8g, whose GPUs are connected by GPUDirect-TCPX | "
            "machine types with GPUs whose network this version sets up: a3-megagpu-8g, a3-ultragpu-8g, "
            "a4-highgpu-8g | "
            "write a3-megagpu-8g"
        ),
    ),
    "two fabrics": (
        {"nodesets": {"mega": {"machine_type": "a3-megagpu-8g"}, "ultra": {"machine_type": "a3-ultragpu-8g"}}},
        (
            "nodesets.ultra.machine_type | a3-ultragpu-8g, whose GPUs are connected by GPUDirect RDMA | "
            "one fabric in a cluster; another nodeset has GPUDirect-TCPXO | make a stack of their own"
        ),
    ),
    "a disk that A3 does not take": (
        a3(disk={"type": "pd-standard"}),
        (
            "nodesets.a3.disk.type | pd-standard, of a3-megagpu-8g | "
            "to boot from: pd-balanced, pd-ssd, hyperdisk-balanced | take one of these"
        ),
    ),
    "a disk that nothing boots from": (
        a3(disk={"type": "hyperdisk-throughput", "size_gb": 4096}),
        "nodesets.a3.disk.type | hyperdisk-throughput | to boot from | take one of these",
    ),
    "a boot disk smaller than the image": (
        a3(disk={"size_gb": 100}),
        "nodesets.a3.disk.size_gb | 100 | at least 200: image.builder.size_gb | write 200 or more",
    ),
    "a boot disk smaller than the system": (
        {**image(base="ubuntu-2404"), "login": {"disk": {"size_gb": 12}}},
        "login.disk.size_gb | 12 | at least 20: for the system | write 20 or more",
    ),
    "a state disk that the controller does not take": (
        {"controller": {"state_disk": {"type": "hyperdisk-balanced"}}},
        (
            "controller.state_disk.type | hyperdisk-balanced, of c2-standard-8 | pd-standard, pd-balanced, pd-ssd | "
            "take one of these"
        ),
    ),
}

IMAGES = {
    "an image family": (
        image(name="projects/my-project/global/images/family/a3mega"),
        "image.name | family/a3mega | one image | changes by itself",
    ),
    "a recipe that does not exist": (image(recipe="2026-12"), "image.recipe | 2026-12 | 2026-11, 2025-01 | 2026-11"),
    "a day that is none": (
        image(snapshot="20261301T000000Z"),
        "image.snapshot | 20261301T000000Z | YYYYMMDDTHHMMSSZ | write the day",
    ),
    "a day before there were snapshots": (
        image(snapshot="20230228T000000Z"),
        "image.snapshot | 20230228T000000Z | from 20230301T000000Z on | write the day",
    ),
    "a day that is still to come": (
        image(snapshot="20991231T000000Z"),
        "image.snapshot | 20991231T000000Z | a day that was | write an earlier day",
    ),
    "packages for an image that is there": (
        image(name="a3mega-0123456789ab", snapshot="20261115T000000Z"),
        "image.snapshot | 20261115T000000Z | nothing beside image.name | remove it",
    ),
    "an image that is there and baked": (
        image(name="a3mega-0123456789ab", bake=True),
        "image.bake | true | nothing beside image.name | remove `name`",
    ),
    "steps for an image that is there": (
        image(name="a3mega-0123456789ab", provision=[{"name": "ours", "text": "#!/bin/sh\n"}]),
        "image.provision | name: ours | is used as it is | remove it",
    ),
    "packages of one's own for an image that is there": (
        image(name="a3mega-0123456789ab", packages=["podman"]),
        "image.packages | [podman] | is used as it is | remove it",
    ),
    "a bake of what needs none": (
        image(base="ubuntu-2404", bake=True),
        "image.bake | true, of ubuntu-2404 | true of ubuntu-2204 | write `bake: false`",
    ),
    "a builder for no image": (
        image(base="ubuntu-2404", builder={"size_gb": 100}),
        "image.builder | {size_gb: 100} | where no image is made | remove it",
    ),
    "a builder of an N series": (
        image(builder={"machine_type": "n2-standard-8"}),
        "image.builder.machine_type | n2-standard-8 | open driver does not install | c2-standard-8",
    ),
    "a builder with GPUs": (
        image(builder={"machine_type": "a3-megagpu-8g"}),
        "image.builder.machine_type | a3-megagpu-8g | has no GPU | c2-standard-8",
    ),
    "a system of the rehearsal": (image(base="debian-12"), "image.base | debian-12 | on gcp:  | write one of these"),
    "a system that machines say they are": (
        image(presents_as="ubuntu-2204"),
        "image.presents_as | ubuntu-2204 | presents_as is for local machines | remove it",
    ),
}


def lustre(**keys: Any) -> Changes:
    return {"storage": {"lustre": {"kind": "exascaler", **keys}}}


def buckets(*mounts: str, **more: Any) -> Changes:
    listed = [{"name": f"data-{index}", "mount": mount} for index, mount in enumerate(mounts)]
    return {"storage": {"buckets": listed, **more}}


def ost(**keys: Any) -> Changes:
    return lustre(oss={"ost": {"type": "pd-ssd", "size_gb": 3500, **keys}})


STORAGE = {
    "an existing Lustre by its mount": (
        lustre(existing="10.1.1.1@tcp:/lustre"),
        "storage.lustre.existing | 10.1.1.1@tcp:/lustre | a private IPv4 address | without @tcp",
    ),
    "an existing Lustre at a public address": (
        lustre(existing="8.8.8.8"),
        "storage.lustre.existing | 8.8.8.8 | a private IPv4 address | reach the server",
    ),
    "servers for a Lustre that exists": (
        lustre(existing="10.1.1.1", oss={"count": 4}),
        "storage.lustre.oss | {count: 4} | nothing with existing: 10.1.1.1 | remove it",
    ),
    "NFS over what Lustre has": (
        {
            "storage": {
                "lustre": {"kind": "exascaler", "existing": "10.1.1.1", "mount": "/data"},
                "nfs": [{"server": "10.1.1.2", "path": "/x", "mount": "/data/x"}],
            }
        },
        "storage.nfs[0].mount | /data/x | apart from all others | elsewhere",
    ),
    "two mounts of one EXAScaler": (
        lustre(mount=["/lustre", "/home"]),
        "storage.lustre.mount | [/lustre, /home] | mounted at one place | /home/data",
    ),
    "two EXAScaler file systems": (
        {"storage": {"lustre": [{"kind": "exascaler"}, {"kind": "exascaler", "mount": "/more"}]}},
        "storage.lustre | {kind: exascaler} | one Lustre file system | keep one",
    ),
    "a kind that is none": (
        {"storage": {"lustre": {"kind": "exascalar"}}},
        "storage.lustre.kind | exascalar | exascaler, managed | write exascaler",
    ),
    "a fsname of nine letters": (lustre(fsname="exacloud9"), "storage.lustre.fsname | exacloud9 | 1 to 8 | shorten"),
    "an unknown disk type": (ost(type="pd-sdd"), "storage.lustre.oss.ost.type | pd-sdd | pd-ssd | write pd-ssd"),
    "an OSS disk beyond its type's limit": (
        ost(type="hyperdisk-throughput", size_gb=40_000),
        (
            "storage.lustre.oss.ost.size_gb | 40000, of hyperdisk-throughput | 2048 to 32768 GB | "
            "correct the size, or take another type"
        ),
    ),
    "a disk that the server does not take": (
        ost(type="hyperdisk-balanced"),
        "storage.lustre.oss.ost.type | hyperdisk-balanced, of n2-standard-16 | pd-ssd | another machine type",
    ),
    "a disk for which the server is too small": (
        ost(type="pd-extreme"),
        (
            "storage.lustre.oss.ost.type | pd-extreme, of n2-standard-16 | pd-extreme needs 64 vCPUs | "
            "another machine type"
        ),
    ),
    "bandwidth of a disk that has what its size gives": (
        ost(mbps=400),
        ("storage.lustre.oss.ost.mbps | 400, of pd-ssd | mbps of hyperdisk-balanced, hyperdisk-throughput | remove it"),
    ),
    "more bandwidth than a disk can have": (
        ost(type="hyperdisk-throughput", mbps=4000),
        "storage.lustre.oss.ost.mbps | 4000 | 10 to 600 | correct it",
    ),
    "servers on rehearsal machines": (
        lustre(oss={"machine_type": "local-2c"}),
        "storage.lustre.oss.machine_type | local-2c | a machine type of gcp | write ",
    ),
    "an image of servers that is none": (
        lustre(image="exascaler"),
        "storage.lustre.image | exascaler | global/images/family/NAME | Marketplace",
    ),
    "servers of a managed file system": (
        managed(oss={"count": 4}),
        "storage.lustre.oss | {count: 4} | nothing with kind: managed; oss is for kind: exascaler | remove it",
    ),
    "the size of a file system of servers": (
        lustre(size_gib=18_000),
        "storage.lustre.size_gib | 18000 | nothing with kind: exascaler | write `kind: managed`",
    ),
    "a throughput that is not sold": (
        managed(throughput=600),
        "storage.lustre.throughput | 600 | 125, 250, 500, 1000 | take one",
    ),
    "a size that is not sold at that throughput": (
        managed(size_gib=10_000),
        "storage.lustre.size_gib | 10000, at 500 MB/s | 18000 to 1908000 in steps of 18000 | write 18000",
    ),
    "no Lustre client for the kernel": (
        {**lustre(), "image": {"base": "ubuntu-2404"}},
        "image.base | ubuntu-2404, with exascaler Lustre | ubuntu-2204 | write `base: ubuntu-2204`",
    ),
    "a small Filestore": (
        {"storage": {"filestore": {"tier": "BASIC_SSD", "size_gb": 1024}}},
        "storage.filestore.size_gb | 1024, of tier BASIC_SSD | 2560 to | write 2560",
    ),
    "a bucket over /home": (
        buckets("/home"),
        "storage.buckets[0].mount | /home | apart from /home, which need | e.g. /gcs",
    ),
    "a file system around /opt/apps": (lustre(mount="/opt"), "storage.lustre.mount | /opt | /opt/apps | /lustre"),
    "a bucket over local SSDs": (
        buckets("/mnt/localssd"),
        "storage.buckets[0].mount | /mnt/localssd | local SSDs | elsewhere",
    ),
    "a bucket below another": (
        buckets("/gcs", "/gcs/more"),
        "storage.buckets[1].mount | /gcs/more | /gcs is bucket data-0's | mount it elsewhere",
    ),
    "a bucket below Lustre": (
        buckets("/lustre/sets", lustre={"kind": "exascaler"}),
        "storage.buckets[0].mount | /lustre/sets | /lustre is Lustre's | mount it elsewhere",
    ),
    "Lustre and Filestore at one place": (
        {"storage": {"lustre": {"kind": "exascaler", "mount": "/home"}, "filestore": {}}},
        "storage.filestore.mount | /home | /home is Lustre's | mount it elsewhere",
    ),
    "a bucket twice": (
        {"storage": {"buckets": [{"name": "data", "mount": "/a"}, {"name": "data", "mount": "/b"}]}},
        "storage.buckets[1].name | data | each bucket once | remove one",
    ),
    "a bucket by its address": (
        {"storage": {"buckets": [{"name": "gs://data", "mount": "/a"}]}},
        "storage.buckets[0].name | gs://data | my-datasets | without gs://",
    ),
    "folders of a rehearsal": (
        {"storage": {"shared": ["/home"]}},
        "storage.shared | [/home] | nothing on gcp: shared is for local machines | remove it",
    ),
}


LOCAL = {"platform": "local", "gcp:project": None, "gcp:zone": None}
ON_LOCAL = {
    f"{'.'.join(at)} on local": (
        {**LOCAL, **changes},
        f"{'.'.join(at)} | {given} | nothing on local: {at[-1]} is for Google Cloud | remove it here",
    )
    for at, given, changes in (
        (("storage", "lustre"), "{kind: exascaler}", {"storage": {"lustre": {"kind": "exascaler"}}}),
        (
            ("storage", "buckets"),
            "[{name: data, mount: /a}]",
            {"storage": {"buckets": [{"name": "data", "mount": "/a"}]}},
        ),
        (("network", "admin_cidrs"), "[203.0.113.7/32]", {"network": {"admin_cidrs": ["203.0.113.7/32"]}}),
        (("network", "nat"), "false", {"network": {"nat": False}}),
        (("image", "bake"), "true", {"image": {"bake": True}}),
        (("controller", "state_disk"), "{size_gb: 500}", {"controller": {"state_disk": {"size_gb": 500}}}),
        (
            ("customize",),
            "[{type: gcp:compute/instance:Instance, set: {description: x}}]",
            {"customize": [{"type": "gcp:compute/instance:Instance", "set": {"description": "x"}}]},
        ),
        (("login", "public"), "true", {"login": {"public": True}}),
        (("nodesets", "cpu", "disk"), "{size_gb: 300}", cpu(disk={"size_gb": 300})),
    )
}


INSTANCE = "gcp:compute/instance:Instance"


def change(**entry: Any) -> dict[str, Any]:
    return {"customize": [{"type": INSTANCE, **entry}]}


CUSTOMIZE = {
    "a type of another provider": (
        {"customize": [{"type": "aws:ec2/instance:Instance", "set": {"a": 1}}]},
        ("customize[0].type | aws:ec2/instance:Instance | a type of resource of Google Cloud | copy it from a preview"),
    ),
    **{
        f"a customized {name}": (
            change(set={name: "x"}),
            (
                f"customize[0].set.{name} | x | inputs other than account_id, address | "
                f"the cluster depends on the {name}"
            ),
        )
        for name in ("name", "project", "zone", "network_interfaces")
    },
    "a label of the program's": (
        change(set={"labels": {"team": "ml", "hpc-cluster": "other"}}),
        "customize[0].set.labels.hpc-cluster | other | keys of labels other than | the cluster depends on it",
    ),
    "no metadata at all": (
        change(set={"metadata": None}),
        ("customize[0].set.metadata | None | a mapping, since the cluster needs its own metadata | name single keys"),
    ),
    "nothing to set": (change(set={}), "customize[0].set | {} |  | "),
}


RXDM = {
    "rxdm on nodes that are no A3 Mega": (
        {
            "nodesets": {"a3": {"machine_type": "a3-megagpu-8g"}, "cpu": {"machine_type": "n2-standard-2"}},
            "slurm": {"rxdm": {"partitions": ["main"]}},
        },
        (
            "slurm.rxdm.partitions[0] | main, with cpu of n2-standard-2 | partitions of a3-megagpu-8g alone | "
            "a partition of their own"
        ),
    ),
}


CASES = PLACE | NETWORKS | CAPACITY | ALONE | DISKS | IMAGES | STORAGE | ON_LOCAL | CUSTOMIZE | RXDM
