"""Google's blueprint of A3 Mega and its NCCL scripts beside what this program makes of `Pulumi.a3mega-managed.yaml`.

Artifact: a checkout of GoogleCloudPlatform/cluster-toolkit.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.catalog.fabrics import TCPXO
from cluster.catalog.nccl_tests import IMAGE
from tests.cluster import stacks
from tests.harness import Recording, deploy
from tests.outside.ledger import ROOT
from tests.outside.recorder import Recorder

STACK, NAME = "a3mega-managed", "a3m"
GOLDEN = ROOT / "tests" / "golden"
EXAMPLE = Path("examples/machine-learning/a3-megagpu-8g")

ACCEPTED = {
    "image": "a plain image of Ubuntu 22.04, with driver and kernel by the recipe; theirs is 24.04 with a driver in it",
    "cuda-toolkit": "12.8, which the container images of the guides are built with; the driver takes both",
    "slurm-AuthAltTypes": "only where the stack asks for slurmrestd",
    "slurm-AuthInfo": "120 s, Slurm's default: jobs with a prolog of 150 s start (row slurm-credential-and-prolog)",
    "slurm-MessageTimeout": "30 s: with a longer prolog srun prints a line and waits (row slurm-credential-and-prolog)",
    "slurm-DebugFlags": "Power says nothing here: nodes are not powered by Slurm",
    "slurm-MaxNodeCount": "nodes are named in slurm.conf, so none are dynamic",
    "slurm-SelectTypeParameters": "besides, tasks fill one socket before the next, as GPUs are numbered",
    "slurm-SlurmctldPidFile": "Debian's folder",
    "slurm-SlurmdPidFile": "Debian's folder",
    "partition-SuspendTimeout": "nodes are not powered by Slurm",
    "enroot-ENROOT_CONFIG_PATH": "enroot's default",
    "nccl-run": "200 iterations by nccl-tests' own option; results are not checked in a measurement",
}
"""Why it differs on purpose, by the difference's id."""


class Blueprint:
    """Google's."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        self.text = (checkout / EXAMPLE / "a3mega-slurm-blueprint.yaml").read_text()
        content: dict[str, Any] = yaml.safe_load(self.text)
        self.vars = content["vars"]
        groups = content["deployment_groups"]
        self.modules = {one["id"]: one.get("settings", {}) for group in groups for one in group["modules"]}

    def script(self, name: str) -> str:
        """A script of the NCCL test."""
        return (self.checkout / EXAMPLE / "nccl-tests" / name).read_text()

    def variable(self, module: str, name: str) -> str:
        """The default of a module's variable."""
        text = (self.checkout / "modules" / module / "variables.tf").read_text()
        found = re.search(rf'variable "{name}" \{{.*?default *= *(\S+)', text, re.DOTALL)
        assert found, f"{module} has no {name}"
        return found[1].strip('"')


class Beside:
    """Compares one thing after the other."""

    def __init__(self, outside: Recorder) -> None:
        self._outside = outside
        self.count = 0

    def same(self, id_: str, theirs: object, ours: object) -> None:
        """Take down where they differ."""
        self.count += 1
        if theirs != ours:
            why = ACCEPTED.get(id_, "")
            text = f"theirs {theirs!r}, ours {ours!r}" + (f" ({why})" if why else "")
            self._outside.differs(id_, text, accepted=bool(why))

    def done(self, what: str) -> None:
        """Say how much was compared."""
        self._outside.did(f"{what}: {self.count} compared")


@pytest.fixture(scope="module")
def blueprint(artifact: Path) -> Blueprint:
    return Blueprint(artifact)


@pytest.fixture(scope="module")
def made() -> Recording:
    return deploy(STACK)


