"""Machines on Google Cloud, as their components register them."""

import json
from functools import cache
from typing import Any

import pulumi

from components.gcp.machines.identity import Identity
from components.gcp.machines.machines import MachineArgs, Machines
from components.gcp.network import Network
from components.slurm.keys import ClusterKeys
from tests.clouds import google
from tests.harness import Recording, deploy

INSTANCE, NODE = "gcp:compute/instance:Instance", "gcp:compute/instanceFromTemplate:InstanceFromTemplate"
TEMPLATE, DISK = "gcp:compute/instanceTemplate:InstanceTemplate", "gcp:compute/disk:Disk"
POLICY, ADDRESS = "gcp:compute/resourcePolicy:ResourcePolicy", "gcp:compute/address:Address"
NOBLE = {"base": "ubuntu-2404"}
C2 = {"machine_type": "c2-standard-8", "count": 1}
T4 = {"machine_type": "n1-standard-1", "count": 2, "gpus": {"type": "t4", "count": 2}, "disk": {"size_gb": 80}}
CLASSIC: dict[str, Any] = {
    "image": NOBLE,
    "controller": {
        "machine_type": "e2-standard-4",
        "disk": {"type": "pd-balanced", "size_gb": 120},
        "capacity": {"spot": {}},
    },
    "network": {"admin_cidrs": ["203.0.113.0/24"]},
    "login": {"on": "controller", "public": True},
    "nodesets": {"cpu": {"on": "controller"}, "gpu": T4},
}


def made(**changes: Any) -> Recording:
    """What a cluster's machines register; `path` is their image, `told` a key of their metadata."""
    return _made(json.dumps(changes))


@cache
def _made(given: str) -> Recording:
    """Once for all tests: none of them changes what it looks at."""
    changes: dict[str, Any] = json.loads(given)
    options = {key: changes.pop(key) for key in ("preview", "unknown") if key in changes}
    image = changes.pop("path", "projects/my-project/global/images/ours")
    told = changes.pop("told", "orders")
    config = google(**changes)

    def program() -> None:
        network = Network("cloud-network", config)
        identity = Identity("cloud-identity", config, ClusterKeys("cloud"))
        found = Machines(
            "cloud-machines",
            MachineArgs(
                config=config,
                network=network,
                identity=identity,
                image=image,
                metadata=lambda spec: {told: pulumi.Output.json_dumps(identity.versions(spec))},
            ),
        )
        pulumi.export("machines", {one.spec.name: one.summary for one in found.machines})
        pulumi.export("ids", {one.spec.name: [one.instance_id, one.boot_id] for one in found.machines})
        pulumi.export("public", found.public)
        pulumi.export("order", [one.spec.name for one in found.machines])

    return deploy(program, **options)


def inputs(recording: Recording) -> dict[str, tuple[str, Any]]:
    """Type and inputs of each resource, by URN."""
    return {one.urn: (one.type, one.inputs) for one in recording.resources}


def template(**nodeset: Any) -> dict[str, Any]:
    """Inputs of the template of a nodeset."""
    # T4 machines install their driver themselves.
    (one,) = made(nodesets={"gpu": nodeset}, **({"image": NOBLE} if "gpus" in nodeset else {})).all(TEMPLATE)
    return one.inputs
