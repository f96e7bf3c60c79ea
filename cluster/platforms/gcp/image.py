"""The image of machines on Google Cloud: its source, its contents and versions, and the program that installs them."""

import hashlib
import json
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cluster.catalog.base_system import MONITORING
from cluster.catalog.fabrics import FABRICS, TCPXO
from cluster.catalog.machine_families import ACCELERATORS
from cluster.catalog.recipes import RECIPES, Download, GpuDriver, Recipe, Source
from cluster.config.cluster import ClusterConfig
from cluster.findings import ConfigError, Finding
from cluster.platform_interface import packaged
from cluster.platforms.gcp.address_plan import fabrics
from cluster.platforms.gcp.filesystems.registry import lustre_client
from cluster.roster import MachineSpec, nodeset_gpu, nodeset_type
from cluster.slurm.script_tree import read_script

PROJECT = Path(__file__).parents[3]
FOLDER = PROJECT / "scripts" / "image"
LARGEST = 256 * 1024
"""Largest size in bytes of a value in an instance's metadata, by which the builder gets the program."""
ROOT = "/var/lib/hpc/install"
"""Folder on the machine with the finished steps, and with `state`: `running NAME`, `done` or `failed NAME`."""
LOG = "/var/log/hpc-install.log"


@dataclass(frozen=True, kw_only=True)
class ImageStep:
    """A step of the program."""

    name: str
    """Name in progress reports and failures, such as 30-slurm."""
    text: str
    hash: str
    """A hash of the text, the library, and the parameters that either uses: if it changes, the step runs again."""


def step(name: str, parameters: Mapping[str, str]) -> ImageStep:
    """Return the step of that name in scripts/image."""
    text = _read(_files()[name])
    return step_of_text(name, text, parameters, hashed=without_comments(text))


def step_of_text(name: str, text: str, parameters: Mapping[str, str], *, hashed: str | None = None) -> ImageStep:
    """Return a step with this text, which begins with #!. By default all of it is hashed: its language is unknown."""
    whole = hashlib.sha256()
    library = _read("library.sh")
    for part in (hashed or text, without_comments(library)):
        whole.update(part.encode() + b"\0")
    for key in sorted((_words(text) | _words(library)) & set(parameters)):
        whole.update(f"{key}={parameters[key]}\0".encode())
    return ImageStep(name=name, text=text, hash=whole.hexdigest()[:16])


@cache
def without_comments(text: str) -> str:
    """Return a script of this program without comments and blank lines, which do not change what it does.

    Comments in the files that the script writes are removed as well.
    """
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not re.match(r"\s*#(?!!)", line)) + "\n"


@cache
def _words(text: str) -> frozenset[str]:
    """Return the words of a text that may be names of parameters."""
    return frozenset(re.findall(r"\b[A-Z][A-Z0-9_]+\b", text))


def own_steps(config: ClusterConfig, parameters: Mapping[str, str]) -> list[ImageStep]:
    """Return the stack's own steps, `image.provision`; files are read from the project's folder.

    Raises ConfigError with every file that is missing or is no script.
    """
    findings: list[Finding] = []
    steps: list[ImageStep] = []
    for index, provision in enumerate(config.image.provision):
        if provision.url:
            text = _download_script(provision.url, provision.sha256 or "")
        elif provision.text is not None:
            text = provision.text
        else:
            text = read_script(str(provision.file), ("image", "provision", index, "file"), PROJECT, findings)
        steps.append(step_of_text(f"70.{index:02d}-{provision.name}", text, parameters))
    if findings:
        raise ConfigError(findings)
    return steps


def program(cluster: str, steps: list[ImageStep], parameters: Mapping[str, str], root: str = ROOT) -> str:
    """Return the whole program: parameters, steps, and the code that runs them. It records finished steps in `root`."""
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
    """Raise ConfigError for a program that is larger than a value in an instance's metadata may be."""
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
    """Return lines of bash that write a file of the program. A word that is not in the file marks its end."""
    end = f"END-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path = f'"$ROOT/steps/{name}"'
    return [f"cat >{path} <<'{end}'", *text.rstrip("\n").split("\n"), end, f"chmod {mode} {path}"]


