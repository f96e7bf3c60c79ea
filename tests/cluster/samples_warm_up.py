"""One change of every field of the warm-up, of a cluster that has one."""

from cluster.config.impact import Effect
from tests.cluster.samples import LAB, Cluster, Sample, at, gone

WARMED: Cluster = {**LAB, "slurm": {**LAB["slurm"], "warm_up": {"containers": ["alpine:3.20"]}}}
_AT = ("slurm", "warm_up")
SAMPLES: list[Sample] = [
    ("slurm.warm_up", gone(*_AT), Effect.NOTHING),
    ("slurm.warm_up.partitions", at(*_AT, partitions=["gpu"]), Effect.NOTHING),
    ("slurm.warm_up.containers", at(*_AT, containers=["nvcr.io/nvidia/pytorch:24.04-py3"]), Effect.NOTHING),
    ("slurm.warm_up.seconds", at(*_AT, seconds=600), Effect.NOTHING),
]
