"""Configuration: the models of a stack file. `cluster.load.parse` reads one."""

from cluster.config.accounting import Account, Accounting, Qos
from cluster.config.cluster import ClusterConfig, Image, Network, Storage
from cluster.config.machines import Controller, Login, Nodeset
from cluster.config.partitions import Partition
from cluster.config.scripts import Rxdm, Script
from cluster.config.slurm import SlurmSettings, Timers
from cluster.config.users import User

__all__ = [
    "Account", "Accounting", "ClusterConfig", "Controller", "Image", "Login", "Network", "Nodeset", "Partition", "Qos",
    "Rxdm", "Script", "SlurmSettings", "Storage", "Timers", "User",
]  # fmt: skip