@cache
def _files() -> dict[str, str]:
    """Return the file of each step by the step's name, from all folders."""
    return {path.stem: str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*.sh")}


@cache
def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


TRIAL_ROOT = "/var/lib/hpc/trial"
"""Folder of the trial of a finished image, beside that of the bake."""
BAKED = ("ubuntu-2204",)
"""Bases that are baked by default: building drivers, Slurm and a Lustre client takes an hour."""


def bakes(config: ClusterConfig) -> bool:
    """Return whether the stack bakes an image."""
    if config.image.name:
        return False
    return config.image.base in BAKED if config.image.bake is None else config.image.bake


def installs(config: ClusterConfig) -> bool:
    """Return whether each machine installs its software at its first boot."""
    return not config.image.name and not bakes(config)


def secure_boot(config: ClusterConfig, spec: MachineSpec) -> bool:
    """Return whether a machine has Secure Boot, with which the kernel refuses unsigned modules.

    Drivers and Lustre clients are built on the machine or in a bake (DKMS), without a signature that the firmware
    accepts. So only machines with nothing but the distribution's modules can have it: those of a plain base without
    GPUs and without Lustre.
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
    """Return the packages of `image.packages`, sorted, since their order does not matter."""
    return " ".join(sorted(set(config.image.packages)))


def parts(config: ClusterConfig) -> dict[str, str]:
    """Return the optional parts of an image and their values; the value is empty for a part that it does not have."""
    used_fabrics = {fabric.key for fabric in fabrics(config)}
    return {
        "gpus": ("open" if open_driver(config) else "closed") if gpu_types(config) else "",
        **{fabric.key: "yes" if fabric.key in used_fabrics else "" for fabric in FABRICS if fabric.key},
        "local_ssds": "yes" if local_ssds(config) else "",
        "monitoring": "yes" if config.monitoring else "",
        "gpu_metrics": "yes" if config.monitoring and gpu_types(config) and recipe(config).dcgm_exporter else "",
        "gcsfuse": "yes" if config.storage.buckets else "",
    }


def recipe(config: ClusterConfig) -> Recipe:
    """Return the row of the catalog for this version, operating system and kind of Lustre.

    Raises ConfigError, with the existing rows, if there is none.
    """
    kind = lustre_client(config)
    version = config.image.recipe
    row = RECIPES.get((version, config.image.base, kind))
    if row is None:
        others = sorted(base for of, base, lustre in RECIPES if (of, lustre) == (version, kind))
        finding = Finding(
            id="image-recipe",
            at=("image", "base"),
            given=config.image.base,
            allowed=f"an operating system with a client for {kind} Lustre: {', '.join(others) or 'none'}",
            todo=f"write `base: {others[0]}`, or remove storage.lustre" if others else "remove storage.lustre",
        )
        raise ConfigError([finding])
    return row


def driver(config: ClusterConfig) -> GpuDriver:
    """Return NVIDIA's driver of the image: the one for rxdm where nodes are A3 Mega."""
    row = recipe(config)
    return row.rxdm_driver if row.rxdm_driver and TCPXO in fabrics(config) else row.driver


def snapshot(config: ClusterConfig) -> str:
    """Return the date of Ubuntu's archive that packages come from."""
    return config.image.snapshot or recipe(config).snapshot


def steps(config: ClusterConfig) -> list[ImageStep]:
    """Return the steps of the program in their order."""
    row, types = recipe(config), gpu_types(config)
    gpus, baked = bool(types), bakes(config)
    fabric_steps = {name for fabric in fabrics(config) for name in fabric.image_steps}
    chosen = {
        "10-updates": True,
        "12-kernel": bool(row.kernel),
        "13-upgrade": True,
        "14-tools": True,
        "16-gvnic": row.gve is not None,
        "18-nfs": True,
        "20-nvidia": gpus and bool(driver(config).package),
        "21-server-driver": gpus and not driver(config).package,
        "22-containers": gpus and bool(row.container_toolkit),
        "24-dcgm": gpus and bool(row.dcgm),
        "26-dmabuf": "26-dmabuf" in fabric_steps,
        "27-gib": "27-gib" in fabric_steps,
        "28-aperture": "28-aperture" in fabric_steps,
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
        "54-network": "54-network" in fabric_steps,
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
    values = parameters(config)
    rows: list[ImageStep] = []
    for name, is_needed in chosen.items():
        if name == "70-own":
            rows += own_steps(config, values)
        elif is_needed:
            rows.append(step(name, values))
    return rows


def parameters(config: ClusterConfig) -> dict[str, str]:
    """Return the environment variables of the steps. Software whose variable is missing is not installed."""
    row, gpus = recipe(config), bool(gpu_types(config))
    values = {"BAKE": "1" if bakes(config) else "0", "KERNEL": row.kernel, "LUSTRE": row.lustre, "RECIPE": row.version}
    values |= {"KERNEL_DAY": row.kernel_day}
    # The kernel comes from the archive of the recipe's own date: a later one may lack it.
    values |= {"SNAPSHOT": snapshot(config)}
    values |= {"KERNEL_SNAPSHOT": row.snapshot} if row.kernel and values["SNAPSHOT"] != row.snapshot else {}
    if gpus:
        chosen = driver(config)
        values |= {"DRIVER_BRANCH": chosen.branch, "DRIVER_PACKAGE": chosen.package, "DCGM": row.dcgm}
        values |= {"CONTAINER_TOOLKIT": row.container_toolkit, "DRIVER_CUDA": str(chosen.cuda)}
        if chosen.package:
            flavour = "-open" if open_driver(config) else ""
            values |= {"DRIVER_VERSION": chosen.version, "DRIVER_FLAVOUR": flavour, "CUDA": row.cuda}
    for fabric in fabrics(config):
        values |= {name: value.format_map(vars(row)) for name, value in fabric.image_parameters.items()}
    values |= {"GCSFUSE": row.gcsfuse} if config.storage.buckets else {}
    values |= {"IMAGE_PACKAGES": _packages(config)}
    if config.monitoring:
        values |= {"MONITORING": " ".join(MONITORING), "DCGM_EXPORTER": row.dcgm_exporter if gpus else ""}
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
            values |= {f"{name}_{key.upper()}": value for key, value in vars(source).items()}
    return {name: value for name, value in sorted(values.items()) if value}


def bake_script(config: ClusterConfig) -> str:
    """Return the whole program, for a builder's start-up script or a machine's first boot. It is idempotent.

    Raises ConfigError for an own step that can't be read.
    """
    text = program(config.name, steps(config), parameters(config))
    check_size(text)
    return text


def trial_script(config: ClusterConfig) -> str:
    """Return the program for the first machine that boots the finished image: it tests the installed software."""
    values = parameters(config)
    return program(config.name, [step(name, values) for name in ("90-smoke", "91-boot")], values, TRIAL_ROOT)


def content(config: ClusterConfig) -> dict[str, str]:
    """Return the contents of the image by name: the recipe's version, and what the stack file asks for.

    Equal contents are one image, and a preview shows which content replaces it. The text of this program's steps is not
    included: otherwise a newer program would recreate all machines for a corrected comment. Versions of software with a
    security floor are, so that `up` brings a fix to a cluster that is up.
    """
    values = {
        "recipe": config.image.recipe,
        "base": config.image.base,
        "snapshot": snapshot(config),
        "size_gb": str(config.image.builder.size_gb),
        "lustre": lustre_client(config),
        "packages": _packages(config),
        **software(config),
        **parts(config),
        **{step.name: hashlib.sha256(step.text.encode()).hexdigest()[:16] for step in own_steps(config, {})},
    }
    return {name: value for name, value in values.items() if value}


def boots_from(config: ClusterConfig) -> str:
    """Return an id of the image that machines boot from; that of a baked image is a hash of its content."""
    if not bakes(config):
        return config.image.name or recipe(config).image
    return hashlib.sha256(json.dumps(content(config), sort_keys=True).encode()).hexdigest()[:16]


def digest(config: ClusterConfig) -> str:
    """Return 12 hex digits of a hash of all inputs of the image, so that images of one name are equal."""
    inputs = {
        "steps": {step.name: step.hash for step in steps(config)},
        "parameters": parameters(config),
        "image": recipe(config).image,
        "content": content(config),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def versions(config: ClusterConfig) -> dict[str, str]:
    """Return the image's labels: recipe, date of Ubuntu's archive, versions of kernel, driver, CUDA, Slurm, Lustre."""
    row, gpus = recipe(config), bool(gpu_types(config))
    release = config.slurm_version
    values = {
        "recipe": row.version,
        "snapshot": snapshot(config).lower(),
        "kernel": row.kernel or "distribution",
        "driver": driver(config).version if gpus else "none",
        "cuda": row.cuda if gpus else "none",
        "slurm": row.slurm[release].version if release in row.slurm else release,
        "lustre": row.client.version if row.client else row.lustre,
    }
    return {name: value.replace(".", "-") for name, value in values.items()}


def software(config: ClusterConfig) -> dict[str, str]:
    """Return the versions of the components of cluster/catalog/floors.py that the recipe pins."""
    row, gpus = recipe(config), bool(gpu_types(config))
    release = config.slurm_version
    values = {
        "slurm": row.slurm[release].version if release in row.slurm else "",
        "slurm-wlm": "" if row.slurm else release,
        "linux": row.kernel.removesuffix("-gcp"),
        "nvidia": driver(config).version if gpus and driver(config).package else "",
        "nvidia-container-toolkit": row.container_toolkit if gpus else "",
        "enroot": row.enroot.version if row.enroot else "",
        "apptainer": row.apptainer.version if row.apptainer else "",
    }
    return {name: version for name, version in values.items() if version}


def job_programs(config: ClusterConfig) -> Collection[str]:
    """Return the job programs of the recipe, and those that the stack file asks for. An existing image (`image.name`)
    has those of its recipe."""
    row = recipe(config)
    programs = {"pyxis": row.enroot and row.pyxis, "apptainer": row.apptainer, "mpi": row.slurm}
    return {name for name, source in programs.items() if source} | set(packaged(config))
