"""Types of configuration values: Python types with their validators and their JSON Schema."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, Strict, WithJsonSchema

from cluster.catalog import DISK_TYPES, IMAGES, MACHINE_TYPES, SYSTEMS, bounds
from cluster.catalog.recipes import NEWEST
from cluster.config import ssh_key, validators

# Strict, because YAML has numbers and truth values: a quoted "2", or yes that became text, is a mistake.
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Positive = Annotated[int, Strict(), Field(ge=1)]
Natural = Annotated[int, Strict(), Field(ge=0)]
Stored = Annotated[int, Strict(), Field(ge=0, le=bounds.SIGNED)]
"""A number of the accounting database."""
StoredPositive = Annotated[int, Strict(), Field(ge=1, le=bounds.SIGNED)]
Shares = Annotated[int, Strict(), Field(ge=1, le=bounds.FAIRSHARE)]
Resources = Annotated[int, Strict(), Field(ge=0, le=bounds.COUNT)]
Hours = Annotated[int, Strict(), Field(ge=0, le=bounds.COUNT // 60)]
Mebibytes = Annotated[int, Strict(), Field(ge=1, le=bounds.MEBIBYTES)]
Seconds = Annotated[int, Strict(), Field(ge=0, le=65533)]
"""Slurm keeps timers in 16 bits, with the two highest values for 'not set' and 'infinite'."""


def text_schema(**more: Any) -> WithJsonSchema:  # noqa: ANN401 - JSON Schema's own values
    """Return the JSON Schema of a text, by which editors check a pattern or complete an enumeration."""
    return WithJsonSchema({"type": "string", **more})


def _host_part(longest: int) -> WithJsonSchema:
    return text_schema(pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$", maxLength=longest)


_LOWER = text_schema(pattern="^[a-z][-_a-z0-9]*$", maxLength=40)
_LOGIN = text_schema(pattern="^[a-z_][-a-z0-9_]*$", maxLength=32)
_PATH = text_schema(pattern="^(/[A-Za-z0-9._-]+)+$")
_CIDR = text_schema(pattern="^[0-9.]+/[0-9]+$", examples=["10.77.0.0/20"])

ClusterName = Annotated[str, AfterValidator(validators.cluster_name), _host_part(validators.LONGEST_CLUSTER_NAME)]
NodesetName = Annotated[str, AfterValidator(validators.nodeset_name), _host_part(validators.LONGEST_NODESET_NAME)]
MachineTypeName = Annotated[str, AfterValidator(validators.machine_type), text_schema(enum=list(MACHINE_TYPES))]
ImageName = Annotated[str, AfterValidator(validators.base_image), text_schema(enum=list(IMAGES))]
RecipeVersion = Annotated[str, AfterValidator(validators.recipe), text_schema(enum=[NEWEST])]
NodeCount = Annotated[
    int,
    Strict(),
    AfterValidator(validators.node_count),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": bounds.MOST_NODES, "examples": [2]}),
]
Duration = Annotated[
    str,
    BeforeValidator(validators.duration),
    text_schema(pattern="^[1-9][0-9]*[smhd]$", examples=["10m"]),
]
"""A time as systemd writes it: 90s, 10m, 2h, 1d."""
PartitionName = Annotated[
    str, AfterValidator(validators.partition_name), text_schema(pattern="^[A-Za-z][-_A-Za-z0-9]*$")
]
AccountName = Annotated[str, AfterValidator(validators.slurm_name), _LOWER]
QosName = Annotated[str, AfterValidator(validators.slurm_name), _LOWER]
PackageName = Annotated[
    str, AfterValidator(validators.package_name), text_schema(pattern="^[a-z0-9][a-z0-9+.-]*[a-z0-9+.]$", maxLength=100)
]
UserName = Annotated[str, AfterValidator(validators.unix_name), _LOGIN]
GroupName = Annotated[str, AfterValidator(validators.unix_name), _LOGIN]
RegularId = Annotated[
    int,
    Strict(),
    AfterValidator(validators.regular_id),
    WithJsonSchema(
        {"type": "integer", "anyOf": [{"minimum": low, "maximum": high} for low, high in validators.REGULAR_UIDS]}
    ),
]
PublicKey = Annotated[
    str, AfterValidator(ssh_key.public_key), text_schema(pattern="^(ssh|ecdsa|sk)-", examples=["ssh-ed25519 AAAAC3..."])
]
Cidr = Annotated[str, AfterValidator(validators.private_network), _CIDR]
ClusterCidr = Annotated[str, AfterValidator(validators.cluster_cidr), _CIDR]
MountPoint = Annotated[str, AfterValidator(validators.mount_point), _PATH]
Program = Annotated[str, AfterValidator(validators.absolute_path), _PATH]
Words = Annotated[str, AfterValidator(validators.one_line_text), text_schema(maxLength=validators.LONGEST_WORDS)]
Feature = Annotated[str, AfterValidator(validators.feature)]
ScriptName = Annotated[
    str, AfterValidator(validators.script_name), text_schema(pattern="^[a-z0-9][a-z0-9_-]*$", maxLength=63)
]
ScriptFile = Annotated[str, AfterValidator(validators.script_file), text_schema(examples=["scripts/gpu-check.sh"])]
ScriptUrl = Annotated[str, AfterValidator(validators.script_url), text_schema(pattern="^https://")]
ScriptText = Annotated[str, AfterValidator(validators.script_text), text_schema(pattern="^#!/")]
LuaText = Annotated[
    str,
    AfterValidator(validators.lua_text),
    text_schema(examples=["function slurm_job_submit(job, partitions, uid) ..."]),
]
ContainerImage = Annotated[
    str, AfterValidator(validators.container_image), text_schema(examples=["nvcr.io/nvidia/pytorch:24.04-py3"])
]
Sha256 = Annotated[str, AfterValidator(validators.sha256), text_schema(pattern="^[0-9a-f]{64}$")]
SystemName = Annotated[str, AfterValidator(validators.system), text_schema(enum=list(SYSTEMS))]
DiskTypeName = Annotated[str, AfterValidator(validators.disk_type), text_schema(enum=list(DISK_TYPES))]
ZoneName = Annotated[str, AfterValidator(validators.zone), text_schema(pattern=f"^{validators.ZONE}$")]
ServerAddress = Annotated[str, AfterValidator(validators.server_address), text_schema(examples=["10.128.0.3"])]
FsName = Annotated[str, AfterValidator(validators.lustre_name), text_schema(pattern="^[A-Za-z0-9]{1,8}$")]
SourceCidr = Annotated[str, AfterValidator(validators.source_network), _CIDR]
PublicCidr = Annotated[str, AfterValidator(validators.public_network), _CIDR]
TresName = Annotated[str, AfterValidator(validators.tres_name), text_schema(examples=["cpu", "gres/gpu"])]


SlurmTime = Annotated[
    str,
    BeforeValidator(validators.quoted),
    AfterValidator(validators.slurm_time),
    WithJsonSchema({"type": "string", "examples": ["12:00:00", "7-00:00:00", "INFINITE"]}),
]
Scalar = Annotated[Any, AfterValidator(validators.scalar), WithJsonSchema({"type": ["string", "integer", "boolean"]})]
"""Types of a setting of slurm.conf: str, int or bool."""
Settings = Mapping[str, Scalar]
"""Parameters of slurm.conf by name."""
NodeSettings = Annotated[Settings, AfterValidator(validators.node_conf)]
