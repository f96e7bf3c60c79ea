"""Partitions and their limits.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

from tests.cluster.bad.change import PARTITION, partition

CASES = {
    "a partition naming no nodeset": (
        partition(nodesets=["gpu"]),
        "partitions.cpu.nodesets[0]",
        "gpu",
        "cpu",
        "define",
    ),
    "a nodeset nearly named": (partition(nodesets=["cup"]), "partitions.cpu.nodesets[0]", "cup", "cpu", "write cpu"),
    "a partition without nodesets": (partition(nodesets=[]), "partitions.cpu.nodesets", "[]", "at least 1", "add one"),
    "a nodeset named twice": (
        partition(nodesets=["cpu", "cpu"]),
        "partitions.cpu.nodesets",
        "cpu, cpu",
        "once",
        "remove",
    ),
    "two defaults": (
        {"partitions": {"cpu": PARTITION, "gpu": PARTITION}},
        "partitions.gpu.default",
        "as in partition cpu",
        "exactly one",
        "remove `default: true`",
    ),
    "no default": (partition(default=False), "partitions", "no partition", "exactly one default", "default: true"),
    "a partition named as a keyword": (
        {"partitions": {"ALL": PARTITION}},
        "partitions.ALL",
        "ALL",
        "any name but default, all",
        "keyword of slurm.conf",
    ),
    "two names that differ in case only": (
        {"partitions": {"cpu": PARTITION, "CPU": {"nodesets": ["cpu"]}}},
        "partitions.CPU",
        "CPU",
        "differs from cpu in more than capitals",
        "rename one of the two",
    ),
    "a time in numerals of another script": (
        partition(max_time="\u0661\u0662:00:00"),
        "partitions.cpu.max_time",
        "\u0661\u0662:00:00",
        "12:00:00",
        "quotes",
    ),
    "a time of more seconds than Slurm counts": (
        partition(max_time="24856-00:00:00"),
        "partitions.cpu.max_time",
        "24856-00:00:00",
        "at most 24855 days",
        "32 bits",
    ),
    "a time of a thousand digits": (
        partition(max_time="9" * 1000),
        "partitions.cpu.max_time",
        "999...",
        "minutes",
        "quotes",
    ),
    "more memory for a CPU than there can be": (
        partition(def_mem_per_cpu=10**15),
        "partitions.cpu.def_mem_per_cpu",
        "1000000000000000",
        "at most 4294967296",
        "lower it",
    ),
    "more nodes than Slurm can have": (
        partition(max_nodes=10**30),
        "partitions.cpu.max_nodes",
        "1000000000000000000000000000000",
        "at most 65536",
        "lower it",
    ),
    "a time that Slurm can't read": (
        partition(max_time="1 day"),
        "partitions.cpu.max_time",
        "1 day",
        "7-00:00:00",
        "quotes",
    ),
    "a time without quotes": (partition(max_time=43200), "partitions.cpu.max_time", "43200", "in quotes", "quotes"),
    "a default time above the limit": (
        partition(max_time="01:00:00", default_time="61"),
        "partitions.cpu.default_time",
        "61",
        "at most max_time, 01:00:00",
        "raise max_time",
    ),
    "more memory for a CPU than a node has": (
        partition(def_mem_per_cpu=4096),
        "partitions.cpu.def_mem_per_cpu",
        "4096",
        "1 to 2048 MiB",
        "leave it out",
    ),
    "no memory for a CPU": (
        partition(def_mem_per_cpu=0),
        "partitions.cpu.def_mem_per_cpu",
        "0",
        "at least 1",
        "raise it",
    ),
    "default memory above the most": (
        partition(def_mem_per_cpu=1024, max_mem_per_cpu=512),
        "partitions.cpu.def_mem_per_cpu",
        "1024",
        "at most max_mem_per_cpu, 512",
        "lower",
    ),
    "more nodes than there are": (
        partition(max_nodes=3),
        "partitions.cpu.max_nodes",
        "3",
        "2 nodes",
        "raise the count",
    ),
    "fewest above most": (
        partition(min_nodes=2, max_nodes=1),
        "partitions.cpu.min_nodes",
        "2",
        "at most max_nodes, 1",
        "lower min_nodes",
    ),
    "a QOS that does not exist": (partition(qos="urgent"), "partitions.cpu.qos", "urgent", "normal", "accounting.qos"),
}
