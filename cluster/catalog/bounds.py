"""The largest numbers that Slurm, its database and others can store.

Beyond these limits Slurm truncates the value, ignores it without a message, or does not start.
"""

from collections.abc import Mapping

MOST_NODES = 65536
"""Nodes of a cluster: MAX_SLURM_NODES (slurm/slurm.h), which is also the longest range of a host list."""
SIGNED = 2**31 - 1
"""Numbers in the accounting database: its columns are signed integers of 32 bits, and larger values are ignored without
a message (as_mysql_qos.c and accounting_storage_mysql.c: `(int32_t) ... >= 0`)."""
FAIRSHARE = SIGNED - 1
"""SIGNED itself is `parent` (SLURMDB_FS_USE_PARENT, slurm/slurmdb.h)."""
COUNT = 2**53 - 1
"""Resources of a limit. Slurm stores them in 64 bits, but the program gets a stack's settings as JSON, in which larger
numbers are not exact (source: RFC 8259, 6)."""
MEBIBYTES = 2**32
"""Memory of a machine in MiB: 4 PiB, all that x86-64 can address (52 bits; source: AMD64 manual, volume 2, 5.1)."""
MINUTES = (2**31 - 1) // 60
"""A time limit: Slurm computes its seconds in 32 bits with sign (src/common/parse_time.c: time_str2secs)."""
ARRAY_SIZE = 4_000_001
"""Numbers of a job array, 0 included (src/common/read_config.c and slurm.conf(5), slurm-22-05-8-1 to
slurm-26-05-3-1)."""
BRIDGE_PORTS = 1023
"""Machines on one bridge of Linux (net/bridge/br_private.h: BR_MAX_PORTS, of which port 0 is not used)."""
GOOGLE_INSTANCES = 15_000
"""Machines in one network of Google Cloud (cloud.google.com/vpc/docs/quota: INSTANCES_PER_NETWORK_GLOBAL)."""

SHORT, WORD, LONG = 2**16 - 3, 2**32 - 3, COUNT
"""The two highest values of each width stand for 'not set' and 'infinite' (slurm/slurm.h: NO_VAL, INFINITE)."""

# Types of the option tables of src/common/read_config.c, the same at slurm-22-05-8-1, 23-11-4-1, 24-11-7-1, 25-05-8-1
# and in 26.05; of node and partition lines as well.
_WIDTHS: Mapping[int, str] = {
    SHORT: """
        AccountingStoragePort AcctGatherNodeFreq BatchStartTimeout CPUs CompleteWait CoreSpecCount CoresPerSocket
        EioTimeout EpilogTimeout FairShareDampeningFactor GroupUpdateForce GroupUpdateTime HealthCheckInterval
        InactiveLimit JobFileAppend JobRequeue KillOnBadExit KillWait MaxTasksPerNode MessageTimeout PriorityJobFactor
        PriorityTier PrologEpilogTimeout PrologTimeout PropagatePrioProcess RestrictedCoresPerGPU ResumeRate
        ResumeTimeout ResvOverRun ReturnToService SchedulerTimeSlice SlurmSchedLogLevel SlurmctldTimeout SlurmdTimeout
        Sockets SuspendRate SuspendTimeout TCPTimeout ThreadsPerCore TreeWidth UnkillableStepTimeout VSizeFactor
        WaitTime
    """,
    ARRAY_SIZE: "MaxArraySize",
    WORD: """
        EpilogMsgTime FirstJobId GraceTime JobCompPort KeepAliveTime MaxBatchRequeue MaxCPUsPerNode
        MaxCPUsPerSocket MaxDBDMsgs MaxJobCount MaxJobId MaxNodeCount MaxNodes MaxStepCount MinJobAge MinNodes
        PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize PriorityWeightPartition
        PriorityWeightQOS SlurmdPort TmpDisk Weight
    """,
    LONG: "DefCPUPerGPU DefMemPerGPU",
    MEBIBYTES: "DefMemPerCPU DefMemPerNode MaxMemPerCPU MaxMemPerNode MemSpecLimit RealMemory",
}
NUMBERS: Mapping[str, int] = {name: most for most, names in _WIDTHS.items() for name in names.split()}
"""Parameters of slurm.conf that are whole numbers, and the largest that each can be."""
