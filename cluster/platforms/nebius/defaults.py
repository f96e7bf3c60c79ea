"""Values that the stack file need not have on Nebius."""

from collections.abc import Mapping
from typing import Any

CIDR = "10.80.0.0/20"
"""Stands in `network.cidr`, which nothing on Nebius follows: nodes have addresses of their subnet."""
DEFAULTS: Mapping[str, Any] = {
    "nebius": {},
    "host_names": "pods",
    "network": {"cidr": CIDR},
    "storage": {},
    "image": {"base": "soperator"},
    "deletion_protection": True,
}
MACHINE_TYPES: Mapping[str, str] = {
    "controller": "cpu-d3/16vcpu-64gb",
    "login": "cpu-d3/32vcpu-128gb",
    "node": "cpu-d3/16vcpu-64gb",
}
"""By role."""

CONTROLLER_DISK_GIB = 128
LOGIN_DISK_GIB = 256
"""Logging in, compiling and container images fill a smaller one (nebius-solutions-library, variables.tf)."""
CPU_DISK_GIB = 128
GPU_DISK_GIB = 512
"""Container images of several GB fill a smaller one, and Soperator drains the node then."""
SMALLEST_DISK_GIB = 128
"""The smallest boot disk that leaves room for Kubernetes' own 48 GiB and for images."""
