"""GPUs that are attached to machines, by the name that Compute Engine has for them."""

ACCELERATORS = {
    "t4": "nvidia-tesla-t4",
    "v100": "nvidia-tesla-v100",
    "p4": "nvidia-tesla-p4",
    "p100": "nvidia-tesla-p100",
}
"""Accelerator type of each GPU type that the catalog lets attach (cloud.google.com/compute/docs/gpus)."""
