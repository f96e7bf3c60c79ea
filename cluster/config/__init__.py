"""Configuration: the only reader of a stack's settings.

`parse` makes one frozen ClusterConfig out of them, or raises ConfigError with everything that is wrong.
"""

from cluster.config.accounting import Account, Accounting, Qos
from cluster.config.cluster import ClusterConfig, Image, Network, Storage
from cluster.config.findings import ConfigError, Finding
from cluster.config.machines import Controller, Login, Nodeset
from cluster.config.parse import parse
from cluster.config.partitions import Partition
from cluster.config.schema import json_schema, schema_text
from cluster.config.scripts import Rxdm, Script
from cluster.config.slurm import SlurmSettings, Timers
from cluster.config.users import User

__all__ = [
    "Account",
    "Accounting",
    "ClusterConfig",
    "ConfigError",
    "Controller",
    "Finding",
    "Image",
    "Login",
    "Network",
    "Nodeset",
    "Partition",
    "Qos",
    "Rxdm",
    "Script",
    "SlurmSettings",
    "Storage",
    "Timers",
    "User",
    "json_schema",
    "parse",
    "schema_text",
]
