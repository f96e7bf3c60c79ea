"""What is installed on machines of Google Cloud: which steps of scripts/image, in which order, with which versions."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.catalog.machines import MACHINE_TYPES
from cluster.catalog.recipes import RECIPES
from cluster.config.findings import ConfigError, Finding
from cluster.gcp.baking import bakes
from cluster.gcp.program import Step, check_size, own_steps, program, step
from cluster.roster import nodeset_gpu, nodeset_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.catalog.recipes import Download, Recipe, Source
    from cluster.config.cluster import ClusterConfig

PROJECT = Path(__file__).parents[2]
CLOSED_ONLY = frozenset({"p4", "p100", "v100"})
"""GPUs older than Turing, which NVIDIA's open kernel modules do not drive (their README)."""


def recipe(config: ClusterConfig) -> Recipe:
    """The row of the catalog for this operating system and kind of Lustre.

    Raises ConfigError where there is none, with what there is.
    """
    kind = lustre_kind(config)
    found = RECIPES.get((config.image.base, kind))
    if found is None:
        others = sorted(base for base, lustre in RECIPES if lustre == kind)
        raise ConfigError(
            [
                Finding(
                    where="hpc:cluster.image.base",
                    given=config.image.base,
                    allowed=f"an operating system with a client for {kind} Lustre: {', '.join(others) or 'none'}",
                    todo=f"write `base: {others[0]}`, or remove storage.lustre" if others else "remove storage.lustre",
                )
            ]
        )
    return found


def lustre_kind(config: ClusterConfig) -> str:
    """exascaler, managed or none."""
    return config.storage.lustre.kind if config.storage.lustre else "none"


def steps(config: ClusterConfig, folder: Path = PROJECT) -> list[Step]:
    """What is done, in order; own steps named by a path are read from `folder`."""
    row, types = recipe(config), _gpu_types(config)
    gpus, baked = bool(types), bakes(config)
    chosen = {
        "10-updates": True,
        "12-kernel": bool(row.kernel),
        "14-tools": True,
        "16-gvnic": row.gve is not None,
        "18-nfs": True,
        "20-nvidia": gpus and bool(row.driver.package),
        "21-server-driver": gpus and not row.driver.package,
        "22-containers": gpus and bool(row.container_toolkit),
        "24-dcgm": gpus and bool(row.dcgm),
        "26-dmabuf": _tcpxo(config),
        "28-aperture": _tcpxo(config),
        "30-slurm": bool(row.slurm),
        "31-slurm-packages": not row.slurm,
        "32-enroot": row.enroot is not None,
        "34-pyxis": row.pyxis is not None,
        "36-apptainer": row.apptainer is not None,
        "40-lustre-client": row.client is not None,
        "41-lustre-managed": row.lustre == "managed",
        "44-gcsfuse": bool(config.storage.buckets),
        "46-ops-agent": True,
        "50-localssd": any(nodeset_type(config, section).local_ssds for section in config.nodesets.values()),
        "52-limits": True,
        "54-network": _tcpxo(config),
        "56-hostname": row.enroot is not None,
        "70-own": True,
        "80-gcloud": True,
        "90-smoke": True,
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
    """What the steps are told; a name that is missing or empty is not wanted."""
    row, gpus = recipe(config), bool(_gpu_types(config))
    found = {"BAKE": "1" if bakes(config) else "0", "KERNEL": row.kernel, "LUSTRE": row.lustre}
    if gpus:
        found |= {"DRIVER_BRANCH": row.driver.branch, "DRIVER_PACKAGE": row.driver.package, "DCGM": row.dcgm}
        found |= {"CONTAINER_TOOLKIT": row.container_toolkit}
        if row.driver.package:
            flavour = "" if CLOSED_ONLY & _gpu_types(config) else "-open"
            found |= {"DRIVER_VERSION": row.driver.version, "DRIVER_FLAVOUR": flavour, "CUDA": row.cuda}
    found |= {"TCPXO": "1"} if _tcpxo(config) else {}
    found |= {"GCSFUSE": row.gcsfuse} if config.storage.buckets else {}
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


def digest(config: ClusterConfig, extra: Mapping[str, str] | None = None, folder: Path = PROJECT) -> str:
    """12 hex digits of everything that goes into the image, so that an equal name is an equal image."""
    content = {
        "program": bake_script(config, folder),
        "image": recipe(config).image,
        "size_gb": config.image.builder.size_gb,
        "extra": dict(extra or {}),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def versions(config: ClusterConfig) -> dict[str, str]:
    """Labels that say what is in the image: kernel, driver, cuda, slurm, lustre."""
    row, gpus = recipe(config), bool(_gpu_types(config))
    release = config.slurm_version
    lustre = row.client.version if row.client else row.lustre
    found = {
        "kernel": row.kernel or "distribution",
        "driver": row.driver.version if gpus else "none",
        "cuda": row.cuda if gpus else "none",
        "slurm": row.slurm[release].version if release in row.slurm else release,
        "lustre": lustre,
    }
    return {name: value.replace(".", "-") for name, value in found.items()}


def _gpu_types(config: ClusterConfig) -> set[str]:
    return {gpu.type for section in config.nodesets.values() if (gpu := nodeset_gpu(config, section))}


def _tcpxo(config: ClusterConfig) -> bool:
    """Whether there are nodes whose GPUs have network interfaces of their own."""
    found = {nodeset_type(config, section).name for section in config.nodesets.values()}
    return any(MACHINE_TYPES[name].nics > 1 for name in found)
