"""Nodes of flex start against a Compute Engine of the tests' own."""

from __future__ import annotations

from typing import Any

from components.gcp.flex.design import wanted_of
from components.gcp.flex.node import FlexNodeProvider, FlexRequestProvider
from components.gcp.flex.start import FlexCompute, start
from lab.google.compute import FakeFlex
from lab.google.http import Call
from tests.gcp import killed

NODE = "projects/p/zones/us-central1-a/instances/a3-gpu-0"
TEMPLATE = "https://www.googleapis.com/compute/v1/projects/p/global/instanceTemplates/t-1"
PATIENT = {"poll": 0.001, "operation": 60, "retry_seconds": 30}


def props(fake: FakeFlex, **changes: Any) -> dict[str, Any]:
    """A node's inputs, as the engine hands them on."""
    return {
        "project": "p",
        "zone": "us-central1-a",
        "name": "a3-gpu-0",
        "cluster": "a3",
        "template": TEMPLATE,
        "labels": {"hpc-cluster": "a3", "hpc-part": "node"},
        "metadata": {"hpc-boot": "{}", "startup-script": "#!/bin/sh\n"},
        "endpoint": fake.endpoint,
        "pace": PATIENT,
        **changes,
    }


def make(fake: FakeFlex, **changes: Any) -> list[str]:
    """Have the node run; what was said meanwhile."""
    said: list[str] = []
    start(FlexCompute(wanted_of(props(fake, **changes))), said.append)
    return said


def make_and_be_killed(fake: FakeFlex, number: int) -> bool:
    """Ask for the node in another process, which is killed at the request of that number; whether it came to that."""
    return killed.make_and_be_killed(fake, FlexNodeProvider, props(fake), number)


def given_up(fake: FakeFlex) -> None:
    """What `destroy` does where the node never came into the state."""
    FlexRequestProvider().delete("", props(fake))


def status(fake: FakeFlex) -> dict[str, str]:
    """Every machine that there is, and its state."""
    return {path: machine.resource["status"] for path, machine in fake.world.machines.items()}


def asked(fake: FakeFlex) -> list[Call]:
    """Requests for a machine."""
    return [call for call in fake.calls if call.method == "POST" and call.path.endswith("/instances")]
