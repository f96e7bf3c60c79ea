"""Bad input for Nebius: GPU clusters, file systems, disks, keys."""

from tests.cluster.nebius.changes import EXISTING, SPEC, Case, filesystems, submount, worker
from tests.cluster.nebius.samples import CPU, FABRIC, H100, ONE_GPU, gpus

CASES: dict[str, Case] = {
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
