"""What `customize` may not change: inputs that outputs, other resources and the program itself depend on."""

from collections.abc import Iterator, Mapping

from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, listing

INPUTS = frozenset(
    {
        "account_id", "address", "boot_disk", "bucket", "instance_id", "ip_cidr_range", "location", "machine_type",
        "member", "name", "network", "network_interfaces", "project", "region", "role", "role_id", "secret",
        "secret_data", "secret_id", "service", "service_account", "source", "source_instance_template", "subnetwork",
        "zone",
    }
)  # fmt: skip
"""Inputs that the stack file itself decides, or by which resources, machines and `./hpc` find each other."""
KEYS: Mapping[str, frozenset[str]] = {
    "labels": frozenset(
        {
            "deployment",
            "hpc-booted",
            "hpc-cluster",
            "hpc-digest",
            "hpc-owner",
            "hpc-part",
            "lustre_index",
            "lustre_target_host",
            "lustre_target_index",
            "lustre_target_role",
            "lustre_type",
            "managed-by",
            "name",
        }
    ),
    "metadata": frozenset({"block-project-ssh-keys", "enable-oslogin", "hpc-boot", "ssh-keys", "startup-script"}),
}
"""Keys of mappings, in the same way."""


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    for index, one in enumerate(config.customize):
        for name, value in one.set.items():
            at = ("customize", index, "set", name)
            if name in INPUTS:
                yield Finding(
                    id="customize-protected",
                    at=at,
                    given=str(value),
                    allowed=f"inputs other than {listing(sorted(INPUTS))}",
                    todo=f"remove it: the cluster depends on the {name} that it gives its resources",
                )
            held = KEYS.get(name, frozenset())
            if held and not isinstance(value, Mapping):
                yield Finding(
                    id="customize-protected",
                    at=at,
                    given=str(value),
                    allowed=f"a mapping, since the cluster needs its own {name}",
                    todo=f"name single keys, e.g. {name}: {{team: ml}}",
                )
            for key in held.intersection(value) if isinstance(value, Mapping) else ():
                yield Finding(
                    id="customize-protected",
                    at=(*at, key),
                    given=str(value[key]),
                    allowed=f"keys of {name} other than {listing(sorted(held))}",
                    todo="remove it: the cluster depends on it",
                )
