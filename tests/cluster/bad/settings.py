"""Parameters of Slurm.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from tests.cluster.bad.change import extra, nodeset, partition

CASES = {
    "a parameter with a comment": (extra(Licenses="a # b"), "slurm.extra.Licenses", "a # b", "without #", "slurm.conf"),
    "a parameter of slurm.conf that is set elsewhere": (
        extra(slurmdtimeout=3),
        "slurm.extra.slurmdtimeout",
        "3",
        "SlurmdTimeout, which is set elsewhere",
        "set `slurm.timers.slurmd`",
    ),
    "a misspelt parameter": (
        extra(MaxArrySize=3),
        "slurm.extra.MaxArrySize",
        "MaxArrySize",
        "22.05",
        "write MaxArraySize",
    ),
    "a parameter of a later release": (
        extra(SuspendExcStates="DOWN"),
        "slurm.extra.SuspendExcStates",
        "SuspendExcStates",
        "23.11, 24.11, 25.05",
        "use an image",
    ),
    "a parameter over two lines": (extra(Licenses="a\nb"), "slurm.extra.Licenses", "a b", "on one line", "slurm.conf"),
    "a node parameter that follows from the machine": (
        nodeset(node_conf={"Gres": "gpu:1"}),
        "nodesets.cpu.node_conf.Gres",
        "gpu:1",
        "set elsewhere",
        "`gpus:`",
    ),
    "a node size that is no number": (
        nodeset(node_conf={"CPUs": "many"}),
        "nodesets.cpu.node_conf",
        "{CPUs: many}",
        "a whole number",
        "correct CPUs",
    ),
    "more memory than a machine can address": (
        nodeset(node_conf={"RealMemory": 10**15}),
        "nodesets.cpu.node_conf",
        "{RealMemory: 1000000000000000}",
        "1 to 4294967296",
        "correct RealMemory",
    ),
    "more CPUs than Slurm counts": (
        nodeset(node_conf={"cpus": 65534}),
        "nodesets.cpu.node_conf",
        "{cpus: 65534}",
        "1 to 65533",
        "correct cpus",
    ),
    "a weight of 33 bits": (
        nodeset(node_conf={"Weight": 2**32}),
        "nodesets.cpu.node_conf.Weight",
        "4294967296",
        "for Weight a whole number, 0 to 4294967293",
        "slurmctld would not start",
    ),
    "a number of slurm.conf below zero": (
        extra(MaxJobCount=-1),
        "slurm.extra.MaxJobCount",
        "-1",
        "0 to 4294967293, or INFINITE",
        "correct it",
    ),
    "a number of slurm.conf in words": (
        extra(TreeWidth="many"),
        "slurm.extra.TreeWidth",
        "many",
        "for TreeWidth a whole number",
        "correct it",
    ),
    "a truth value for a number of slurm.conf": (
        extra(JobRequeue=True),
        "slurm.extra.JobRequeue",
        "true",
        "for JobRequeue a whole number",
        "correct it",
    ),
    "a huge number where any is taken": (
        extra(SuspendTime=10**30),
        "slurm.extra.SuspendTime",
        "1000000000000000000000000000000",
        "9007199254740991",
        "correct it",
    ),
    "a wait of ages": (
        {"slurm": {"drain_seconds": 10**30}},
        "slurm.drain_seconds",
        "10000",
        "at most 31536000",
        "lower it",
    ),
    "CPUs that no topology gives": (
        nodeset(node_conf={"CPUs": 3}),
        "nodesets.cpu.node_conf",
        "3 CPUs on 1 sockets of 2 cores",
        "2 CPUs",
        "leave CPUs out",
    ),
    "a partition parameter with a key of its own": (
        partition(conf={"maxtime": "1"}),
        "partitions.cpu.conf.maxtime",
        "1",
        "MaxTime",
        "set `max_time:`",
    ),
    "a flag of a later release": (
        {"slurm": {"prolog_flags": ["Contain", "RunInJob"]}},
        "slurm.prolog_flags[1]",
        "RunInJob",
        "24.11, 25.05",
        "use an image",
    ),
    "flags that rule each other out": (
        {"slurm": {"prolog_flags": ["NoHold", "Contain"]}},
        "slurm.prolog_flags[0]",
        "NoHold and Contain",
        "one of the two",
        "remove NoHold or Contain",
    ),
    "timers that fight": (
        {"slurm": {"timers": {"message": 100}}},
        "slurm.timers.unkillable_step",
        "240",
        "at least 5 times timers.message (100), that is 500",
        "drain nodes",
    ),
    "a release that the image lacks": (
        {"slurm": {"version": "25.05"}},
        "slurm.version",
        "25.05",
        "22.05",
        "image decides",
    ),
}
