"""The image of machines on Google Cloud: where it comes from, what is installed, in which versions."""

import hashlib
import json
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cluster.catalog.base_system import MONITORING
from cluster.catalog.fabrics import FABRICS
from cluster.catalog.machine_families import ACCELERATORS
from cluster.catalog.prologs import NEWEST, RxdmVersion, fitting
from cluster.catalog.recipes import RECIPES, Download, Recipe, Source
from cluster.config.cluster import ClusterConfig
from cluster.findings import ConfigError, Finding
from cluster.platforms.base import packaged
from cluster.platforms.gcp.address_plan import fabrics
from cluster.platforms.gcp.filesystems.registry import lustre_client
from cluster.roster import MachineSpec, nodeset_gpu, nodeset_type
from cluster.slurm.script_tree import read_script

FOLDER = Path(__file__).parents[3] / "scripts" / "image"
LARGEST = 256 * 1024
"""Bytes of a value in an instance's metadata, which is how the builder gets the program."""
ROOT = "/var/lib/hpc/install"
"""On the machine: what was done, and `state`: `running NAME`, `done` or `failed NAME`."""
LOG = "/var/log/hpc-install.log"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of the program."""

    name: str
    """Such as 30-slurm; progress and failures name it."""
    text: str
    hash: str
    """A hash of its text, the library, and the parameters that either names: a change in these runs it again."""


def step(name: str, parameters: Mapping[str, str]) -> Step:
    """The step of that name in scripts/image."""
    text = _read(_files()[name])
    return _step(name, text, without_comments(text), parameters)


def step_of_text(name: str, text: str, parameters: Mapping[str, str]) -> Step:
    """A step with this text, which begins with #!. Its hash is of every character: its language is unknown."""
    return _step(name, text, text, parameters)


@cache
def without_comments(text: str) -> str:
    """A script of ours without its comments and blank lines, which change nothing that it does.

    Lines of comment in the files that it writes go as well: they are comments there too.
    """
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not re.match(r"\s*#(?!!)", line)) + "\n"


def _step(name: str, text: str, counts: str, parameters: Mapping[str, str]) -> Step:
    whole = hashlib.sha256()
    library = _read("library.sh")
    for part in (counts, without_comments(library)):
        whole.update(part.encode() + b"\0")
    for key in sorted((_names(text) | _names(library)) & set(parameters)):
        whole.update(f"{key}={parameters[key]}\0".encode())
    return Step(name=name, text=text, hash=whole.hexdigest()[:16])


@cache
def _names(text: str) -> frozenset[str]:
    """The words of a text that may be parameters."""
    return frozenset(re.findall(r"\b[A-Z][A-Z0-9_]+\b", text))


def own_steps(config: ClusterConfig, folder: Path, parameters: Mapping[str, str]) -> list[Step]:
    """The stack's own steps, `image.provision`; files are read from `folder`.

    Raises ConfigError with every file that is missing or is no script.
    """
    findings: list[Finding] = []
    found: list[Step] = []
    for index, provision in enumerate(config.image.provision):
        if provision.url:
            text = _download_script(provision.url, provision.sha256 or "")
        elif provision.text is not None:
            text = provision.text
        else:
            text = read_script(str(provision.file), ("image", "provision", index, "file"), folder, findings)
        found.append(step_of_text(f"70.{index:02d}-{provision.name}", text, parameters))
    if findings:
        raise ConfigError(findings)
    return found


def program(cluster: str, steps: list[Step], parameters: Mapping[str, str], root: str = ROOT) -> str:
    """The whole program: parameters, steps, and what runs them. What was done is kept in `root`."""
    lines = [
        "#!/bin/bash",
        f"# Makes a machine of the cluster {cluster} ready for its set-up. Made from the stack: changes here are lost.",
        "# It may be killed, and run again at any time: what was done well is not done again.",
        "set -uo pipefail",
        f"ROOT={root} HPC_LOG={LOG}",
        "export HPC_LOG",
        *(f"export {name}={shlex.quote(value)}" for name, value in parameters.items()),
        "PLAN=(",
        *(f"    '{step.name} {step.hash}'" for step in steps),
        ")",
        "",
        "unpack() {",
        *_write_file_lines("library.sh", _read("library.sh"), "0600"),
        *(line for step in steps for line in _write_file_lines(step.name, step.text, "0700")),
        "}",
        "",
    ]
    return "\n".join(lines) + "\n" + _read("runner.sh")


