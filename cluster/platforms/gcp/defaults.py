"""Values that a stack on Google Cloud has where its file says nothing."""

from collections.abc import Mapping
from typing import Any

NETWORK: Mapping[str, str] = {
    "cidr": "172.16.0.0/20",
    "gpu_cidr": "10.0.0.0/17",
    "second_cidr": "10.1.0.0/20",
    "services_cidr": "10.128.0.0/20",
}
DEFAULTS: Mapping[str, Any] = {
    "gcp": {},
    "network": NETWORK,
    "storage": {},
    "image": {"base": "ubuntu-2204"},
    "deletion_protection": True,
}
BASE_IMAGES = ("ubuntu-2204", "ubuntu-2404")
"""Operating systems of the catalog that machines can have, the default first."""
MACHINE_TYPES: Mapping[str, str] = {
    "controller": "c2-standard-8",
    "login": "c2-standard-4",
    "monitoring": "n2-standard-2",
    "node": "n2-standard-2",
}
"""Default machine types by role."""
