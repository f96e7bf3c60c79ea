"""A resource of ours made in another process, which is killed at one of its requests to the tests' Compute Engine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulumi.dynamic import ResourceProvider

    from lab.google.compute import FakeCompute
    from lab.google.http import Call

_FORKS = multiprocessing.get_context("forkserver")
# So that a child is there at once: Google's client takes seconds to import.
_FORKS.set_forkserver_preload(
    [
        "google.cloud.compute_v1",
        "google.auth.credentials",
        "components.gcp.bake.resource",
        "components.gcp.flex.node",
    ]
)


def make_and_be_killed(fake: FakeCompute, provider: type[ResourceProvider], given: dict[str, Any], number: int) -> bool:
    """Create a resource in another process, which is killed when the server has done what the request of that number
    asked for. Says whether it came to that."""
    first, killed = len(fake.calls), False
    child = _FORKS.Process(target=_create, args=(provider, given))

    def kill(now: int, _call: Call) -> None:
        nonlocal killed
        if now == first + number:
            killed = True
            os.kill(child.pid or 0, signal.SIGKILL)

    fake.after = kill
    try:
        child.start()
        child.join(60)
        assert child.exitcode == (-signal.SIGKILL if killed else 0)
    finally:
        fake.after = lambda _number, _call: None
        child.close()
    return killed


def _create(provider: type[ResourceProvider], given: dict[str, Any]) -> None:
    # What it says is of no interest, and goes nowhere in a process without an engine.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        provider().create(given)
