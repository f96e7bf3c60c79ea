"""A stand-in of the hosts that a bake downloads files from: which files they have."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from components import public_files

_FETCH = public_files.fetch
_COMMIT = "commit/[0-9a-f]{40}"
_POOL = "pool/main/l"

FILES: Mapping[str, tuple[str, ...]] = {
    # Fields Filename of Packages of jammy-updates, 2026-11-27 01:14 UTC (Ubuntu's archive), below a date of snapshots,
    # which begin in March 2023 (snapshot.ubuntu.com).
    "snapshot.ubuntu.com": tuple(
        rf"ubuntu/202[3-6]\d{{4}}T\d{{6}}Z/{path}"
        for path in (
            "dists/jammy(-updates|-security)?/InRelease",
            f"{_POOL}/linux-gcp/linux-headers-5.15.0-1122-gcp_5.15.0-1122.132_amd64.deb",
            f"{_POOL}/linux-gcp/linux-modules-5.15.0-1122-gcp_5.15.0-1122.132_amd64.deb",
            f"{_POOL}/linux-gcp/linux-modules-extra-5.15.0-1122-gcp_5.15.0-1122.132_amd64.deb",
            f"{_POOL}/linux-signed-gcp/linux-image-5.15.0-1122-gcp_5.15.0-1122.132_amd64.deb",
            f"{_POOL}/linux-gcp-6.8/linux-headers-6.8.0-1074-gcp_6.8.0-1074.82~22.04.1_amd64.deb",
            f"{_POOL}/linux-gcp-6.8/linux-modules-6.8.0-1074-gcp_6.8.0-1074.82~22.04.1_amd64.deb",
            f"{_POOL}/linux-gcp-6.8/linux-modules-extra-6.8.0-1074-gcp_6.8.0-1074.82~22.04.1_amd64.deb",
            f"{_POOL}/linux-signed-gcp-6.8/linux-image-6.8.0-1074-gcp_6.8.0-1074.82~22.04.1_amd64.deb",
        )
    ),
    # Addresses in public scripts, 2026-11, and lists of dpkg on machines with packages of this repository.
    "developer.download.nvidia.com": tuple(
        f"compute/cuda/repos/ubuntu2204/x86_64/{name}_amd64.deb"
        for name in (
            r"(libnvidia-(cfg1|compute)|nvidia-(compute-utils|kernel-common|utils))-580_580\.(95\.05-0|159\.03-1)ubuntu1",
            r"nvidia-(dkms|kernel-source)-580(-open)?_580\.(95\.05-0|159\.03-1)ubuntu1",
            r"nvidia-modprobe_580\.(95\.05-0|159\.03-1)ubuntu1",
            "cuda-toolkit-12-8_12.8.[01]-1",
            "nvidia-container-toolkit_1.19.1-1",
            "datacenter-gpu-manager-4-cuda13_4.5.2-1",
            r"libnccl2_2.27.5-1\+cuda12.9",
        )
    ),
    "download.schedmd.com": (r"slurm/slurm-25\.11\.8\.tar\.bz2",),
    # Pages of commits, archives of tags, and files of releases (docs.github.com).
    "github.com": (
        f"(NVIDIA/enroot|NVIDIA/pyxis|lustre/lustre-release)/{_COMMIT}",
        f"GoogleCloudPlatform/compute-virtual-ethernet-linux/{_COMMIT}",
        r"SchedMD/slurm/archive/refs/tags/slurm-26-05-5-1\.tar\.gz",
        r"apptainer/apptainer/releases/download/v1\.4\.5/apptainer_1\.4\.5_amd64\.deb",
    ),
}
"""Patterns of paths by host."""


def is_published(host: str, path: str) -> bool:
    """Whether a host has a file."""
    return any(re.fullmatch(f"/{pattern}", path) for pattern in FILES.get(host, ()))


def served_at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send requests for public files to a server of the test's, by an address with {} for the host and the path."""

    def fetch(url: str, *more: Any, **options: Any) -> tuple[bytes, Mapping[str, str]]:
        return _FETCH(endpoint.format(url.removeprefix("https://")), *more, **options)

    monkeypatch.setattr(public_files, "fetch", fetch)