def check_size(text: str) -> None:
    """Raises ConfigError for a program that is more than an instance's metadata can carry."""
    size = len(text.encode())
    if size > LARGEST:
        finding = Finding(
            id="image-provision-size",
            at=("image", "provision"),
            given=f"steps that make a program of {size // 1024} KiB",
            allowed=f"at most {LARGEST // 1024} KiB in all, ours included",
            todo="give the large ones by url and sha256, or let them fetch what is so large",
        )
        raise ConfigError([finding])


def _download_script(url: str, sha256: str) -> str:
    """Return a script that downloads another one, and runs it only if its SHA-256 is the given one."""
    return "\n".join(
        (
            "#!/bin/bash",
            '. "$HPC_LIBRARY"',
            f'fetch {shlex.quote(url)} {shlex.quote(sha256)} "$BUILD/own/{sha256}"',
            f'chmod 0700 "$BUILD/own/{sha256}"',
            f'exec "$BUILD/own/{sha256}"',
            "",
        )
    )


def _write_file_lines(name: str, text: str, mode: str) -> list[str]:
    """Lines of bash that write a file of the program's as a whole; its end is marked by a word that is not in it."""
    end = f"END-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path = f'"$ROOT/steps/{name}"'
    return [f"cat >{path} <<'{end}'", *text.rstrip("\n").split("\n"), end, f"chmod {mode} {path}"]


