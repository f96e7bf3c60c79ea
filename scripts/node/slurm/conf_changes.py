"""Nodes and partitions of a slurm.conf, and the action that a change of Slurm's files needs: none, a reconfigure, or a
restart of slurmctld. Pure functions.

According to slurm.conf(5), most parameters follow `scontrol reconfigure`; node lines (before 23.11) and some parameters
need a restart of the daemons. Jobs survive both, so a parameter that is not listed here gets a restart."""

import enum
import hashlib

from . import hostlist

# Parameters of a node that running jobs depend on: slurmctld ends jobs whose node has other sockets or cores when it
# starts (job_resources.c, valid_job_resources), and assigns GPUs by number.
SHAPE = ("cpus", "boards", "sockets", "socketsperboard", "corespersocket", "threadspercore", "gres")
TOPOLOGY = "topology.conf"


def nodes(text: str) -> dict[str, tuple[str, ...]]:
    """Return the SHAPE of every node of a slurm.conf that cluster/slurm has rendered."""
    shapes: dict[str, tuple[str, ...]] = {}
    for line in parse_lines(text, "nodename"):
        shape = tuple(line.get(name, "") for name in SHAPE)
        shapes.update(dict.fromkeys(hostlist.expand(line["nodename"]), shape))
    return shapes


def partitions(text: str) -> set[str]:
    """Return the names of all partitions."""
    return {line["partitionname"] for line in parse_lines(text, "partitionname")}


def cluster_name(text: str) -> str:
    """Return the ClusterName; empty if there is none."""
    return next((line["clustername"] for line in parse_lines(text, "clustername")), "")


def parse_lines(text: str, first: str) -> list[dict[str, str]]:
    """Return the lines that begin with the parameter `first`, as values by lower-case parameter."""
    return [
        {name.lower(): value for name, _, value in (word.partition("=") for word in line.split())}
        for line in text.split("\n")
        if line.lower().startswith(f"{first}=")
    ]


# Read on every reconfigure (slurm.conf(5), "scontrol reconfigure"). Other parameters get a restart.
FOLLOWS_RECONFIGURE = frozenset(
    name.lower()
    for name in (
        "AccountingStorageEnforce AccountingStoreFlags BatchStartTimeout CompleteWait DebugFlags DefMemPerCPU "
        "DefMemPerNode EnforcePartLimits Epilog EpilogSlurmctld HealthCheckInterval HealthCheckNodeState "
        "HealthCheckProgram InactiveLimit JobRequeue KillWait MailDomain MailProg MaxArraySize MaxMemPerCPU "
        "MaxMemPerNode MessageTimeout MinJobAge NodeSet OverTimeLimit PartitionName PriorityDecayHalfLife "
        "PriorityFavorSmall PriorityMaxAge PriorityUsageResetPeriod PriorityWeightAge PriorityWeightFairshare "
        "PriorityWeightJobSize PriorityWeightPartition PriorityWeightQOS PrivateData Prolog PrologEpilogTimeout "
        "PrologSlurmctld PropagateResourceLimits PropagateResourceLimitsExcept ResumeTimeout ReturnToService "
        "SchedulerParameters SlurmctldDebug SlurmctldTimeout SlurmdDebug SlurmdTimeout SuspendTime SuspendTimeout "
        "TaskEpilog TaskProlog UnkillableStepProgram UnkillableStepTimeout"
    ).split()
)

# Parameters that slurmd reads only when it starts.
SLURMD_STARTS_WITH = frozenset(
    name.lower()
    for name in (
        "AuthInfo AuthType CredType GresTypes JobAcctGatherFrequency JobAcctGatherType JobContainerType "
        "MpiDefault NodeName PluginDir ProctrackType PrologFlags SlurmdParameters SlurmdPort SlurmdSpoolDir "
        "SwitchType TaskPlugin TaskPluginParam TopologyPlugin"
    ).split()
)


class Need(enum.Enum):
    """The action that makes new files take effect."""

    NOTHING = "nothing"
    RECONFIGURE = "reconfigure"
    RESTART = "restart"


def need(old: dict[str, str], new: dict[str, str]) -> Need:
    """Return the least disruptive action after which slurmctld runs with the files `new` (texts by name) in place of
    `old`."""
    before, after = (
        {name: settings(text) if name.endswith(".conf") else text for name, text in files.items()}
        for files in (old, new)
    )
    if before == after:
        return Need.NOTHING
    # slurmctld reads a changed job_submit.lua by itself, but ignores one that it can't load, with a line in its log. If
    # it is started with such a file, it ends with the error.
    if set(before) != set(after) or any(
        before[name] != after[name] for name in after if name not in ("slurm.conf", TOPOLOGY)
    ):
        return Need.RESTART
    changed = settings(old["slurm.conf"]) ^ settings(new["slurm.conf"])
    return Need.RECONFIGURE if all(parameter(line) in FOLLOWS_RECONFIGURE for line in changed) else Need.RESTART


def slurmd_epoch(files: dict[str, str]) -> str:
    """Return a hash of all settings that slurmd reads only when it starts. With another hash, slurmd is restarted, and
    jobs go on.

    Names in node lines do not count, nor whether a node is elastic, so that a new node restarts no other slurmd.
    """
    texts = {
        name: text for name, text in files.items() if name.endswith(".conf") and name not in ("slurm.conf", TOPOLOGY)
    }
    lines = {line for line in settings(files["slurm.conf"]) if parameter(line) in SLURMD_STARTS_WITH}
    lines |= {f"{name}: {line}" for name, text in texts.items() for line in settings(text)}
    names = ("nodename=", "nodeaddr=", "nodehostname=")
    without_names = {
        " ".join(
            "State=UNKNOWN" if word.lower() == "state=cloud" else word
            for word in line.split()
            if not word.lower().startswith(names)
        )
        for line in lines
    }
    return hashlib.sha256("\n".join(sorted(without_names)).encode()).hexdigest()[:16]


def settings(text: str) -> frozenset[str]:
    """Return the lines without comments and blank lines."""
    return frozenset(line.strip() for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#"))


def parameter(line: str) -> str:
    """Return the parameter that a line sets, in lower case, as Slurm ignores case."""
    return line.split("=", 1)[0].strip().lower()
