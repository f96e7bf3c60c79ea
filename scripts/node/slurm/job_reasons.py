"""Reasons of jobs that wait or have ended, as squeue and sacct print them, in words. Pure functions, which `./hpc` uses
too."""

import re

# The reasons that squeue and sacct print, of Slurm 22.05 to 26.05, by the names in src/common/job_state_reason.c.
# Reasons of limits consist of parts (`_LIMIT`).
_OPERATOR = "Only an operator can change that"
_PARTITION = "`scontrol show partition` has the limits; `scontrol update JobId=ID` changes the job"
_WAITS = {
    "None": "slurmctld has not looked at it yet, which takes some seconds",
    "Prolog": "the prologs of its nodes run",
    "Priority": "jobs with a higher priority wait for the same nodes",
    "Dependency": "it waits for another job (--dependency)",
    "Resources": "the nodes, CPUs, memory or GPUs that it asks for are in use; it is among the next",
    "PartitionNodeLimit": f"it asks for more or fewer nodes than its partition allows, or has up. {_PARTITION}",
    "PartitionTimeLimit": f"its time limit is above the limit of its partition. {_PARTITION}",
    "PartitionDown": f"its partition is down, so no job starts there. {_OPERATOR}",
    "PartitionInactive": f"its partition is inactive, so no job starts there. {_OPERATOR}",
    "PartitionConfig": f"its partition does not accept what it asks for. {_PARTITION}",
    "JobHeldAdmin": "an operator, or Slurm after a failure, holds it: an operator runs `scontrol release ID`",
    "JobHeldUser": "its user holds it: `scontrol release ID` lets it start",
    "JobHoldMaxRequeue": "it failed to start too often, so Slurm holds it: an operator runs `scontrol release ID`",
    "NvidiaImexChannels": "all IMEX channels, by which GPUs of several nodes share memory, are in use",
    "BeginTime": "its begin has not come: --begin, or the two minutes after a requeue",
    "Licenses": "the licenses that it asks for are in use",
    "Reservation": "its reservation has not begun, or has no room for it",
    "ReservationDeleted": "its reservation was deleted: `scontrol update JobId=ID ReservationName=` takes it out",
    "ReservationInvalid": "its reservation is not valid: `scontrol update JobId=ID ReservationName=` takes it out",
    "ReqNodeNotAvail": "a node that it needs is down, drained, or reserved for a time that it would run into",
    "Nodes required for job are DOWN": "too many nodes of its partition are down, drained or reserved",
    "SchedDefer": "Slurm does not start jobs at submission on this cluster; the next pass of the scheduler does",
    "Cleaning": "what is left of its last run is removed first",
    "QOSNotAllowed": "its QOS is not allowed for its account or partition: `sacctmgr show assoc user=$USER` has these",
    "AccountNotAllowed": "its account is not allowed in its partition: `sacctmgr show assoc user=$USER` has yours",
    "DependencyNeverSatisfied": "the job that it depends on ended otherwise than --dependency says: it never starts",
    "JobArrayTaskLimit": "as many tasks of its array run as it allows (%N of --array)",
    "BurstBufferResources": "the burst buffer has no room",
    "BurstBufferStageIn": "its files are copied to the burst buffer",
    "BurstBufferOperation": "an operation of the burst buffer failed",
    "AccountingPolicy": "a limit of its account, user or QOS",
    "FedJobLock": "another cluster of the federation considers it",
    "MaxMemPerLimit": "it asks for more memory than MaxMemPerNode or MaxMemPerCPU allows",
    "MpiPortsBusy": "the ports that it reserves for MPI are in use (--resv-ports)",
    "MaxPoweredUpNodes": "as many nodes run as the cluster may have on at a time",
    "AssociationJobLimit": "its account or user has as many jobs as allowed",
    "AssociationResourceLimit": "its account or user is at a limit of resources",
    "AssociationTimeLimit": "its account or user has used its time",
    "QOSJobLimit": "its QOS has as many jobs as allowed",
    "QOSResourceLimit": "its QOS is at a limit of resources",
    "QOSTimeLimit": "its QOS has used its time",
    "QOSUsageThreshold": "its account has used more than its share, and its QOS asks for less (UsageThreshold)",
    # Of releases up to 24.11.
    "FrontEndDown": "the front end node is down",
    "BlockFreeAction": "a block is being freed",
    "BlockMaxError": "a block has too many errors",
    "PowerNotAvail": "there is not enough power",
    "PowerReserved": "the power is reserved",
    # Texts of slurmctld that are not in its list of reasons (src/slurmctld/job_mgr.c, node_scheduler.c).
    "launch failed requeued held": "it could not be started on its nodes, and is held: an operator runs "
    "`scontrol release ID` when the cause is gone",
    "job requeued in held state": "it was requeued and is held: `scontrol release ID` lets it start",
}
ENDS = {
    "NodeDown": "a node of it went down",
    "BadConstraints": "no nodes have what it asks for (--constraint, --mem, --gres): it never starts",
    "Constraints": "no nodes have the features that it asks for (--constraint)",
    "SystemFailure": "Slurm failed",
    "JobLaunchFailure": "it could not be started on its nodes: the file system, the user or a prolog",
    "NonZeroExitCode": "it ended with another exit code than 0",
    "RaisedSignal": "it ended by a signal",
    "TimeLimit": "it reached its time limit",
    "InactiveLimit": "it was inactive for too long (InactiveLimit)",
    "InvalidAccount": "its account does not exist any more",
    "InvalidQOS": "its QOS does not exist any more",
    "OutOfMemory": "it used more memory than it asked for",
    "DeadLine": "it could not have ended before its --deadline",
}
"""Reasons with which a job has ended."""
REASONS = {**_WAITS, **ENDS}