@cache
def _files() -> dict[str, str]:
    """The file of each step by its name, whichever folder it is in."""
    return {path.stem: str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*.sh")}


@cache
def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


PROJECT = Path(__file__).parents[3]
TRIAL_ROOT = "/var/lib/hpc/trial"
"""The folder of a finished image's trial, beside what the bake left."""
BAKED = ("ubuntu-2204",)
"""Bases that are baked where the file says nothing: building drivers, Slurm and a Lustre client takes an hour."""


def bakes(config: ClusterConfig) -> bool:
    """Return whether the stack makes an image of its own."""
    if config.image.name:
        return False
    return config.image.base in BAKED if config.image.bake is None else config.image.bake


def installs(config: ClusterConfig) -> bool:
    """Return whether each machine installs what it needs at its first boot."""
    return not config.image.name and not bakes(config)


def secure_boot(config: ClusterConfig, spec: MachineSpec) -> bool:
    """Return whether the kernel may refuse unsigned modules.

    Drivers and Lustre clients are built on the machine or in a bake (DKMS) and have no signature that the firmware
    has, so only machines with the distribution's own modules and nothing else can have it: a plain base without GPUs
    and without Lustre.
    """
    return installs(config) and spec.gpu is None and lustre_client(config) == "none"


def gpu_types(config: ClusterConfig) -> set[str]:
    return {gpu.type for section in config.nodesets.values() if (gpu := nodeset_gpu(config, section))}


def open_driver(config: ClusterConfig) -> bool:
    """Return whether NVIDIA's open kernel modules support all GPUs that nodes have."""
    return all(ACCELERATORS[gpu].open_driver for gpu in gpu_types(config) if gpu in ACCELERATORS)


def local_ssds(config: ClusterConfig) -> bool:
    return any(nodeset_type(config, section).family.local_ssds for section in config.nodesets.values())


def _packages(config: ClusterConfig) -> str:
    """The packages of `image.packages`, whose order does not count."""
    return " ".join(sorted(set(config.image.packages)))


def parts(config: ClusterConfig) -> dict[str, str]:
    """Parts that only some stacks need in their image, by the part of the stack; empty where none does."""
    wanted = {fabric.key for fabric in fabrics(config)}
    return {
        "gpus": ("open" if open_driver(config) else "closed") if gpu_types(config) else "",
        **{fabric.key: "yes" if fabric.key in wanted else "" for fabric in FABRICS if fabric.key},
        "local_ssds": "yes" if local_ssds(config) else "",
        "monitoring": "yes" if config.monitoring else "",
        "gpu_metrics": "yes" if config.monitoring and gpu_types(config) and recipe(config).dcgm_exporter else "",
        "gcsfuse": "yes" if config.storage.buckets else "",
    }


def recipe(config: ClusterConfig) -> Recipe:
    """The row of the catalog for this operating system and kind of Lustre.

    Raises ConfigError where there is none, with what there is.
    """
    kind = lustre_client(config)
    version = config.image.recipe
    found = RECIPES.get((version, config.image.base, kind))
    if found is None:
        others = sorted(base for of, base, lustre in RECIPES if (of, lustre) == (version, kind))
        finding = Finding(
            id="image-recipe",
            at=("image", "base"),
            given=config.image.base,
            allowed=f"an operating system with a client for {kind} Lustre: {', '.join(others) or 'none'}",
            todo=f"write `base: {others[0]}`, or remove storage.lustre" if others else "remove storage.lustre",
        )
        raise ConfigError([finding])
    return found


def snapshot(config: ClusterConfig) -> str:
    """Date of Ubuntu's archive that packages come from."""
    return config.image.snapshot or recipe(config).snapshot


def steps(config: ClusterConfig, folder: Path = PROJECT) -> list[Step]:
    """Return what is done, in order; own steps named by a path are read from `folder`."""
    row, types = recipe(config), gpu_types(config)
    gpus, baked = bool(types), bakes(config)
    of_fabric = {name for fabric in fabrics(config) for name in fabric.image_steps}
    chosen = {
        "10-updates": True,
        "12-kernel": bool(row.kernel),
        "13-upgrade": True,
        "14-tools": True,
        "16-gvnic": row.gve is not None,
        "18-nfs": True,
        "20-nvidia": gpus and bool(row.driver.package),
        "21-server-driver": gpus and not row.driver.package,
        "22-containers": gpus and bool(row.container_toolkit),
        "24-dcgm": gpus and bool(row.dcgm),
        "26-dmabuf": "26-dmabuf" in of_fabric,
        "27-gib": "27-gib" in of_fabric,
        "28-aperture": "28-aperture" in of_fabric,
        "30-slurm": bool(row.slurm),
        "31-slurm-packages": not row.slurm,
        "32-enroot": row.enroot is not None,
        "34-pyxis": row.pyxis is not None,
        "36-apptainer": row.apptainer is not None,
        "38-job-programs": bool(row.slurm),
        "40-lustre-client": row.client is not None,
        "41-lustre-managed": row.lustre == "managed",
        "44-gcsfuse": bool(config.storage.buckets),
        "46-ops-agent": True,
        "50-localssd": local_ssds(config),
        "52-limits": True,
        "54-network": "54-network" in of_fabric,
        "56-hostname": row.enroot is not None,
        "60-packages": bool(config.image.packages),
        "62-monitoring": config.monitoring is not None,
        "70-own": True,
        "80-gcloud": True,
        "90-smoke": True,
        "92-image": True,
        "94-start": not baked,
        "95-clean-up": baked,
    }
    known = parameters(config)
    found: list[Step] = []
    for name, wanted in chosen.items():
        if name == "70-own":
            found += own_steps(config, folder, known)
        elif wanted:
            found.append(step(name, known))
    return found


def parameters(config: ClusterConfig) -> dict[str, str]:
    """Environment variables of the steps; what a missing or empty one stands for is not installed."""
    row, gpus = recipe(config), bool(gpu_types(config))
    found = {"BAKE": "1" if bakes(config) else "0", "KERNEL": row.kernel, "LUSTRE": row.lustre, "RECIPE": row.version}
    found |= {"KERNEL_DAY": row.kernel_day}
    # The kernel is of the recipe's own date: a later state of the archive may lack it.
    found |= {"SNAPSHOT": snapshot(config)}
    found |= {"KERNEL_SNAPSHOT": row.snapshot} if row.kernel and found["SNAPSHOT"] != row.snapshot else {}
    if gpus:
        found |= {"DRIVER_BRANCH": row.driver.branch, "DRIVER_PACKAGE": row.driver.package, "DCGM": row.dcgm}
        found |= {"CONTAINER_TOOLKIT": row.container_toolkit, "DRIVER_CUDA": str(row.driver.cuda)}
        if row.driver.package:
            flavour = "-open" if open_driver(config) else ""
            found |= {"DRIVER_VERSION": row.driver.version, "DRIVER_FLAVOUR": flavour, "CUDA": row.cuda}
    for fabric in fabrics(config):
        found |= {name: value.format_map(vars(row)) for name, value in fabric.image_parameters.items()}
    found |= {"GCSFUSE": row.gcsfuse} if config.storage.buckets else {}
    found |= {"IMAGE_PACKAGES": _packages(config)}
    if config.monitoring:
        found |= {"MONITORING": " ".join(MONITORING), "DCGM_EXPORTER": row.dcgm_exporter if gpus else ""}
    sources: dict[str, Source | Download | None] = {
        "GVE": row.gve,
        "SLURM": row.slurm.get(config.slurm_version),
        "ENROOT": row.enroot,
        "PYXIS": row.pyxis,
        "APPTAINER": row.apptainer,
    }
    sources["LUSTRE"] = row.client
    for name, source in sources.items():
        if source:
            found |= {f"{name}_{key.upper()}": value for key, value in vars(source).items()}
    return {name: value for name, value in sorted(found.items()) if value}


def bake_script(config: ClusterConfig, folder: Path = PROJECT) -> str:
    """The whole program, for a builder's start-up script or a machine's first boot; it may be run again at any time.

    Raises ConfigError for a step of one's own that cannot be read.
    """
    text = program(config.name, steps(config, folder), parameters(config))
    check_size(text)
    return text


def trial_script(config: ClusterConfig) -> str:
    """A program for the first machine that boots the finished image: whether what was installed runs, or will."""
    known = parameters(config)
    return program(config.name, [step(name, known) for name in ("90-smoke", "91-boot")], known, TRIAL_ROOT)


def content(config: ClusterConfig, folder: Path = PROJECT) -> dict[str, str]:
    """Return what somebody chose to be in the image, by name: the recipe's version and what the stack file asks for.

    Equal contents are one image, and a preview shows which of these another one comes from. The text of our own steps
    is not part of it: a newer program would otherwise take every cluster down for a mended comment. What a version of
    the recipes contains does not change.
    """
    found = {
        "recipe": config.image.recipe,
        "base": config.image.base,
        "snapshot": snapshot(config),
        "size_gb": str(config.image.builder.size_gb),
        "lustre": lustre_client(config),
        "slurm": config.slurm_version,
        "packages": _packages(config),
        **parts(config),
        **{step.name: hashlib.sha256(step.text.encode()).hexdigest()[:16] for step in own_steps(config, folder, {})},
    }
    return {name: value for name, value in found.items() if value}


def boots_from(config: ClusterConfig) -> str:
    """Return what machines boot from; another text is another image. A baked one is another by its content alone."""
    if not bakes(config):
        return config.image.name or recipe(config).image
    return hashlib.sha256(json.dumps(content(config), sort_keys=True).encode()).hexdigest()[:16]


def digest(config: ClusterConfig, extra: Mapping[str, str] | None = None, folder: Path = PROJECT) -> str:
    """12 hex digits of everything that goes into the image, so that an equal name is an equal image."""
    whole = {
        "steps": {step.name: step.hash for step in steps(config, folder)},
        "parameters": parameters(config),
        "image": recipe(config).image,
        "content": content(config, folder),
        "extra": dict(extra or {}),
    }
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]