def settings(text: str) -> dict[str, str]:
    """KEY=VALUE of lines; of several on one line too."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return dict(word.split("=", 1) for line in lines for word in line.split() if "=" in word)


def test_networks(blueprint: Blueprint, made: Recording, outside: Recorder) -> None:
    both = Beside(outside)
    system, gpus = blueprint.modules["sysnet"], blueprint.modules["gpunets"]
    networks = [one for one in made.all("gcp:compute/network:Network") if "-gpu-" in one.name]
    ranges = [made.one(f"{one.name}-subnet").inputs["ipCidrRange"] for one in networks]
    mtu = int(gpus.get("mtu") or blueprint.variable("network/multivpc", "mtu"))
    both.same("network-system-mtu", system["mtu"], made.one(f"{NAME}-network-system").inputs["mtu"])
    both.same("network-gpus", gpus["network_count"], len(networks))
    both.same("network-gpu-mtu", [mtu] * len(networks), [one.inputs["mtu"] for one in networks])
    both.same("network-gpu-size", {f"/{gpus['subnetwork_cidr_suffix']}"}, {one[one.index("/") :] for one in ranges})
    both.same("network-gpu-first", gpus["global_ip_address_range"].split("/")[0], ranges[0].split("/")[0])
    routing = blueprint.variable("network/multivpc", "network_routing_mode")
    both.same("network-gpu-routing", {routing}, {one.inputs["routingMode"] for one in networks})
    lines = system["subnetworks"][0]
    subnet = made.one(f"{NAME}-network-system-subnet").inputs
    both.same("network-system-private-access", lines["subnet_private_access"], subnet["privateIpGoogleAccess"])
    both.done("networks")
    outside.holds("a3mega-gpu-network-mtu")


def test_machines(blueprint: Blueprint, made: Recording, outside: Recorder) -> None:
    both = Beside(outside)
    nodes, template = blueprint.modules["a3mega_nodeset"], made.one(f"{NAME}-a3mega-template").inputs
    controller, login = (made.one(f"{NAME}-{part}").inputs for part in ("controller", "login-0"))
    nics = template["networkInterfaces"]
    both.same("controller-type", blueprint.modules["slurm_controller"]["machine_type"], controller["machineType"])
    both.same("login-type", blueprint.modules["slurm_login"]["machine_type"], login["machineType"])
    login_disk = login["bootDisk"]["initializeParams"]["type"]
    both.same("login-disk", blueprint.modules["slurm_login"]["disk_type"], login_disk)
    both.same("node-type", nodes["machine_type"], template["machineType"])
    both.same("node-disk", nodes["disk_type"], template["disks"][0]["diskType"])
    both.same("node-disks", 1, len(template["disks"]))
    both.same("node-maintenance", nodes["on_host_maintenance"], template["scheduling"]["onHostMaintenance"])
    both.same("node-nics", 1 + blueprint.modules["gpunets"]["network_count"], len(nics))
    both.same("node-nic-type", nodes["bandwidth_tier"], {"GVNIC": "gvnic_enabled"}[nics[0]["nicType"]])
    both.same("node-nic-types", 1, len({one["nicType"] for one in nics}))
    order = [one["subnetwork"] for one in nics]
    both.same("node-nic-order", order, [f"{NAME}-network-{part}-subnet-id" for part in _parts(len(nics) - 1)])
    both.same("node-public-address", nodes["enable_public_ips"], any("accessConfigs" in one for one in nics))
    builder = made.one(f"{NAME}-image-bake").inputs["machine_type"]
    both.same("builder-type", blueprint.modules["slurm-image"]["machine_type"], builder)
    instance = made.one(f"{NAME}-storage-lustre-instance").inputs
    both.same("lustre-size", str(blueprint.vars["lustre_size_gib"]), instance["capacityGib"])
    both.same("lustre-rate", str(blueprint.vars["per_unit_storage_throughput"]), instance["perUnitStorageThroughput"])
    ours = stacks.config(STACK).storage.lustre
    both.same("lustre-mount", blueprint.vars["local_mount_homefs"], ours and ours.mount)
    both.same("lustre-mount-of-module", "$(vars.local_mount_homefs)", blueprint.modules["homefs"]["local_mount"])
    both.done("machines and Lustre")
    outside.holds("a3mega-nic-order")


def _parts(gpus: int) -> list[str]:
    return ["system", *(f"gpu-{number}" for number in range(gpus))]


def test_slurm(blueprint: Blueprint, outside: Recorder) -> None:
    both = Beside(outside)
    ours = (GOLDEN / STACK / "slurm.conf").read_text()
    template = blueprint.modules["slurm_controller"]["slurm_conf_tpl"].rpartition("embedded/")[2]
    theirs = settings((blueprint.checkout / template).read_text())
    main = settings(ours.partition("\nNodeName=")[0])
    for key, value in theirs.items():
        if "{" not in value:
            both.same(f"slurm-{key}", value, main.get(key))
    node = settings(next(line for line in ours.splitlines() if line.startswith("NodeName=")))
    for key, value in blueprint.modules["a3mega_nodeset"]["node_conf"].items():
        both.same(f"node-{key}", str(value), node[key])
    line = next(line for line in ours.splitlines() if line.startswith("PartitionName=a3mega"))
    for key, value in blueprint.modules["a3mega_partition"]["partition_conf"].items():
        both.same(f"partition-{key}", str(value), settings(line).get(key, main.get(key)))
    both.done("slurm.conf")
    outside.holds("slurm-reboot-times")


def test_image(blueprint: Blueprint, outside: Recorder) -> None:
    both = Beside(outside)
    text = (GOLDEN / "gcp" / f"install-{STACK}.txt").read_text()
    recipe, first = settings(text), text.splitlines()[0]
    base = blueprint.vars["base_image"]
    both.same("image", f"projects/{base['project']}/global/images/{base['image']}", first)
    branch = re.search(r"nvidia-(\d+)", base["image"])
    both.same("driver-branch", branch and branch[1], recipe["DRIVER_BRANCH"])
    packages = re.findall(r"^ +- (cuda-toolkit\S*|datacenter-gpu-manager\S*)$", blueprint.text, re.MULTILINE)
    named = re.findall(r"datacenter-gpu-manager-4[^\s)]*", _step("gpu/24-dcgm.sh").replace('"', ""))
    both.same(
        "dcgm",
        {one for one in packages if "gpu-manager" in one},
        {one.replace("$DRIVER_CUDA", recipe["DRIVER_CUDA"]) for one in named},
    )
    toolkit = next(one for one in packages if one.startswith("cuda-toolkit"))
    both.same("cuda-toolkit", toolkit, "cuda-toolkit-" + "-".join(recipe["CUDA"].split(".")[:2]))
    broken = re.search(r"Pin: version (\S+)", blueprint.text)
    assert broken
    both.same("container-toolkit", True, broken[1] in _step("gpu/22-containers.sh"))
    both.same("container-toolkit-not-broken", False, recipe["CONTAINER_TOOLKIT"] == broken[1])
    held = re.findall(r"apt-mark hold (google\S+)", blueprint.text)
    both.same("agents-held", [], [one for one in held if one not in _step("system/10-updates.sh")])
    limits = re.findall(r"^ +(\* - \w+ \w+)$", blueprint.text, re.MULTILINE)
    both.same("limits", [], [one for one in limits if one not in _step("system/52-limits.sh")])
    assert held
    assert limits
    registry = re.search(r"ar\+https://(\S+) (\S+) main", blueprint.text)
    assert registry
    both.same("dmabuf", True, f"ar+https://{registry[1]} {registry[2]} main" in _step("gpu/26-dmabuf.sh"))
    version = re.search(r'dmabuf_version: "(\S+)"', blueprint.text)
    both.same("dmabuf-module", "dmabuf-import-helper/1.1", f"dmabuf-import-helper/{version and version[1]}")
    enroot = re.findall(r"^ +(ENROOT_\w+) +(\S+)$", blueprint.text, re.MULTILINE)
    ours = dict(re.findall(r"^ *(ENROOT_\w+) +(\S+)$", _step("storage/50-localssd.sh"), re.MULTILINE))
    for key, value in enroot:
        both.same(f"enroot-{key}", value, ours.get(key))
    both.done("packages and files of the image")
    outside.holds("image-container-toolkit", "image-dcgm-plugins", "image-driver-of-blueprint", "image-limits")


def _step(name: str) -> str:
    return (ROOT / "scripts" / "image" / name).read_text()


def test_nccl(blueprint: Blueprint, outside: Recorder) -> None:
    both = Beside(outside)
    run, ours = blueprint.script("run-nccl-tests.sh"), (GOLDEN / "jobs" / "a3mega-run.sh").read_text()
    exports = dict(re.findall(r"^export (NCCL_\w+)=(\S+)$", run, re.MULTILINE))
    environment = (ROOT / "scripts" / "jobs" / "environment" / "tcpxo.sh").read_text()
    both.same("nccl-exports", [], [name for name in exports if f"{name}=" not in environment])
    both.same("nic-names", exports["NCCL_FASTRAK_IFNAME"], ",".join(TCPXO.nic_names))
    both.same("nic-name", exports["NCCL_SOCKET_IFNAME"], TCPXO.host_nics[0])
    both.same("nic-control", exports["NCCL_FASTRAK_CTRL_DEV"], TCPXO.host_nics[0])
    both.same("apertures", True, exports["NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY"] in environment)
    libraries = re.search(r"LD_LIBRARY_PATH=(\S+):\\", run)
    first = libraries[1].replace("/var/lib/tcpxo/lib64", "$libraries") if libraries else "none"
    both.same("libraries", True, f"LD_LIBRARY_PATH={first}" in environment)
    both.same("profile", True, "nccl-env-profile.sh" in run and "nccl-env-profile.sh" in environment)
    for option in ("--mpi=pmi2", "--ntasks-per-node=8"):
        both.same(f"nccl-{option}", option in run, option in ours)
    theirs = re.search(r"all_gather_perf (.*?);", run)
    arguments = re.search(r"^arguments=\((.*)\)$", ours, re.MULTILINE)
    both.same("nccl-run", theirs and theirs[1], arguments and arguments[1])
    image = re.search(r'enroot import "(\S+)"', blueprint.script("import_pytorch_container.sh"))
    both.same("nccl-image", image and image[1], IMAGE.enroot)
    both.done("NCCL test")
    outside.holds("a3mega-nic-names", "nccl-tcpxo-environment", "nccl-tests-build")
