"""Processes for tests to kill, forked off one that has imported what they run."""

import gc
import multiprocessing

# Neither collects what is held until its end, as in the program itself (cli/__main__.py).
gc.set_threshold(200_000)
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "components.nebius.api.lifecycle", "components.nebius.deploy", "engine", "nebius.api.nebius.mk8s.v1",
        "nebius.sdk", "pulumi.dynamic", "pulumi_kubernetes.core.v1", "pulumi_kubernetes.helm.v3",
    ]
)  # fmt: skip
