"""Types of configuration values: a Python type, its validator, and what the JSON Schema says of it."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, Strict, WithJsonSchema

from cluster.config import validators as v
from cluster.config.findings import Refused

# YAML knows numbers and truth values: a quoted "2" or a yes/no that became text is a mistake worth hearing about.
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Positive = Annotated[int, Strict(), Field(ge=1)]
Natural = Annotated[int, Strict(), Field(ge=0)]
Seconds = Annotated[int, Strict(), Field(ge=0, le=65533)]
"""Slurm keeps timers in 16 bits, with the two highest values for 'not set' and 'infinite'."""

PlatformName = Annotated[str, AfterValidator(v.platform)]
ClusterName = Annotated[str, AfterValidator(v.dns_label)]
NodesetName = Annotated[str, AfterValidator(v.nodeset_name)]
MachineTypeName = Annotated[str, AfterValidator(v.machine_type), Field(examples=["local-2c"])]
ImageName = Annotated[str, AfterValidator(v.image), Field(examples=["debian-12"])]
NodeCount = Annotated[int, Strict(), AfterValidator(v.node_count), Field(examples=[2])]
PartitionName = Annotated[str, AfterValidator(v.partition_name)]
AccountName = Annotated[str, AfterValidator(v.slurm_name)]
QosName = Annotated[str, AfterValidator(v.slurm_name)]
UserName = Annotated[str, AfterValidator(v.unix_name)]
GroupName = Annotated[str, AfterValidator(v.unix_name)]
RegularId = Annotated[int, Strict(), AfterValidator(v.regular_id)]
PublicKey = Annotated[str, AfterValidator(v.public_key)]
Cidr = Annotated[str, AfterValidator(v.private_network)]
ClusterCidr = Annotated[str, AfterValidator(v.cluster_cidr)]
MountPoint = Annotated[str, AfterValidator(v.mount_point)]
Program = Annotated[str, AfterValidator(v.absolute_path)]
Feature = Annotated[str, AfterValidator(v.feature)]
TresName = Annotated[str, AfterValidator(v.tres_name)]


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
