"""Google's blueprints of A3 Mega, A3 Ultra and A4 and their NCCL scripts beside what this program makes of the stacks
`a3mega-managed`, `a3ultra` and `a4`.

Artifact: a checkout of GoogleCloudPlatform/cluster-toolkit.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.catalog.fabrics import ROCE, TCPXO
from cluster.catalog.nccl import PYTORCH, default_collective
from cluster.jobs.nccl import NcclRun, run_script
from cluster.jobs.partition_facts import partition_facts
from cluster.slurm.power_saving import BOOT_PART
from tests.cluster import stacks
from tests.contract.provider_limits import TOOLKIT
from tests.harness import Recording, deploy
from tests.outside.mutation import ROOT
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
    "slurm-DebugFlags": "the reconcile service logs what it does with machines, and why",
    "slurm-MaxNodeCount": "nodes are named in slurm.conf, so none are dynamic",
    "slurm-SelectTypeParameters": "besides, tasks fill one socket before the next, as GPUs are numbered",
    "slurm-SlurmctldPidFile": "Debian's folder",
    "slurm-SlurmdPidFile": "Debian's folder",
    "partition-SuspendTimeout": "the reconcile service ends the wait for a machine when it is deleted",
    "home-kind": "the blueprint of A4 has Managed Lustre since pull request 6283 (2026-09)",
    "lustre-size": "the least that is sold at this throughput since 2026, and it can grow; theirs was the least before",
    "enroot-ENROOT_CONFIG_PATH": "enroot's default",
    "nccl-run": "200 iterations by nccl-tests' own option; results are not checked in a measurement",
    "controller-type": "8 CPUs, for a cluster of few nodes; theirs has 80",
    "builder-type": "one that NVIDIA's open driver installs on without a GPU; their image has the driver already",
    "node-public-address": "Cloud NAT lets nodes out",
    "nccl-image": "25.01: the CUDA of 24.09 has no code for B200",
}
"""Why it differs on purpose, by the difference's id."""


class Blueprint:
    """Google's."""

    def __init__(self, checkout: Path, example: Path = EXAMPLE, name: str = "a3mega") -> None:
        self.checkout, self.example = checkout, example
        self.text = (checkout / example / f"{name}-slurm-blueprint.yaml").read_text()
        content: dict[str, Any] = yaml.safe_load(self.text)
        self.vars = content["vars"]
        groups = content["deployment_groups"]
        self.modules = {module["id"]: module.get("settings", {}) for group in groups for module in group["modules"]}

    def script(self, name: str) -> str:
        """A script of the NCCL test."""
        return (self.checkout / self.example / "nccl-tests" / name).read_text()

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
    every = sorted(made.all("gcp:compute/network:Network"), key=lambda network: network.name)
    networks = [network for network in every if "-gpu-" in network.name]
    ranges = [made.one(f"{network.name}-subnet").inputs["ipCidrRange"] for network in networks]
    mtu = int(gpus.get("mtu") or blueprint.variable("network/multivpc", "mtu"))
    both.same("network-system-mtu", system["mtu"], made.one(f"{NAME}-network-system").inputs["mtu"])
    both.same("network-gpus", gpus["network_count"], len(networks))
    both.same("network-gpu-mtu", [mtu] * len(networks), [network.inputs["mtu"] for network in networks])
    both.same("network-gpu-size", {f"/{gpus['subnetwork_cidr_suffix']}"}, {cidr[cidr.index("/") :] for cidr in ranges})
    both.same("network-gpu-first", gpus["global_ip_address_range"].split("/")[0], ranges[0].split("/")[0])
    routing = blueprint.variable("network/multivpc", "network_routing_mode")
    both.same("network-gpu-routing", {routing}, {network.inputs["routingMode"] for network in networks})
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
    both.same("node-nic-types", 1, len({nic["nicType"] for nic in nics}))
    order = [nic["subnetwork"] for nic in nics]
    both.same("node-nic-order", order, [f"{NAME}-network-{part}-subnet-id" for part in _parts(len(nics) - 1)])
    both.same("node-public-address", nodes["enable_public_ips"], any("accessConfigs" in nic for nic in nics))
    builder = made.one(f"{NAME}-image-bake").inputs["machine_type"]
    both.same("builder-type", blueprint.modules["slurm-image"]["machine_type"], builder)
    for file, type_ in (("filestore", "filestore/instance"), ("managed-lustre", "lustre/instance")):
        text = (blueprint.checkout / "modules" / "file-system" / file / "main.tf").read_text()
        limits = [
            int(hours) * 60 for hours in re.findall(r'^ +(?:create|update|delete) = "(\d+)h"$', text, re.MULTILINE)
        ]
        both.same(f"{file}-timeouts", limits, [TOOLKIT[f"gcp:{type_}:Instance"]] * 3)
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
        both.same(f"partition-{key}", str(value), _partition(key, settings(line), main))
    both.done("slurm.conf")
    outside.holds("slurm-reboot-times")


