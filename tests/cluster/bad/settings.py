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
