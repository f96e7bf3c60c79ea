"""Parameters that free settings may not touch, and what to do instead: those that a field sets, and those below.

Everything else that this program writes into slurm.conf is a default: `slurm.extra` replaces it.
"""

from cluster.config.cluster import ClusterConfig
from cluster.config.fields import conf_fields
from cluster.config.machines import Nodeset
from cluster.config.metadata import slurm_fields
from cluster.config.partitions import Partition
from cluster.config.section import Section

_BUILT_ON = "remove it: the machines, their set-up and the commands of this program are built on its value"
_FOLLOWS = "remove it: it follows from the machines of the configuration"

_DAEMONS = """
    AccountingStorageHost AccountingStoragePort AccountingStorageType AuthType CredType MailProg
    ProctrackType SelectType SlurmUser SlurmctldAddr SlurmctldLogFile SlurmctldParameters SlurmctldPidFile
    SlurmctldPort SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort SlurmdSpoolDir SlurmdUser
    StateSaveLocation TaskPlugin TopologyPlugin
""".split()

_CONF = {
    **dict.fromkeys(_DAEMONS, _BUILT_ON),
    **dict.fromkeys(("AccountingStorageTRES", "GresTypes"), _FOLLOWS),
    "AccountingStoragePass": "remove it: slurmdbd alone holds a password, and it is generated",
}

_NODE = {
    **dict.fromkeys(("NodeAddr", "NodeHostname", "Port", "State", "Reason"), _BUILT_ON),
    "Gres": "remove it: GPUs come from the machine type, or from `gpus:` of the nodeset",
}


def owned_conf(model: type[Section] = ClusterConfig) -> dict[str, str]:
    """What `slurm.extra` may not set, and what to do instead."""
    return _CONF | {one.parameter: f"set `{path}` instead" for path, one in conf_fields(model) if not one.replaceable}


def owned_node(model: type[Section] = Nodeset) -> dict[str, str]:
    """What `nodesets.*.node_conf` may not set."""
    return _NODE | {one.parameter: f"set `{key}:` of the nodeset instead" for key, one in slurm_fields(model)}


def owned_partition(model: type[Section] = Partition) -> dict[str, str]:
    """What `partitions.*.conf` may not set."""
    fields = {one.parameter: f"set `{key}:` of the partition instead" for key, one in slurm_fields(model)}
    return fields | {"State": _BUILT_ON}
