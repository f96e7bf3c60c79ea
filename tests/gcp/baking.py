"""Bakes against a Compute Engine of the tests' own, and what must hold after each, whatever happened."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

from pulumi.dynamic import ResourceProvider

from components.gcp.bake import bake
from components.gcp.bake_design import bake_of
from components.gcp.compute_engine import Compute
from components.gcp.dynamic_resources import BakeProvider
from lab.google.compute import FakeCompute
from lab.google.http import Call
from tests.waiting import PATIENCE

IMAGE = "projects/p/global/images/a3mega-0123456789ab"
BUILDER = "projects/p/zones/us-central1-a/instances/a3mega-0123456789ab-builder"
REQUESTS = 33
"""Of a bake from nothing with machines of one step: each is a moment at which it can end. A test holds the number."""
PATIENT = {"poll": 0.001, "operation": PATIENCE, "image": PATIENCE, "retry_seconds": PATIENCE}
HASTY = {"poll": 0.001, "operation": 0.2, "image": 0.2, "retry_seconds": 0.05}
"""For what never comes."""


def props(fake: FakeCompute, **changes: Any) -> dict[str, Any]:
    """A resource's inputs, as the engine hands them on."""
    return {
        "project": "p",
        "zone": "us-central1-a",
        "image": "a3mega-0123456789ab",
        "digest": "0123456789ab",
        "labels": {"hpc-cluster": "a3mega", "slurm": "25-05-8"},
        "builder_labels": {"hpc-cluster": "a3mega", "hpc-part": "image"},
        "description": "for a3mega",
        "source_image": "projects/ubuntu-os-cloud/global/images/ubuntu-2204-jammy-v20250128",
        "machine_type": "c2-standard-8",
        "size_gb": 200.0,
        "minutes": 1.0,
        "subnetwork": "projects/p/regions/us-central1/subnetworks/a3mega",
        "tag": "a3mega",
        "service_account": "a3mega-bake@p.iam.gserviceaccount.com",
        "script": "#!/bin/bash\necho install\n",
        "trial": "#!/bin/bash\necho try\n",
        "content": {"recipe": "2026-11", "slurm": "25.05"},
        "storage_location": "us-central1",
        "endpoint": fake.endpoint,
        "pace": PATIENT,
        **changes,
    }


def make(fake: FakeCompute, say: Callable[[str], None] = lambda _: None, **changes: Any) -> None:
    """Bake in this process."""
    bake(Compute(bake_of(props(fake, **changes))), say)


def make_and_be_killed(fake: FakeCompute, number: int) -> bool:
    """Bake in another process, which is killed at the request of that number; whether it came to that."""
    return created_and_killed(fake, BakeProvider, props(fake), number)


def settled(fake: FakeCompute) -> FakeCompute:
    """The server after what it still had to do, as after a while."""
    for operation in fake.world.operations.values():
        if operation.left > 0:
            operation.left = 0
            operation.finish()
    return fake


def no_machine_is_left(fake: FakeCompute) -> None:
    """Nothing costs anything."""
    assert settled(fake).world.machines == {}


def the_image_is_whole(fake: FakeCompute) -> None:
    """There is one image, and it can be used."""
    assert {path: image["status"] for path, image in fake.world.images.items()} == {IMAGE: "READY"}


def what_is_left_ends_by_itself(fake: FakeCompute) -> None:
    """Whoever never comes back leaves nothing for long."""
    for machine in fake.world.machines.values():
        scheduling = machine.resource["scheduling"]
        assert scheduling["instanceTerminationAction"] == "DELETE"
        assert 0 < int(scheduling["maxRunDuration"]["seconds"]) <= 25 * 3600
        assert all(disk["autoDelete"] for disk in machine.resource["disks"])


_FORKS = multiprocessing.get_context("forkserver")
# So that a child is there at once: Google's client takes seconds to import.
_FORKS.set_forkserver_preload(
    [
        "google.cloud.compute_v1",
        "google.auth.credentials",
        "components.gcp.dynamic_resources",
        "components.gcp.dynamic_resources",
        "components.gcp.instances",
    ]
)


def created_and_killed(fake: FakeCompute, provider: type[ResourceProvider], given: dict[str, Any], number: int) -> bool:
    """Create a resource in another process, which is killed when the server has done what the request of that number
    asked for. Says whether it came to that."""
    return _killed(fake, _create, provider, given, number)


def deleted_and_killed(fake: FakeCompute, provider: type[ResourceProvider], given: dict[str, Any], number: int) -> bool:
    """The same while a resource is deleted."""
    return _killed(fake, _delete, provider, given, number)


def _killed(
    fake: FakeCompute,
    act: Callable[[type[ResourceProvider], dict[str, Any]], None],
    provider: type[ResourceProvider],
    given: dict[str, Any],
    number: int,
) -> bool:
    first, killed = len(fake.calls), False
    child = _FORKS.Process(target=act, args=(provider, given))

    def kill(now: int, _call: Call) -> None:
        nonlocal killed
        if now == first + number:
            killed = True
            os.kill(child.pid or 0, signal.SIGKILL)

    fake.after = kill
    try:
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == (-signal.SIGKILL if killed else 0)
    finally:
        fake.after = lambda _number, _call: None
        child.close()
    return killed


def _create(provider: type[ResourceProvider], given: dict[str, Any]) -> None:
    # What it says is of no interest, and goes nowhere in a process without an engine.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        provider().create(given)


def _delete(provider: type[ResourceProvider], given: dict[str, Any]) -> None:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        provider().delete("", given)