def _partition(key: str, line: Mapping[str, str], main: Mapping[str, str]) -> str | None:
    """Return a setting of a partition. Of ResumeTimeout the part that a machine has until it is deleted: theirs waits
    for all of it."""
    value = line.get(key, main.get(key))
    return str(round(BOOT_PART * int(value))) if key == "ResumeTimeout" and value else value


def test_image(blueprint: Blueprint, outside: Recorder) -> None:
    both = Beside(outside)
    text = (GOLDEN / "gcp" / f"install-{STACK}.txt").read_text()
    recipe, first = settings(text), text.splitlines()[0]
    base = blueprint.vars["base_image"]
    both.same("image", f"projects/{base['project']}/global/images/{base['image']}", first)
    branch = re.search(r"nvidia-(\d+)", base["image"])
    both.same("driver-branch", branch and branch[1], recipe["DRIVER_BRANCH"])
    packages = re.findall(r"^ +- (cuda-toolkit\S*|datacenter-gpu-manager\S*)$", blueprint.text, re.MULTILINE)
    # The blueprint has no dcgm-exporter, whose packages the step names after these.
    (names,) = re.findall(r"^names=\((.*)\)$", _step("gpu/24-dcgm.sh").replace('"', ""), re.MULTILINE)
    both.same(
        "dcgm",
        {package for package in packages if "gpu-manager" in package},
        {package.replace("$DRIVER_CUDA", recipe["DRIVER_CUDA"]) for package in names.split()},
    )
    toolkit = next(package for package in packages if package.startswith("cuda-toolkit"))
    both.same("cuda-toolkit", toolkit, "cuda-toolkit-" + "-".join(recipe["CUDA"].split(".")[:2]))
    broken = re.search(r"Pin: version (\S+)", blueprint.text)
    assert broken
    both.same("container-toolkit", True, broken[1] in _step("gpu/22-containers.sh"))
    both.same("container-toolkit-not-broken", False, recipe["CONTAINER_TOOLKIT"] == broken[1])
    held = re.findall(r"apt-mark hold (google\S+)", blueprint.text)
    both.same("agents-held", [], [package for package in held if package not in _step("system/10-updates.sh")])
    limits = re.findall(r"^ +(\* - \w+ \w+)$", blueprint.text, re.MULTILINE)
    both.same("limits", [], [limit for limit in limits if limit not in _step("system/52-limits.sh")])
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
    environment = _environment("tcpxo") + _environment("plugin")
    both.same("nccl-exports", [], [name for name in exports if f"{name}=" not in environment])
    both.same("nic-names", exports["NCCL_FASTRAK_IFNAME"], ",".join(TCPXO.nic_names))
    both.same("nic-name", exports["NCCL_SOCKET_IFNAME"], TCPXO.host_nics[0])
    both.same("nic-control", exports["NCCL_FASTRAK_CTRL_DEV"], TCPXO.host_nics[0])
    both.same("apertures", True, exports["NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY"] in environment)
    libraries = re.search(r"LD_LIBRARY_PATH=(\S+):\\", run)
    first = libraries[1].replace("/var/lib/tcpxo/lib64", "$1") if libraries else "none"
    both.same("libraries", True, f"LD_LIBRARY_PATH={first}" in environment)
    both.same("profile", True, "nccl-env-profile.sh" in run and "nccl-env-profile.sh" in environment)
    for option in ("--mpi=pmi2", "--ntasks-per-node=8"):
        both.same(f"nccl-{option}", option in run, option in ours)
    theirs = re.search(r"all_gather_perf (.*?);", run)
    arguments = re.search(r"^arguments=\((.*)\)$", ours, re.MULTILINE)
    both.same("nccl-run", theirs and theirs[1], arguments and arguments[1])
    image = re.search(r'enroot import "(\S+)"', blueprint.script("import_pytorch_container.sh"))
    both.same("a3mega-nccl-image", image and image[1], PYTORCH.enroot)
    both.done("NCCL test")
    outside.holds("a3mega-nic-names", "nccl-tcpxo-environment", "nccl-tests-build")


