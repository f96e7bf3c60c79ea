"""The text of Slurm's files: nodes and partitions of a slurm.conf, and what a change of the files needs (nothing, a
reconfigure, or a restart of slurmctld). Pure functions.

From the slurm.conf manual: most parameters follow `scontrol reconfigure`; node lines (before 23.11) and the parameters
below need a restart of the daemons. Jobs survive either, so when in doubt: restart."""

import enum
import hashlib

from . import hostlist

# What running jobs are tied to: slurmctld ends those whose node has other sockets or cores when it starts
# (job_resources.c, valid_job_resources), and hands out GPUs by number.
SHAPE = ("cpus", "boards", "sockets", "socketsperboard", "corespersocket", "threadspercore", "gres")
TOPOLOGY = "topology.conf"


def nodes(text: str) -> dict[str, tuple[str, ...]]:
    """Every node of a slurm.conf as written by this set-up's cluster, with its sockets, cores, threads and GPUs."""
    found: dict[str, tuple[str, ...]] = {}
    for line in lines(text, "nodename"):
        shape = tuple(line.get(name, "") for name in SHAPE)
        found.update(dict.fromkeys(hostlist.expand(line["nodename"]), shape))
    return found


def partitions(text: str) -> set[str]:
    """The names of all partitions."""
    return {line["partitionname"] for line in lines(text, "partitionname")}


def cluster(text: str) -> str:
    """ClusterName; empty if there is none."""
    return next((line["clustername"] for line in lines(text, "clustername")), "")


def lines(text: str, first: str) -> list[dict[str, str]]:
    """The lines that begin with a parameter, as its words by lower-case name."""
    rows = (
        {key.lower(): value for key, _, value in (word.partition("=") for word in line.split())}
        for line in text.split("\n")
        if line.lower().startswith(f"{first}=")
    )
    return list(rows)


# Read on every reconfigure (slurm.conf(5), "scontrol reconfigure"). Whatever is not here is taken to need a restart.
FOLLOWS_RECONFIGURE = frozenset(
    name.lower()
    for name in (
        "AccountingStorageEnforce AccountingStoreFlags BatchStartTimeout CompleteWait DebugFlags DefMemPerCPU "
        "DefMemPerNode EnforcePartLimits Epilog EpilogSlurmctld HealthCheckInterval HealthCheckNodeState "
        "HealthCheckProgram InactiveLimit JobRequeue KillWait MailDomain MailProg MaxArraySize MaxMemPerCPU "
        "MaxMemPerNode MessageTimeout MinJobAge NodeSet OverTimeLimit PartitionName PriorityDecayHalfLife "
        "PriorityFavorSmall PriorityMaxAge PriorityWeightAge PriorityWeightFairshare PriorityWeightJobSize "
        "PriorityWeightPartition PriorityWeightQOS PrivateData Prolog PrologEpilogTimeout PrologSlurmctld "
        "PropagateResourceLimits PropagateResourceLimitsExcept ResumeTimeout ReturnToService "
        "SchedulerParameters SlurmctldDebug SlurmctldTimeout SlurmdDebug SlurmdTimeout SuspendTime "
        "SuspendTimeout TaskEpilog TaskProlog UnkillableStepProgram UnkillableStepTimeout"
    ).split()
)

# What slurmd reads only when it starts.
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
    """The mildest thing that makes `new` files (name -> text) take effect where `old` ones are running."""
    before, after = (
        {name: settings(text) if name.endswith(".conf") else text for name, text in files.items()}
        for files in (old, new)
    )
    if before == after:
        return Need.NOTHING
    # A restart for job_submit.lua too, which slurmctld would read by itself: one that it can't load it would leave
    # aside, with a line in its log; started with it, it says so, and ends.
    if set(before) != set(after) or any(
        before[name] != after[name] for name in after if name not in ("slurm.conf", TOPOLOGY)
    ):
        return Need.RESTART
    differing = settings(old["slurm.conf"]) ^ settings(new["slurm.conf"])
    return Need.RECONFIGURE if all(key(line) in FOLLOWS_RECONFIGURE for line in differing) else Need.RESTART


def slurmd_epoch(files: dict[str, str]) -> str:
    """A hash of all that slurmd reads only when it starts: when it differs, slurmd is restarted (jobs stay).

    Node lines count by their parameters, not by how many nodes they name: +1 node restarts nobody, elastic or not.
    """
    texts = {
        name: text for name, text in files.items() if name.endswith(".conf") and name not in ("slurm.conf", TOPOLOGY)
    }
    lines = {line for line in settings(files["slurm.conf"]) if key(line) in SLURMD_STARTS_WITH}
    lines |= {f"{name}: {line}" for name, text in texts.items() for line in settings(text)}
    names = ("nodename=", "nodeaddr=", "nodehostname=")
    kept = {
        " ".join(
            "State=UNKNOWN" if word.lower() == "state=cloud" else word
            for word in line.split()
            if not word.lower().startswith(names)
        )
        for line in lines
    }
    return hashlib.sha256("\n".join(sorted(kept)).encode()).hexdigest()[:16]


def settings(text: str) -> frozenset[str]:
    """The lines that mean something: no comments, no blank lines."""
    return frozenset(line.strip() for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#"))


def key(line: str) -> str:
    """The parameter a line sets, in lower case (Slurm does not distinguish cases)."""
    return line.split("=", 1)[0].strip().lower()
