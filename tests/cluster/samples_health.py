"""One change of every field of the health checks, of a cluster that has them."""

from cluster.config.impact import Effect
from tests.cluster.samples import LAB, Cluster, Sample, at, gone

CHECKED: Cluster = {**LAB, "slurm": {**LAB["slurm"], "health": {"nccl": {}, "diag": {}, "fabric": {}, "network": {}}}}
_NOTHING = {
    "drain": False, "resume_after": 5, "skip": ["clock"], "timeout_seconds": 10,
    "disk_free_percent": 10, "clock_seconds": 20, "ecc_errors": 1, "nvlink_errors": 1, "nic_mbps": 1000,
}  # fmt: skip
_RECONFIGURE = {"interval_seconds": 60, "requeue": True, "prolog": False, "epilog": False}


def _field(*path: str, **values: object) -> str:
    return ".".join(("slurm", "health", *path, *values))


SAMPLES: list[Sample] = [
    ("slurm.health", gone("slurm", "health"), Effect.RECONFIGURE),
    *((_field(key), at("slurm", "health", **{key: value}), Effect.NOTHING) for key, value in _NOTHING.items()),
    *((_field(key), at("slurm", "health", **{key: value}), Effect.RECONFIGURE) for key, value in _RECONFIGURE.items()),
    *((_field(one), gone("slurm", "health", one), Effect.NOTHING) for one in ("nccl", "diag", "fabric", "network")),
    *(
        (_field(one, key), at("slurm", "health", one, **{key: {"user": "bob", "level": 3}.get(key, 7)}), Effect.NOTHING)
        for one, keys in {
            "nccl": ("every_hours", "min_busbw_gbps", "minutes", "user"),
            "fabric": ("every_hours", "min_busbw_gbps", "minutes", "user"),
            "diag": ("every_hours", "level", "minutes"),
            "network": ("every_hours", "min_mbps", "seconds"),
        }.items()
        for key in keys
    ),
]
