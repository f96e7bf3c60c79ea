"""Types of the section `nebius`: ids of Nebius's API, versions, block sizes."""

from typing import Annotated

from pydantic import AfterValidator, Field, Strict, WithJsonSchema

from cluster.config.validators.choices import matching, one_of
from cluster.platforms.nebius.machine_types import NEBIUS_DISKS, REGIONS


def _check(prefix: str, where: str) -> AfterValidator:
    pattern = f"{prefix}-[a-z0-9]{{1,80}}"
    return AfterValidator(matching(pattern, f"an id that begins with {prefix}-", f"copy it from {where}"))


def _schema(prefix: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{prefix}-[a-z0-9]+$"})


# Prefixes of ids: nebius-solutions-library, soperator/installations/example/variables.tf.
TenantId = Annotated[str, _check("tenant", "`nebius iam tenant list`"), _schema("tenant")]
ProjectId = Annotated[str, _check("project", "`nebius iam project list`"), _schema("project")]
SubnetId = Annotated[str, _check("vpcsubnet", "`nebius vpc subnet list`"), _schema("vpcsubnet")]
FilesystemId = Annotated[
    str, _check("computefilesystem", "`nebius compute filesystem list`"), _schema("computefilesystem")
]
GpuClusterId = Annotated[
    str, _check("computegpucluster", "`nebius compute gpu-cluster list`"), _schema("computegpucluster")
]
Version = Annotated[
    str,
    AfterValidator(
        matching("[0-9]{1,4}[.][0-9]{1,4}[.][0-9]{1,4}", "a version of three numbers, e.g. 4.1.7", "quote it in YAML")
    ),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]+[.][0-9]+[.][0-9]+$"}),
]
KubernetesVersion = Annotated[
    str,
    AfterValidator(matching("1[.][0-9]{2}", "a minor version of Kubernetes, e.g. '1.35'", "quote it in YAML")),
    WithJsonSchema({"type": "string", "pattern": "^1[.][0-9]{2}$"}),
]
SubmountName = Annotated[
    str,
    AfterValidator(
        matching(
            "[a-z]([-a-z0-9]{0,28}[a-z0-9])?",
            "1 to 30 of a-z, 0-9 and -, a letter first and no - last, e.g. mlperf-sd",
            "shorten it: it is part of names of a file system and of a volume",
        )
    ),
    WithJsonSchema({"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 30}),
]
DiskType = Annotated[
    str,
    AfterValidator(one_of(NEBIUS_DISKS, "a disk type of Nebius")),
    WithJsonSchema({"type": "string", "enum": list(NEBIUS_DISKS)}),
]
RegionName = Annotated[
    str,
    AfterValidator(one_of(REGIONS, "a region of Nebius")),
    WithJsonSchema({"type": "string", "enum": list(REGIONS)}),
]
GibiBytes = Annotated[int, Strict(), Field(ge=1, le=262_144)]
"""GiB of a disk or a file system."""
BootDiskGib = Annotated[int, Strict(), Field(ge=128, le=8192)]
"""GiB of a boot disk: Kubernetes keeps 48 GiB and 15 % of it."""