_LIMIT = re.compile(
    r"(?P<of>Assoc|QOS|)(?P<kind>Grp|Max|Min)"
    r"(?P<what>CPU|Cpu|Memory|Mem|Node|SubmitJobs?|Jobs?|WallDuration|Wall|Energy|GRES|License|BB|Billing|Unknown)"
    r"(?P<by>RunMinsPerAccount|RunMinsPerUser|MinutesPerJob|RunMinutes|Minutes|PerJob|PerNode|PerUser|PerAccount|)"
    r"(?:Limit|NotSatisfied|)"
)
_WHAT = {
    "cpu": "CPUs", "mem": "memory", "memory": "memory", "node": "nodes", "submitjob": "jobs in the queue",
    "submitjobs": "jobs in the queue", "job": "running jobs", "jobs": "running jobs", "wall": "time",
    "wallduration": "time", "energy": "energy", "gres": "GPUs or other GRES", "license": "licenses",
    "bb": "burst buffer", "billing": "billing units", "unknown": "of a resource",
}  # fmt: skip


def _text(reason: str) -> str:
    # squeue and scontrol print texts of slurmctld with underscores.
    return reason.strip("() ").replace("_", " ")


def _name(reason: str) -> str:
    """Return a reason without what follows it, such as names of nodes."""
    return _text(reason).partition(",")[0].partition("(")[0].strip()


def explain(reason: str) -> str:
    """Return the meaning of a reason, a sentence without a full stop; empty for an unknown text. A pure function."""
    text = _text(reason)
    name = _name(reason)
    if meaning := REASONS.get(text) or REASONS.get(name):
        return meaning
    limit = _LIMIT.fullmatch(name)
    if not limit:
        return ""
    what, by = _WHAT[limit["what"].lower()], limit["by"]
    if by.startswith(("Minutes", "RunMin")) and limit["what"] not in ("Wall", "WallDuration"):
        what = f"minutes of {what.removeprefix('of ')}"
    if limit["kind"] == "Min":
        text = f"it asks for less {what} than its QOS requires"
    elif by.endswith(("PerJob", "PerNode")):
        text = f"it asks for more {what} than one job may have{' on a node' if by == 'PerNode' else ''}"
    elif by.endswith(("PerUser", "PerAccount")) or limit["kind"] == "Max":
        text = f"its {'account' if by.endswith('PerAccount') else 'user'} has as much as allowed: {what}"
    elif by == "Minutes":
        text = f"too few {what} are left in this period for all of its time limit: a shorter --time may let it start"
        return f"{text} (`scontrol show assoc_mgr` has the limits and their use)"
    else:
        owner = "QOS" if limit["of"] == "QOS" else "account"
        text = f"the jobs of its {owner} together have as much as allowed: {what}"
    where = "sacctmgr show assoc user=$USER" if limit["of"] == "Assoc" else "sacctmgr show qos"
    return f"{text} (`{where}` has the limit)"


OUT_OF_SERVICE = ("ReqNodeNotAvail", "Nodes required for job are DOWN")
"""Beginnings of the reasons of jobs that wait for nodes that are down, drained or reserved: `ReqNodeNotAvail,
UnavailableNodes:a-0` and `Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions`
(src/slurmctld/node_scheduler.c and job_scheduler.c at slurm-26-05-3-1)."""
FOR_NODES = ("None", "Priority", "Resources", *OUT_OF_SERVICE)
"""Beginnings of the reasons of jobs that wait only for nodes."""


def waits_for_nodes(reason: str) -> bool:
    """Return whether a job with this reason waits only for nodes. A pure function."""
    return _name(reason) in FOR_NODES


def waits_for_service(reason: str) -> bool:
    """Return whether a job with this reason waits for nodes that are down, drained or reserved. A pure function."""
    return _name(reason) in OUT_OF_SERVICE


NOT_FOR_NODES = frozenset("JobHeldUser JobHeldAdmin Dependency DependencyNeverSatisfied JobArrayTaskLimit".split())
"""Reasons of jobs that may wait for weeks, and for no node."""
