"""Google Cloud: the prolog of A3 Mega nodes.

Each case: what is replaced in a small cluster, where it is told, and words of what was given, is allowed, is to do.
"""

CASES = {
    "rxdm on nodes that are no A3 Mega": (
        {
            "nodesets": {"a3": {"machine_type": "a3-megagpu-8g"}, "cpu": {"machine_type": "n2-standard-2"}},
            "slurm": {"rxdm": {"partitions": ["main"]}},
        },
        "slurm.rxdm.partitions[0]",
        "main, with cpu of n2-standard-2",
        "partitions of a3-megagpu-8g alone",
        "a partition of their own",
    ),
}
