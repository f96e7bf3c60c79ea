"""Types of configuration values: a Python type, its validator, and what the JSON Schema says of it."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, Strict, WithJsonSchema

from cluster.catalog import IMAGES, MACHINE_TYPES
from cluster.config import validators as v
from cluster.config.findings import Refused
from cluster.config.platforms import built

# YAML knows numbers and truth values: a quoted "2" or a yes/no that became text is a mistake worth hearing about.
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Positive = Annotated[int, Strict(), Field(ge=1)]
Natural = Annotated[int, Strict(), Field(ge=0)]
Seconds = Annotated[int, Strict(), Field(ge=0, le=65533)]
"""Slurm keeps timers in 16 bits, with the two highest values for 'not set' and 'infinite'."""


def _schema(**more: Any) -> WithJsonSchema:  # noqa: ANN401 - JSON Schema's own values
    """What editors are told of a text: they can check a pattern and complete an enumeration."""
    return WithJsonSchema({"type": "string", **more})


def _host_part(longest: int) -> WithJsonSchema:
    return _schema(pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$", maxLength=longest)


_LOWER = _schema(pattern="^[a-z][-_a-z0-9]*$", maxLength=40)
_LOGIN = _schema(pattern="^[a-z_][-a-z0-9_]*$", maxLength=32)
_PATH = _schema(pattern="^(/[A-Za-z0-9._-]+)+$")
_CIDR = _schema(pattern="^[0-9.]+/[0-9]+$", examples=["10.77.0.0/20"])

PlatformName = Annotated[str, AfterValidator(v.platform), _schema(enum=built())]
ClusterName = Annotated[str, AfterValidator(v.cluster_name), _host_part(v.LONGEST_CLUSTER_NAME)]
NodesetName = Annotated[str, AfterValidator(v.nodeset_name), _host_part(v.LONGEST_NODESET_NAME)]
MachineTypeName = Annotated[str, AfterValidator(v.machine_type), _schema(enum=list(MACHINE_TYPES))]
ImageName = Annotated[str, AfterValidator(v.image), _schema(enum=list(IMAGES))]
NodeCount = Annotated[
    int,
    Strict(),
    AfterValidator(v.node_count),
    WithJsonSchema({"type": "integer", "minimum": 1, "examples": [2]}),
]
PartitionName = Annotated[str, AfterValidator(v.partition_name), _schema(pattern="^[A-Za-z][-_A-Za-z0-9]*$")]
AccountName = Annotated[str, AfterValidator(v.slurm_name), _LOWER]
QosName = Annotated[str, AfterValidator(v.slurm_name), _LOWER]
UserName = Annotated[str, AfterValidator(v.unix_name), _LOGIN]
GroupName = Annotated[str, AfterValidator(v.unix_name), _LOGIN]
RegularId = Annotated[
    int,
    Strict(),
    AfterValidator(v.regular_id),
    WithJsonSchema({"type": "integer", "anyOf": [{"minimum": low, "maximum": high} for low, high in v.REGULAR_UIDS]}),
]
PublicKey = Annotated[
    str, AfterValidator(v.public_key), _schema(pattern="^(ssh|ecdsa|sk)-", examples=["ssh-ed25519 AAAAC3..."])
]
Cidr = Annotated[str, AfterValidator(v.private_network), _CIDR]
ClusterCidr = Annotated[str, AfterValidator(v.cluster_cidr), _CIDR]
MountPoint = Annotated[str, AfterValidator(v.mount_point), _PATH]
Program = Annotated[str, AfterValidator(v.absolute_path), _PATH]
Feature = Annotated[str, AfterValidator(v.feature)]
TresName = Annotated[str, AfterValidator(v.tres_name), _schema(examples=["cpu", "gres/gpu"])]


def _quoted(value: Any) -> Any:  # noqa: ANN401 - whatever YAML made of it
    """Refuse bare numbers: YAML 1.1 readers turn an unquoted 12:00:00 into 43200, which Slurm would take as minutes."""
    if isinstance(value, int | float):
        raise Refused('a time in quotes, e.g. "12:00:00", "7-00:00:00" or "30" (minutes)', "put the value in quotes")
    return value


SlurmTime = Annotated[
    str,
    BeforeValidator(_quoted),
    AfterValidator(v.slurm_time),
    WithJsonSchema({"type": "string", "examples": ["12:00:00", "7-00:00:00", "INFINITE"]}),
]
Memory = Annotated[str, AfterValidator(v.memory), WithJsonSchema({"type": "string", "examples": ["4G"]})]


def _scalar(value: Any) -> Any:  # noqa: ANN401 - whatever YAML made of it
    if isinstance(value, str | int):
        if isinstance(value, str) and (not value.strip() or "\n" in value or "#" in value):
            raise Refused("text on one line without #, e.g. 10", "write the value as slurm.conf should have it")
        return value
    raise Refused("text, a whole number, true or false, e.g. 10", "write the value as slurm.conf should have it")


Scalar = Annotated[Any, AfterValidator(_scalar), WithJsonSchema({"type": ["string", "integer", "boolean"]})]
"""What a setting of slurm.conf can be given as: str, int or bool."""
Settings = Mapping[str, Scalar]
"""Parameters of slurm.conf by name."""
NodeSettings = Annotated[Settings, AfterValidator(v.node_conf)]