def versions(config: ClusterConfig) -> dict[str, str]:
    """Labels that say what is in the image: recipe, date of Ubuntu's archive, kernel, driver, cuda, slurm, lustre."""
    row, gpus = recipe(config), bool(gpu_types(config))
    release = config.slurm_version
    lustre = row.client.version if row.client else row.lustre
    found = {
        "recipe": row.version,
        "snapshot": snapshot(config).lower(),
        "kernel": row.kernel or "distribution",
        "driver": row.driver.version if gpus else "none",
        "cuda": row.cuda if gpus else "none",
        "slurm": row.slurm[release].version if release in row.slurm else release,
        "lustre": lustre,
    }
    return {name: value.replace(".", "-") for name, value in found.items()}


def job_programs(config: ClusterConfig) -> Collection[str]:
    """Return those of the recipe, and those that the stack file asks for. An image that is named has what its recipe
    says."""
    row = recipe(config)
    found = {"pyxis": row.enroot and row.pyxis, "apptainer": row.apptainer, "mpi": row.slurm}
    return {name for name, there in found.items() if there} | set(packaged(config))


def rxdm_of_driver(config: ClusterConfig) -> RxdmVersion:
    """The version that `slurm.rxdm` stages by default: the newest if no recipe says which driver."""
    row = recipe_row(config)
    return fitting(row.driver.version) if row else NEWEST


def recipe_row(config: ClusterConfig) -> Recipe | None:
    """Any row of the version and system: their drivers are the same, whatever Lustre."""
    wanted = (config.image.recipe, config.image.base)
    return next((row for (version, base, _), row in RECIPES.items() if (version, base) == wanted), None)
