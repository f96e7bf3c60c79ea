"""slurm.conf: the controller's file; every other machine asks the controller for it (configless mode)."""

from collections.abc import Mapping

from cluster.config.cluster import ClusterConfig
from cluster.roster import controller_name, nodeset_gpu
from cluster.slurm import paths
from cluster.slurm.nodes import node_lines, partition_lines
from cluster.slurm.text import Group, Value, document, groups, section

HEADER = (
    "Written from the stack's configuration: change it there and run `up`. Only the controller has this file; nodes "
    "and login machines fetch it from slurmctld."
)


def render_conf(config: ClusterConfig, addresses: Mapping[str, str] | None) -> str:
    """Text of slurm.conf; `addresses` are written beside the names, for machines that no name server knows."""
    extra = Group(title="From slurm.extra in the stack's configuration", settings=dict(config.slurm.extra))
    parts = groups(
        [
            _identity(config, addresses),
            _places(),
            _logging(),
            _confinement(config),
            _scheduling(config),
            _launching(config),
            _failures(config),
            _timers(config),
            _accounting(config),
            extra,
        ],
    )
    return document(
        HEADER,
        [
            *parts,
            section("Nodes", "Sizes are the catalog's.", node_lines(config, addresses)),
            section("Partitions", "", partition_lines(config)),
        ],
    )


def _identity(config: ClusterConfig, addresses: Mapping[str, str] | None) -> Group:
    controller = controller_name(config)
    host = f"{controller}({addresses[controller]})" if addresses else controller
    local = config.platform == "local"
    return Group(
        title="Who and where",
        why="enable_configless: nodes fetch their files from here, so a change is one file and one `scontrol reconfigure`."
        + (" config_overrides: machines of a rehearsal stand for larger ones." if local else ""),
        settings={
            "ClusterName": config.name,
            "SlurmctldHost": host,
            "SlurmctldPort": paths.SLURMCTLD_PORT,
            "SlurmdPort": paths.SLURMD_PORT,
            "SlurmUser": paths.USER,
            "AuthType": "auth/munge",
            "CredType": "cred/munge",
            "SlurmctldParameters": "enable_configless",
            "SlurmdParameters": "config_overrides" if local else None,
        },
    )


def _places() -> Group:
    return Group(
        title="Places",
        why=f"Pid files in {paths.RUN}: slurm may not write into /run.",
        settings={
            "StateSaveLocation": paths.STATE,
            "SlurmdSpoolDir": paths.SPOOL,
            "SlurmctldPidFile": f"{paths.RUN}/slurmctld.pid",
            "SlurmdPidFile": f"{paths.RUN}/slurmd.pid",
            "MailProg": paths.MAIL,
        },
    )


def _logging() -> Group:
    return Group(
        title="Logs",
        settings={
            "SlurmctldDebug": "info",
            "SlurmctldLogFile": f"{paths.LOGS}/slurmctld.log",
            "SlurmdDebug": "info",
            "SlurmdLogFile": f"{paths.LOGS}/slurmd.log",
        },
    )


def _confinement(config: ClusterConfig) -> Group:
    local = config.platform == "local"
    return Group(
        title="Confinement",
        why="Every process of a job is found and ended through its cgroup, and sees only the cores, memory and GPUs it "
        "was given."
        + (" No task/affinity: nodes of a rehearsal claim cores that are not there to bind to." if local else ""),
        settings={
            "ProctrackType": "proctrack/cgroup",
            "TaskPlugin": "task/cgroup" if local else "task/affinity,task/cgroup",
            "PrologFlags": ",".join(config.slurm.prolog_flags),
        },
    )


def _scheduling(config: ClusterConfig) -> Group:
    has_gpus = any(nodeset_gpu(config, one) for one in config.nodesets.values())
    return Group(
        title="Scheduling",
        why="Memory is given out like cores are, so that one job can't push another out of memory. EnforcePartLimits "
        "refuses a job that could never run, instead of letting it wait for ever.",
        settings={
            "SchedulerType": "sched/backfill",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU_Memory" if config.slurm.consumable == "cpu" else "CR_Core_Memory",
            "EnforcePartLimits": "ALL",
            "TopologyPlugin": "topology/tree",
            "GresTypes": "gpu" if has_gpus else None,
        },
    )


def _launching(config: ClusterConfig) -> Group:
    return Group(
        title="Launching",
        why="use_interactive_step: `salloc` opens its shell on the first node of the job, not on the login machine. "
        "Locked memory is the node's own limit, because RDMA needs more than a login machine grants.",
        settings={
            "MpiDefault": config.slurm.mpi_default,
            "LaunchParameters": "use_interactive_step",
            "PropagateResourceLimitsExcept": "MEMLOCK",
        },
    )


def _failures(config: ClusterConfig) -> Group:
    return Group(
        title="Failures",
        why="ReturnToService=2: a node that was cut off or rebooted comes back as soon as it registers; a drained one "
        "stays drained.",
        settings={"ReturnToService": config.slurm.return_to_service},
    )


def _timers(config: ClusterConfig) -> Group:
    timers = config.slurm.timers
    return Group(
        title="Timers (seconds)",
        why="UnkillableStepTimeout: a process with much memory takes long to die; its node is drained only after this.",
        settings={
            "SlurmctldTimeout": timers.slurmctld,
            "SlurmdTimeout": timers.slurmd,
            "InactiveLimit": timers.inactive,
            "KillWait": timers.kill_wait,
            "MinJobAge": timers.min_job_age,
            "UnkillableStepTimeout": timers.unkillable_step,
            "MessageTimeout": timers.message,
            "BatchStartTimeout": timers.batch_start,
            "PrologEpilogTimeout": timers.prolog_epilog,
        },
    )


def _accounting(config: ClusterConfig) -> Group:
    gather = config.slurm.job_account_gather or ("linux" if config.platform == "local" else "cgroup")
    gpus = {gpu.type for one in config.nodesets.values() if (gpu := nodeset_gpu(config, one))}
    tres = ",".join(["gres/gpu", *(f"gres/gpu:{kind}" for kind in sorted(gpus))]) if gpus else None
    settings: dict[str, Value] = {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": controller_name(config),
        "AccountingStoragePort": paths.SLURMDBD_PORT,
        "AccountingStorageEnforce": ",".join(config.accounting.enforce),
        "AccountingStorageTRES": tres,
        "AccountingStoreFlags": "job_comment",
        "JobAcctGatherType": f"jobacct_gather/{gather}",
        "JobAcctGatherFrequency": 30,
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": f"{paths.LOGS}/job_completions",
    }
    return Group(
        title="Accounting",
        why="Through slurmdbd, which alone holds the database's password. The host is the controller's name and not "
        "localhost, so that sacct works on login machines too. Job completions are also kept as plain text.",
        settings=settings,
    )
