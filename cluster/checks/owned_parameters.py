"""Parameters that free settings may not touch, and what to do instead.

Everything else that this program writes into slurm.conf is a default: `slurm.extra` replaces it.
"""

_BUILT_ON = "remove it: the machines, their set-up and the commands of this program are built on its value"
_FOLLOWS = "remove it: it follows from the machines of the configuration"


def _key(name: str) -> str:
    return f"set `{name}` instead"


OWNED_CONF: dict[str, str] = {
    **dict.fromkeys(
        (
            "AccountingStorageHost",
            "AccountingStoragePort",
            "AccountingStorageType",
            "AuthType",
            "CredType",
            "JobCompLoc",
            "MailProg",
            "ProctrackType",
            "SelectType",
            "SlurmUser",
            "SlurmctldAddr",
            "SlurmctldLogFile",
            "SlurmctldParameters",
            "SlurmctldPidFile",
            "SlurmctldPort",
            "SlurmdLogFile",
            "SlurmdParameters",
            "SlurmdPidFile",
            "SlurmdPort",
            "SlurmdSpoolDir",
            "SlurmdUser",
            "StateSaveLocation",
            "TaskPlugin",
            "TopologyPlugin",
        ),
        _BUILT_ON,
    ),
    **dict.fromkeys(("AccountingStorageTRES", "GresTypes"), _FOLLOWS),
    "AccountingStoragePass": "remove it: slurmdbd alone holds a password, and it is generated",
    "AccountingStorageEnforce": _key("accounting.enforce"),
    "ClusterName": _key("name"),
    "SelectTypeParameters": _key("slurm.consumable"),
    "ReturnToService": _key("slurm.return_to_service"),
    "MpiDefault": _key("slurm.mpi_default"),
    "PrologFlags": _key("slurm.prolog_flags"),
    "JobAcctGatherType": _key("slurm.job_account_gather"),
    "SlurmctldTimeout": _key("slurm.timers.slurmctld"),
    "SlurmdTimeout": _key("slurm.timers.slurmd"),
    "InactiveLimit": _key("slurm.timers.inactive"),
    "WaitTime": _key("slurm.timers.wait"),
    "KillWait": _key("slurm.timers.kill_wait"),
    "MinJobAge": _key("slurm.timers.min_job_age"),
    "UnkillableStepTimeout": _key("slurm.timers.unkillable_step"),
    "MessageTimeout": _key("slurm.timers.message"),
    "BatchStartTimeout": _key("slurm.timers.batch_start"),
    "PrologEpilogTimeout": _key("slurm.timers.prolog_epilog"),
}

OWNED_NODE: dict[str, str] = {
    **dict.fromkeys(("NodeAddr", "NodeHostname", "Port", "State", "Reason"), _BUILT_ON),
    "Gres": "remove it: GPUs come from the machine type, or from `gpus:` of the nodeset",
    "Feature": "set `features:` of the nodeset instead",
}

OWNED_PARTITION: dict[str, str] = {
    "Nodes": "set `nodesets:` of the partition instead",
    "State": _BUILT_ON,
    "Default": "set `default:` of the partition instead",
    "DefaultTime": "set `default_time:` of the partition instead",
    "MaxTime": "set `max_time:` of the partition instead",
    "DefMemPerCPU": "set `def_mem_per_cpu:` of the partition instead",
    "MaxMemPerCPU": "set `max_mem_per_cpu:` of the partition instead",
    "MinNodes": "set `min_nodes:` of the partition instead",
    "MaxNodes": "set `max_nodes:` of the partition instead",
    "OverSubscribe": "set `exclusive:` of the partition instead",
    "PriorityTier": "set `priority_tier:` of the partition instead",
    "QOS": "set `qos:` of the partition instead",
    "AllowAccounts": "set `allow_accounts:` of the partition instead",
    "AllowGroups": "set `allow_groups:` of the partition instead",
    "AllowQos": "set `allow_qos:` of the partition instead",
}
