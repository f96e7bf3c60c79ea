"""`nebius-solution-library=CHECKOUT`: the defaults of Nebius's own recipe for Soperator beside this program's.

The recipe is github.com/nebius/nebius-solutions-library, folder soperator. It goes on: what it has and this program has
not is a difference, and one that is meant is in ACCEPTED.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.catalog.nebius_machine_types import ARM64, MUNGE, NEBIUS_DISKS, PLATFORMS, REPLICATED_STEP, allocatable
from cluster.platforms.nebius import sizing
from cluster.platforms.nebius.names import GPU, GROUP, JAIL_LABEL, NODESET_LABEL
from cluster.platforms.nebius.stack_file_fields import AccountingGroup, SystemGroup
from cluster.platforms.nebius.versions import DRIVERS_PRESET
from cluster.report.mlperf_report import read_report
from tests.cluster.report.mlperf_logs import GUIDE
from tests.harness import ROOT
from tests.outside.recorder import Recorder

ACCEPTED = {
    "kubernetes-default": "the newest but one that Nebius creates, whatever the recipe had at its time",
    "soperator-default": "the newest release",
    "controller-preset": "the recipe of 2026 has 16vcpu-64gb as well; slurmctld needs more than 4 CPUs with many nodes",
    "jail-size": "of the guide; a recipe that attaches an existing jail has none",
}
"""Differences that are meant, by id."""


@pytest.fixture
def recipe(artifact: Path) -> Path:
    folder = artifact / "soperator" if (artifact / "soperator").is_dir() else artifact
    assert (folder / "modules").is_dir(), f"{artifact} is no checkout of the recipe: it has no soperator/modules"
    return folder


def text(file: Path) -> str:
    return "\n".join(
        line for line in file.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")
    )


def block(source: str, start: str) -> str:
    """What is between the braces behind a text; nothing where it is not there."""
    found = re.search(start + r"[^{]*\{", source)
    if not found:
        return ""
    depth, at = 1, found.end()
    while depth and at < len(source):
        depth += {"{": 1, "}": -1}.get(source[at], 0)
        at += 1
    return source[found.end() : at - 1]


_MEMBER = re.compile(r'(?m)^\s*(?:"([^"]+)"|\(local\.\w+\.([\w-]+)\)|([\w-]+))\s*=\s*(?:tomap\()?[{\[]')


def named(source: str) -> Iterator[tuple[str, str]]:
    """Key and contents of each member of a block: `"x" = tomap({...})`, `(local.platforms.x) = [...]`."""
    at = 0
    while found := _MEMBER.search(source, at):
        depth, at = 1, found.end()
        while depth and at < len(source):
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(source[at], 0)
            at += 1
        yield found[1] or found[2] or found[3], source[found.end() : at - 1]


def values(source: str, name: str) -> list[str]:
    """Values of a key, as text."""
    return [value.strip().strip('"') for value in re.findall(rf"(?m)^\s*{name}\s*=\s*([^\n#]+)", source)]


def test_platforms_and_presets(recipe: Path, outside: Recorder) -> None:
    folder = recipe / "modules" / "available_resources"
    platform, preset = text(folder / "platform.tf"), text(folder / "preset.tf")
    words = dict(re.findall(r'([\w-]+)\s*=\s*"([^"]+)"', block(preset, r"\bpresets\s*=")))
    theirs = set(re.findall(r'=\s*"([\w-]+)"', block(platform, r"\bplatforms\s*=")))
    for name in sorted(theirs - set(PLATFORMS)):
        outside.differs(f"platform-{name}", "the recipe has it", accepted=name in ARM64)
    for name, regions in named(block(platform, r"platform_regions\s*=")):
        for region in re.findall(r"local\.regions\.([\w-]+)", regions):
            if name in PLATFORMS and region not in PLATFORMS[name].regions:
                outside.differs(f"region-{name}-{region}", "the recipe has the platform there")
    count = 0
    for name, members in named(block(preset, r"presets_by_platforms\s*=")):
        known = {row.name for row in PLATFORMS[name].presets} if name in PLATFORMS else set[str]()
        for groups in re.findall(r'"([\w-]+)"\s*=|\(local\.presets\.([\w-]+)\)\s*=', members):
            found = groups[0] or words.get(groups[1], groups[1])
            count += 1
            if name in PLATFORMS and found not in known:
                outside.differs(f"preset-{name}-{found}", "the recipe has it")
    assert theirs
    assert count
    outside.did(f"{len(theirs)} platforms with {count} presets, and their regions")
    outside.holds("nebius-platforms-and-presets")


def test_sockets_and_gpu_names(recipe: Path, outside: Recorder) -> None:
    folder = recipe / "modules" / "available_resources"
    count = 0
    if (folder / "cpu_topology.tf").is_file():
        source = text(folder / "cpu_topology.tf")
        keys = ("sockets_per_board", "cores_per_socket", "threads_per_core")
        shapes = {
            name: tuple(int(values(members, key)[0]) for key in keys)
            for name, members in named(block(source, r"cpu_topologies\s*="))
        }
        known = {(name, row.name): row for name, platform in PLATFORMS.items() for row in platform.presets}
        for name, members in named(block(source, r"cpu_topologies_by_platforms\s*=")):
            for shape in re.findall(r"local\.cpu_topologies\.([\w-]+)", members):
                preset = re.sub(r"^[cg]-|-(e2|d3)$", "", shape)
                ours = known.get((name, preset))
                count += 1
                if ours and ours.topology != shapes[shape]:
                    outside.differs(f"topology-{name}-{preset}", f"given: {ours.topology}; the recipe: {shapes[shape]}")
    if (folder / "gres.tf").is_file():
        for name, gres in re.findall(r'local\.platforms\.([\w-]+)\)\s*=\s*"([^"]+)"', text(folder / "gres.tf")):
            count += 1
            if name in PLATFORMS and PLATFORMS[name].gpu != gres:
                outside.differs(f"gres-{name}", f"given: {PLATFORMS[name].gpu}; the recipe: {gres}")
    outside.did(f"{count} topologies and names of GPUs")
    outside.holds("nebius-platforms-and-presets")


def test_what_is_kept_of_a_node(recipe: Path, outside: Recorder) -> None:
    source = text(recipe / "modules" / "available_resources" / "reserve.tf")
    cpu, ram, disk = (block(source, rf"\b{name}\s*=") for name in ("cpu", "ram", "ephemeral_storage"))
    kept = float(values(source, "gibibytes")[0])
    given = allocatable(128, 1600, 512)
    wanted = (
        (128 * float(values(cpu, "coefficient")[0]) - float(values(cpu, "count")[0])) * 1000,
        int(1600 * float(values(ram, "coefficient")[0]) - float(values(ram, "count")[0])),
        int(512 * float(values(disk, "coefficient")[0]) - kept),
    )
    if (given.cpu, given.memory // 1024, given.disk // 1024) != wanted:
        outside.differs("reserve", f"of 128 vCPUs, 1600 GiB and a disk of 512 GiB: {given}; the recipe: {wanted}")
    parts = block(text(recipe / "modules" / "slurm" / "locals.tf"), r"\bresources\s*=")
    for name, ours in (("munge", MUNGE), ("mariadb", sizing.MARIADB)):
        own = block(parts, rf"\b{name}\s*=")
        if not own:
            continue
        theirs = tuple(float(values(own, key)[0]) for key in ("cpu", "memory", "ephemeral_storage"))
        if (ours.cpu / 1000, ours.memory / 1024, ours.disk / 1024) != theirs:
            outside.differs(f"resources-{name}", f"given: {ours}; the recipe: {theirs}")
    outside.did("what Kubernetes keeps of a node, and two containers")
    outside.holds("nebius-node-reserves")


def test_labels_and_disks(recipe: Path, outside: Recorder) -> None:
    labels = text(recipe / "modules" / "labels" / "main.tf")
    words = set(re.findall(r'"([^"$]+)"', labels))
    for ours in (GROUP, *NODESET_LABEL.split("/")[1:], *JAIL_LABEL.split("/")[1:], GPU.split("/")[0], "workload"):
        if ours not in words:
            outside.differs(f"label-{ours}", f"the recipe has {sorted(words)}")
    disks = set(re.findall(r'"(NETWORK_[A-Z0-9_]+)"', text(recipe / "modules" / "available_resources" / "disk.tf")))
    for disk in sorted(disks ^ {name.upper().replace("-", "_") for name in NEBIUS_DISKS}):
        outside.differs(f"disk-{disk}", "one of both has it")
    example = text(recipe / "installations" / "example" / "variables.tf")
    if str(REPLICATED_STEP) not in example:
        outside.differs("disk-step", f"{REPLICATED_STEP} GiB are not in the recipe's rules")
    outside.did("labels of nodes, types of disks")
    outside.holds("nebius-platforms-and-presets", "nebius-disk-steps")


def test_versions_and_drivers(recipe: Path, outside: Recorder) -> None:
    folder = recipe / "installations" / "example"
    shipped = yaml.safe_load((ROOT / "Pulumi.nebius.yaml").read_text())["config"]["hpc:cluster"]["nebius"]
    tfvars, variables = text(folder / "terraform.tfvars"), text(folder / "variables.tf")
    default = values(block(variables, 'variable "k8s_version"'), "default")
    for id_, ours, theirs in (
        ("kubernetes-default", shipped["kubernetes"]["version"], values(tfvars, "k8s_version") or default),
        ("soperator-default", shipped["soperator"]["version"], values(tfvars, "slurm_operator_version")),
    ):
        if theirs and theirs[0] != ours:
            outside.differs(id_, f"given: {ours}; the recipe: {theirs[0]}", accepted=id_ in ACCEPTED)
    file, count = folder / "driver_presets.tf", 0
    if file.is_file():
        for version, members in named(block(text(file), "driver_presets_by_k8s")):
            for platform, presets in re.findall(r"([\w-]+)\s*=\s*\[([^\]]*)\]", members):
                theirs = tuple(re.findall(r'"([^"]+)"', presets))
                count += 1
                ours = version != shipped["kubernetes"]["version"] or DRIVERS_PRESET in theirs
                if platform in PLATFORMS and not ours:
                    outside.differs(f"drivers-{version}-{platform}", f"given: {DRIVERS_PRESET}; the recipe: {theirs}")
    outside.did(f"versions of Kubernetes and Soperator, {count} rows of drivers")
    if count:
        outside.holds("nebius-drivers-presets")


def test_node_groups(recipe: Path, outside: Recorder) -> None:
    tfvars = text(recipe / "installations" / "example" / "terraform.tfvars")
    stack = yaml.safe_load((ROOT / "Pulumi.nebius.yaml").read_text())["config"]["hpc:cluster"]
    worker = stack["nodesets"]["worker"]
    groups = {
        "system": (SystemGroup().machine_type, SystemGroup().disk_gib),
        "controller": (stack["controller"]["machine_type"], stack["controller"]["disk"]["size_gb"]),
        "workers": (worker["machine_type"], worker["disk"]["size_gb"]),
        "login": (stack["login"]["machine_type"], stack["login"]["disk"]["size_gb"]),
        "accounting": (AccountingGroup().machine_type, AccountingGroup().disk_gib),
    }
    for name, (machine_type, disk) in groups.items():
        source = block(tfvars, rf"slurm_nodeset_{name}\s*=")
        theirs = f"{values(source, 'platform')[0]}/{values(source, 'preset')[0]}"
        if theirs != machine_type:
            id_ = f"{name}-preset"
            outside.differs(id_, f"given: {machine_type}; the recipe: {theirs}", accepted=id_ in ACCEPTED)
        if (size := int(values(source, "size_gibibytes")[0])) != disk:
            id_ = f"{name}-disk"
            outside.differs(id_, f"given: {disk} GiB; the recipe: {size}", accepted=id_ in ACCEPTED)
    for name in ("controller_spool", "accounting"):
        size = values(block(tfvars, rf"filestore_{name}\s*="), "size_gibibytes")
        if size and int(size[0]) != stack["nebius"]["filesystems"][name]["spec"]["size_gib"]:
            outside.differs(f"{name}-size", f"the recipe has {size[0]} GiB")
    outside.did(f"{len(groups)} node groups, two file systems")
    outside.holds("nebius-node-groups")


def test_credentials(recipe: Path, outside: Recorder) -> None:
    terraform = text(recipe / "installations" / "example" / "terraform.tf")
    tokens = values(block(terraform, 'provider "kubernetes"'), "token")
    if tokens != ["var.iam_token"]:
        outside.differs("kubernetes-token", f"the recipe logs in to Kubernetes with {tokens or 'no token'}")
    outside.did("the credential for Kubernetes")
    outside.holds("nebius-token-for-kubernetes")


def test_the_reference_run_of_stable_diffusion(recipe: Path, outside: Recorder) -> None:
    (log,) = (recipe / "test" / "mlperf-sd" / "results").glob("reference_02x08x08_*.out")
    with log.open("rb") as file:
        report = read_report(file)
    run = report.runs[-1].run
    assert (run.ranks, run.batch) == (16, 128)
    assert "".join(f"{line}\n" for line in report.lines()) == GUIDE
    outside.did(f"the report of {log.name}")
    outside.holds("mlperf-log-blocks")