@dataclass(frozen=True, kw_only=True)
class Roce:
    """A machine with RoCE: its blueprint, and the stack that is held beside it."""

    stack: str
    cluster: str
    example: str
    blueprint: str
    modules: str
    """What the ids of the blueprint's networks begin with."""
    nodeset: str
    partition: str
    row: str
    """What ids of assumptions begin with."""


ROCES = (
    Roce(
        stack="a3ultra", cluster="a3u", example="a3-ultragpu-8g", blueprint="a3ultra", modules="a3ultra-slurm",
        nodeset="a3_ultra_nodeset", partition="a3_ultra_partition", row="a3ultra",
    ),
    Roce(
        stack="a4", cluster="a4h", example="a4-highgpu-8g", blueprint="a4high", modules="a4high-slurm",
        nodeset="a4high_nodeset", partition="a4high_partition", row="a4",
    ),
)  # fmt: skip


@pytest.mark.parametrize("roce", ROCES, ids=lambda roce: roce.stack)
class TestRoce:
    """One network with the zone's RDMA profile and eight subnetworks, and a second one of the host."""

    @pytest.fixture
    def theirs(self, artifact: Path, roce: Roce) -> Blueprint:
        return Blueprint(artifact, EXAMPLE.parent / roce.example, roce.blueprint)

    @pytest.fixture
    def ours(self, roce: Roce) -> Recording:
        return deploy(roce.stack)

    def test_networks(self, roce: Roce, theirs: Blueprint, ours: Recording, outside: Recorder) -> None:
        both = Beside(outside)
        prefix = f"{roce.cluster}-network"
        hosts = [theirs.modules[f"{roce.modules}-net-{number}"] for number in range(2)]
        rdma = theirs.modules[f"{roce.modules}-rdma-net"]
        networks = ours.all("gcp:compute/network:Network")
        both.same("roce-networks", len(hosts) + 1, len(networks))
        for part, settings_, value in zip(("system", "second"), hosts, ("net0_range", "net1_range"), strict=True):
            both.same(f"{part}-mtu", settings_["mtu"], ours.one(f"{prefix}-{part}").inputs["mtu"])
            range_ = ours.one(f"{prefix}-{part}-subnet").inputs["ipCidrRange"]
            both.same(f"{part}-range", theirs.vars[value], range_)
            rule = ours.one(f"{prefix}-fw-internal" if part == "system" else f"{prefix}-second-fw").inputs
            both.same(f"{part}-rule-ranges", [theirs.vars[value]], rule["sourceRanges"])
            allowed = {rule_["protocol"] for rule_ in settings_["firewall_rules"][0]["allow"]}
            both.same(f"{part}-rule-protocols", allowed, {allow["protocol"] for allow in rule["allows"]})
        network = ours.one(f"{prefix}-gpu").inputs
        profile = (
            rdma["network_profile"].rpartition("/")[2].replace("$(vars.zone)", stacks.load(roce.stack)["gcp:zone"])
        )
        both.same("rdma-profile", profile, network["networkProfile"].rpartition("/")[2])
        both.same("rdma-routing", rdma["network_routing_mode"], network["routingMode"])
        both.same("rdma-mtu", int(theirs.variable("network/gpu-rdma-vpc", "mtu")), network["mtu"])
        template = rdma["subnetworks_template"]
        whole = ipaddress.ip_network(theirs.vars["rdma_net_range"])
        parts = list(whole.subnets(prefixlen_diff=(template["count"] - 1).bit_length()))
        subnets = [ours.one(f"{prefix}-gpu-{number}-subnet").inputs for number in range(template["count"])]
        both.same("rdma-subnetworks", list(map(str, parts)), [subnet["ipCidrRange"] for subnet in subnets])
        both.same("rdma-one-network", {f"{prefix}-gpu-id"}, {subnet["network"] for subnet in subnets})
        rules = [
            firewall
            for firewall in ours.all("gcp:compute/firewall:Firewall")
            if firewall.inputs["network"] == f"{prefix}-gpu-id"
        ]
        both.same("rdma-no-rules", 0, len(rules))
        both.done(f"{roce.stack}: networks")
        outside.holds("roce-one-network")

    def test_machines(self, roce: Roce, theirs: Blueprint, ours: Recording, outside: Recorder) -> None:
        both = Beside(outside)
        nodes = theirs.modules[roce.nodeset]
        template = ours.one(f"{roce.cluster}-{roce.stack}-template").inputs
        controller, login = (ours.one(f"{roce.cluster}-{part}").inputs for part in ("controller", "login-0"))
        both.same("controller-type", theirs.modules["slurm_controller"]["machine_type"], controller["machineType"])
        both.same("login-type", theirs.modules["slurm_login"]["machine_type"], login["machineType"])
        both.same("node-type", nodes["machine_type"], template["machineType"])
        both.same("node-disk", nodes["disk_type"], template["disks"][0]["diskType"])
        both.same("node-maintenance", nodes["on_host_maintenance"], template["scheduling"]["onHostMaintenance"])
        both.same("node-placement", nodes["enable_placement"], "resourcePolicies" in template)
        both.same(
            "node-public-address",
            nodes["enable_public_ips"],
            any("accessConfigs" in interface for interface in template["networkInterfaces"]),
        )
        nics = template["networkInterfaces"]
        rdma = theirs.variable("network/gpu-rdma-vpc", "nic_type")
        both.same("node-nic-types", ["GVNIC", "GVNIC", *[rdma] * 8], [nic["nicType"] for nic in nics])
        order = ["system", "second", *(f"gpu-{number}" for number in range(8))]
        both.same(
            "node-nic-order",
            [f"{roce.cluster}-network-{part}-subnet-id" for part in order],
            [nic["subnetwork"] for nic in nics],
        )
        builder = ours.one(f"{roce.cluster}-image-bake").inputs["machine_type"]
        both.same("builder-type", theirs.vars["image_build_machine_type"], builder)
        storage: dict[str, Any] = theirs.modules["homefs"]
        ours_home = stacks.config(roce.stack).storage.lustre
        assert ours_home
        kind = "Filestore" if "filestore_tier" in storage else "Managed Lustre"
        both.same("home-kind", kind, "Managed Lustre")
        if kind == "Managed Lustre":
            both.same("lustre-size", theirs.vars["lustre_size_gib"], ours_home.size_gib)
            both.same("lustre-rate", theirs.vars["per_unit_storage_throughput"], ours_home.throughput)
        both.same("home", storage["local_mount"], ours_home.mount)
        text = (GOLDEN / roce.stack / "slurm.conf").read_text()
        node = settings(next(line for line in text.splitlines() if line.startswith("NodeName=")))
        for key, value in nodes["node_conf"].items():
            both.same(f"node-{key}", str(value), node["Sockets" if key == "SocketsPerBoard" else key])
        line = settings(next(line for line in text.splitlines() if line.startswith("PartitionName=")))
        main = settings(text.partition("\nNodeName=")[0])
        for key, value in theirs.modules[roce.partition]["partition_conf"].items():
            both.same(f"partition-{key}", str(value), _partition(key, line, main))
        both.done(f"{roce.stack}: machines")
        outside.holds("roce-nic-order")

    def test_image(self, roce: Roce, theirs: Blueprint, outside: Recorder) -> None:
        both = Beside(outside)
        text = (GOLDEN / "gcp" / f"install-{roce.stack}.txt").read_text()
        recipe, step = settings(text), _step("gpu/27-gib.sh")
        branch = re.search(r"nvidia-(\d+)", theirs.vars["base_image"]["image"])
        both.same("driver-branch", branch and branch[1], recipe["DRIVER_BRANCH"])
        both.same("driver-open", "-open", recipe["DRIVER_FLAVOUR"])
        both.same("gib", theirs.vars["nccl_gib_version"], recipe["GIB"])
        both.same("nccl", theirs.vars["libnccl_version"], recipe["NCCL"])
        registry = re.search(r"ar\+https://(\S+) (\S+) main", theirs.text)
        assert registry
        both.same("gib-repository", True, f"ar+https://{registry[1]} {registry[2]} main" in step)
        packages = [name for name in ("libnccl2", "libnccl-dev", "nccl-gib", "ibverbs-utils") if name in theirs.text]
        both.same("gib-packages", [], [name for name in packages if name not in step])
        packages = re.findall(r"^ +- (datacenter-gpu-manager\S*)$", theirs.text, re.MULTILINE)
        named = _step("gpu/24-dcgm.sh").replace("$DRIVER_CUDA", recipe["DRIVER_CUDA"])
        both.same("dcgm", [], [name for name in packages if name not in named])
        limits = re.findall(r"^ +(\* - \w+ \w+)$", theirs.text, re.MULTILINE)
        both.same("limits", [], [limit for limit in limits if limit not in _step("system/52-limits.sh")])
        both.done(f"{roce.stack}: packages and files of the image")
        outside.holds("gib-packages")


