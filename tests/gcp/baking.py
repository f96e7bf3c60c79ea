"""Helpers of tests against the stand-in of Compute Engine: bakes, killed processes, and runs of the engine."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pulumi.dynamic import ResourceProvider

from components.gcp.bake import bake
from components.gcp.bake_design import bake_of
from components.gcp.baked_image import BakeProvider
from components.gcp.compute_engine import Compute
from engine import Workspace, events
from tests import programs
from tests.lab.google.compute import FakeCompute
from tests.waiting import PATIENCE

IMAGE = "projects/p/global/images/a3mega-0123456789ab"
BUILDER = "projects/p/zones/us-central1-a/instances/a3mega-0123456789ab-builder"
REQUESTS = 33
"""Number of requests of a bake with machines of one step: a run can end at each of them. A test checks it."""
LONG_LIMITS = {"poll": 0.001, "operation": PATIENCE, "image": PATIENCE, "retry_seconds": PATIENCE}
SHORT_LIMITS = {"poll": 0.001, "operation": 0.2, "image": 0.2, "retry_seconds": 0.05}
"""Time limits for operations that do not end."""


def props(fake: FakeCompute, **changes: Any) -> dict[str, Any]:
    """Return the inputs of a baked image, as the engine passes them."""
    return {
        "project": "p",
        "zone": "us-central1-a",
        "image": "a3mega-0123456789ab",
        "digest": "0123456789ab",
        "labels": {"hpc-cluster": "a3mega", "slurm": "25-11-8"},
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
        "content": {"recipe": "2026-11", "slurm": "25.11.8"},
        "storage_location": "us-central1",
        "endpoint": fake.endpoint,
        "pace": LONG_LIMITS,
        **changes,
    }


def run_bake(fake: FakeCompute, say: Callable[[str], None] = lambda _: None, **changes: Any) -> None:
    """Bake in this process."""
    bake(Compute(bake_of(props(fake, **changes))), say)


def bake_and_kill(fake: FakeCompute, number: int) -> bool:
    """Bake in another process, and kill it at the request of that number. Return whether there was such a request."""
    return create_and_kill(fake, BakeProvider, props(fake), number)


def finish_operations(fake: FakeCompute) -> FakeCompute:
    """Finish all operations, and return the server."""
    for operation in fake.world.operations.values():
        if operation.left > 0:
            operation.left = 0
            operation.finish()
    return fake


def assert_no_machines(fake: FakeCompute) -> None:
    """Assert that no machine exists once all operations are done."""
    assert finish_operations(fake).world.machines == {}


def assert_image_ready(fake: FakeCompute) -> None:
    """Assert that there is one image, which is ready."""
    assert {path: image["status"] for path, image in fake.world.images.items()} == {IMAGE: "READY"}


def assert_machines_delete_themselves(fake: FakeCompute) -> None:
    """Assert that the machines of an interrupted bake are deleted by Google."""
    for machine in fake.world.machines.values():
        scheduling = machine.resource["scheduling"]
        assert scheduling["instanceTerminationAction"] == "DELETE"
        assert 0 < int(scheduling["maxRunDuration"]["seconds"]) <= 25 * 3600
        assert all(disk["autoDelete"] for disk in machine.resource["disks"])


_FORKS = multiprocessing.get_context("forkserver")
# Children start at once: importing Google's client takes seconds.
_FORKS.set_forkserver_preload(
    [
        "google.cloud.compute_v1",
        "google.auth.credentials",
        "components.gcp.baked_image",
        "components.gcp.instances",
    ]
)


def create_and_kill(fake: FakeCompute, provider: type[ResourceProvider], given: dict[str, Any], number: int) -> bool:
    """Create a resource in another process, and kill it after the server has handled the request of that number. Return
    whether there was such a request."""
    return programs.killed(fake, len(fake.calls), number, _FORKS.Process(target=_create, args=(provider, given)))


def delete_and_kill(fake: FakeCompute, provider: type[ResourceProvider], given: dict[str, Any], number: int) -> bool:
    """Delete a resource in the same way."""
    return programs.killed(fake, len(fake.calls), number, _FORKS.Process(target=_delete, args=(provider, given)))


def _create(provider: type[ResourceProvider], given: dict[str, Any]) -> None:
    # The output is not needed: in a process without an engine it would go to standard error.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        provider().create(given)


def _delete(provider: type[ResourceProvider], given: dict[str, Any]) -> None:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        provider().delete("", given)


def write_program(folder: Path, program: str) -> None:
    """Write a Pulumi project with this program, which reads its inputs from inputs.json."""
    (folder / "Pulumi.yaml").write_text("name: test\nruntime: python\n")
    (folder / "__main__.py").write_text(program)


def run_engine(folder: Path, kind: str, inputs: Any, *, ok: bool = True, **options: Any) -> list[events.Event]:
    """Run the embedded engine (`up`, `preview`, ...) on the project in `folder`, and return its events."""
    (folder / "inputs.json").write_text(json.dumps(inputs))
    workspace = Workspace(folder, backend=f"file://{folder}/backend", passphrase=lambda: "correct horse")
    received: list[events.Event] = []
    result = getattr(workspace.stack("test"), kind)(received.append, **options)
    assert result.ok is ok, received
    return received
