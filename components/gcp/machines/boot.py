"""The metadata with which a machine on Google Cloud is created. It does the rest itself.

On the instance rather than in a template, so that a change is an update in place, which the machine takes over within
a minute. Nothing secret is in it: who may see an instance may see its metadata.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pulumi

from cluster.config import ClusterConfig
from cluster.roster import MachineSpec, controller_name
from components.gcp.machines.setup_bucket import StoredObject
from components.slurm import payload

SCRIPTS = Path(__file__).parents[3] / "scripts" / "gcp"
HOST_KEY = "/etc/ssh/hpc_host_key"
"""Where a machine keeps the SSH host key that the stack gives it; scripts/gcp/start.py has sshd use it alone."""
STATE_DEVICE = "hpc-state"
"""Device name of the controller's state disk."""
STATE_DISK = f"/dev/disk/by-id/google-{STATE_DEVICE}"
"""Where the controller finds it (Google's udev rules make the link)."""

FIXED: Mapping[str, str] = {
    # Users come from the stack file, the same on every platform, and root by the stack's own key alone.
    "enable-oslogin": "FALSE",
    "block-project-ssh-keys": "TRUE",
    # The start-up script's state can be read without logging in, and its console outlives the machine.
    "enable-guest-attributes": "TRUE",
    "serial-port-logging-enable": "TRUE",
    # Machines find each other by short names, in projects that were made with global DNS as well.
    "VmDnsSetting": "ZonalPreferred",
}
"""Metadata that Google's own agents read, the same on every machine (cloud.google.com/compute/docs/metadata)."""


@dataclass(frozen=True, kw_only=True)
class BootArgs:
    """What a machine needs to become a member of its cluster."""

    admin_key: pulumi.Input[str]
    """Public half (OpenSSH) of the operator's key: root everywhere."""
    cluster_key: pulumi.Input[str]
    """Public half of the controller's key to the nodes."""
    secrets: Mapping[str, pulumi.Input[str]]
    """Version of a secret (projects/P/secrets/S/versions/V), by the file that the machine keeps it in."""
    setup: StoredObject
    """The set-up; compute nodes run it themselves, the others are brought it over SSH."""
    install: StoredObject | None
    """What a machine runs at its first boot where no image brings it."""
    mounts: Sequence[Mapping[str, pulumi.Input[str]]]
    """Shared file systems of this machine: source, target, fs_type, options."""


def metadata(config: ClusterConfig, spec: MachineSpec, args: BootArgs) -> dict[str, pulumi.Input[str]]:
    return {**FIXED, "startup-script": startup_script(), "hpc-boot": boot_attribute(config, spec, args)}


def boot_attribute(config: ClusterConfig, spec: MachineSpec, args: BootArgs) -> pulumi.Output[str]:
    """The attribute `hpc-boot`, as scripts/gcp/start.py reads it."""
    node = spec.roles == ("node",)
    keys = [args.admin_key, args.cluster_key] if node else [args.admin_key]
    boot: dict[str, Any] = {
        "cluster": config.name,
        "roles": list(spec.roles),
        "install": _object(args.install),
        "secrets": dict(args.secrets),
        "setup": _object(args.setup) if node else None,
        "node": pulumi.Output.all(*[dict(mount) for mount in args.mounts]).apply(
            lambda mounts: json.loads(payload.node_json(mounts=mounts, controller=controller_name(config)))
        )
        if node
        else None,
        "files": {
            "/root/.ssh/authorized_keys": {
                "content": pulumi.Output.all(*keys).apply(lambda keys: "".join(key.strip() + "\n" for key in keys)),
                "mode": "0600",
            }
        },
    }
    return pulumi.Output.json_dumps(boot, sort_keys=True)


@cache
def startup_script() -> str:
    """The files of scripts/gcp as one program: metadata carries one text."""
    own = (SCRIPTS / "start.py").read_text()
    apis = (SCRIPTS / "google_apis.py").read_text().partition("from __future__ import annotations\n")[2]
    # Functions as replacements: backslashes in the texts are no escapes.
    own = re.sub(r"^from google_apis import .*\n", lambda _: apis.strip("\n") + "\n", own, count=1, flags=re.MULTILINE)
    shield = (SCRIPTS / "shield.sh").read_text()
    return re.sub(r'^SHIELD = "".*$', lambda _: f"SHIELD = {shield!r}", own, count=1, flags=re.MULTILINE)


def _object(stored: StoredObject | None) -> dict[str, pulumi.Input[str]] | None:
    return {"url": stored.url, "sha256": stored.sha256} if stored else None