def test_nccl_by_gib(artifact: Path, outside: Recorder) -> None:
    both = Beside(outside)
    theirs = Blueprint(artifact, EXAMPLE.parent / "a3-ultragpu-8g", "a3ultra")
    run, environment = theirs.script("run-nccl-tests.sh"), _environment("gib")
    exports = dict(re.findall(r"^export (NCCL_\w+)=(\S+)$", run, re.MULTILINE))
    both.same("gib-exports", [], [name for name in exports if f"{name}=" not in environment])
    both.same("gib-net", True, f"NCCL_NET={exports['NCCL_NET']}" in environment)
    both.same("gib-nics", exports["NCCL_SOCKET_IFNAME"], ",".join(ROCE.host_nics))
    both.same(
        "gib-settings",
        True,
        "/usr/local/gib/scripts/set_nccl_env.sh" in run and "scripts/set_nccl_env.sh" in environment,
    )
    both.same("gib-mounts", True, "/usr/local/gib" in run and "$gib:$gib" in environment)
    libraries = re.search(r"LD_LIBRARY_PATH=(\S+):\\", run)
    ours = "/usr/local/gib/lib64:/usr/lib/x86_64-linux-gnu"
    both.same("gib-libraries", libraries and libraries[1], ours)
    config = stacks.config("a3ultra")
    (row,) = partition_facts(config)
    script = run_script(config, NcclRun(partition=row, nodes=2, collective=default_collective(2))).text()
    theirs_run = re.search(r"(\w+)_perf (.*?);", run)
    arguments = re.search(r"^arguments=\((.*)\)$", script, re.MULTILINE)
    both.same("gib-collective", theirs_run and theirs_run[1], default_collective(2))
    both.same("nccl-run", theirs_run and theirs_run[2], arguments and arguments[1])
    for option in ("--mpi=pmi2", "--ntasks-per-node=8"):
        both.same(f"gib-{option}", option in run, option in script)
    image = re.search(r'enroot import "(\S+)"', theirs.script("import_pytorch_container.sh"))
    both.same("nccl-image", image and image[1], ROCE.container.enroot)
    both.done("NCCL test by gIB")
    outside.holds("gib-environment", "roce-nic-names")


def _environment(name: str) -> str:
    return (ROOT / "scripts" / "jobs" / "environment" / f"{name}.sh").read_text()
