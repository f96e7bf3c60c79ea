"""Checks of files that a bake downloads by their exact names, from hosts of others than Google."""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from cluster.catalog.recipes import Recipe
from cluster.cloud_checks import CloudCheck, Seen
from cluster.findings import listing
from cluster.platforms.gcp.cloud_request import AskedStack
from cluster.platforms.gcp.image import bakes, boots_from, parameters, recipe

KERNEL = "Ubuntu's snapshot of the recipe's day has the pinned kernel, with modules-extra and headers."
DRIVER = (
    "NVIDIA's repository for Ubuntu 22.04 has the driver's packages at the pinned version, with names by branch up to "
    "580."
)
"""The assumptions that these rows settle."""
_UBUNTU = "https://snapshot.ubuntu.com/ubuntu"
"""Source of paths below a date: Filename in Packages of jammy-updates, 2026-11-27 01:14 UTC (Ubuntu's archive)."""
_NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64"
"""All files are in one folder. Source: addresses of packages in public scripts, such as
libnvidia-compute-580_580.159.03-1ubuntu1_amd64.deb and datacenter-gpu-manager-4-cuda13_4.5.2-1_amd64.deb, 2026-11. The
names of others follow Debian's rule, so a missing one is for a person to compare."""
_OF_DRIVER = (
    "nvidia-dkms-{0}{1} nvidia-kernel-source-{0}{1} nvidia-kernel-common-{0} nvidia-compute-utils-{0} nvidia-utils-{0} "
    "libnvidia-compute-{0} libnvidia-cfg1-{0} nvidia-modprobe"
)
"""Packages of scripts/image/gpu/20-nvidia.sh, by the driver's branch and flavour."""


def packages(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield checks of the packages and sources of an image that is to be baked."""
    config = stack.config
    if not bakes(config) or (stack.before and boots_from(stack.before) == boots_from(config)):
        return
    row, values = recipe(config), parameters(config)
    day = values["SNAPSHOT"]
    yield _check(f"Ubuntu's archive of {day}", _indexes(day), "set image.snapshot to another day")
    gone = "report this; until then, set image.recipe to a later one or image.name to an image that exists"
    yield _check(f"kernel {row.kernel} in Ubuntu's archive of {row.snapshot}", _kernel(row), gone, KERNEL)
    if driver := values.get("DRIVER_PACKAGE"):
        names = _OF_DRIVER.format(values["DRIVER_BRANCH"], values.get("DRIVER_FLAVOUR", "")).split()
        compare = f"compare with {_NVIDIA}, where a file may have another name; if it is gone, {gone}"
        files = _nvidia(dict.fromkeys(names, driver))
        yield _check(f"NVIDIA's driver {driver}", files, compare, DRIVER, certain=False)
        files = _nvidia(_others(values))
        yield _check(f"NVIDIA's other packages of recipe {row.version}", files, compare, certain=False)
    yield _check(f"sources of recipe {row.version}", _sources(values), gone)


def _check(asks: str, urls: Sequence[str], todo: str, *assumptions: str, certain: bool = True) -> CloudCheck:
    def read(*found: bool) -> Seen:
        if missing := [url for url, there in zip(urls, found, strict=True) if not there]:
            return Seen(text=f"gone: {listing(missing)}", todo=todo, unclear=not certain)
        return Seen(text=f"all {len(urls)} files are there")

    return CloudCheck(id="packages", asks=asks, requests=tuple(urls), read=read, assumptions=assumptions)


def _indexes(day: str) -> list[str]:
    """Return the indexes that `archive` of scripts/image/library.sh names."""
    return [f"{_UBUNTU}/{day}/dists/jammy{pocket}/InRelease" for pocket in ("", "-updates", "-security")]


def _kernel(row: Recipe) -> list[str]:
    """Return the packages of scripts/image/system/12-kernel.sh, and the index with them."""
    source, _, version = row.kernel_source.partition("_")
    signed = source.replace("linux-", "linux-signed-", 1)
    sources = {"image": signed, "modules": source, "modules-extra": source, "headers": source}
    pool = f"{_UBUNTU}/{row.snapshot}/pool/main/l"
    files = [f"{pool}/{of}/linux-{kind}-{row.kernel}_{version}_amd64.deb" for kind, of in sources.items()]
    return [*files, _indexes(row.snapshot)[1]]


def _others(values: Mapping[str, str]) -> dict[str, str]:
    """Return the version of one package of each other step in scripts/image/gpu."""
    branch = "-".join(values["CUDA"].split(".")[:2])
    return {
        f"cuda-toolkit-{branch}": f"{values['CUDA']}-1",
        "nvidia-container-toolkit": values["CONTAINER_TOOLKIT"],
        f"datacenter-gpu-manager-4-cuda{values['DRIVER_CUDA']}": values["DCGM"],
        **({"libnccl2": values["NCCL"]} if "NCCL" in values else {}),
    }


def _nvidia(versions: Mapping[str, str]) -> list[str]:
    # A file's name has no epoch (deb-version(7)).
    names = [f"{name}_{version.rpartition(':')[2]}_amd64.deb" for name, version in versions.items()]
    return [f"{_NVIDIA}/{quote(name)}" for name in names]


def _sources(values: Mapping[str, str]) -> list[str]:
    """Return files that are downloaded as they are, and commits, whose pages on GitHub have these addresses."""
    urls = {name.removesuffix("_URL"): url for name, url in values.items() if name.endswith("_URL")}
    commits = {name: values.get(f"{name}_COMMIT", "") for name in urls}
    return [f"{url}/commit/{commits[name]}" if commits[name] else url for name, url in urls.items()]
