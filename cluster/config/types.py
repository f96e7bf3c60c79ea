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

ClusterName = Annotated[str, AfterValidator(v.dns_label)]
NodesetName = Annotated[str, AfterValidator(v.dns_label)]
PartitionName = Annotated[str, AfterValidator(v.partition_name)]
AccountName = Annotated[str, AfterValidator(v.slurm_name)]
QosName = Annotated[str, AfterValidator(v.slurm_name)]
UserName = Annotated[str, AfterValidator(v.unix_name)]
GroupName = Annotated[str, AfterValidator(v.unix_name)]
RegularId = Annotated[int, Strict(), AfterValidator(v.regular_id)]
PublicKey = Annotated[str, AfterValidator(v.public_key)]
Cidr = Annotated[str, AfterValidator(v.private_network)]
ClusterCidr = Annotated[str, AfterValidator(v.cluster_cidr)]
Directory = Annotated[str, AfterValidator(v.absolute_path)]
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
Scalar = str | Flag | Whole
"""What a setting of slurm.conf can be given as."""
