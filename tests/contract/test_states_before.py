"""A stack that is up stays up: over the state of an earlier program, `up` creates, replaces and deletes nothing.

The states are those of `dev` and `a3mega` at commit 748e3c6, with the stack files of that commit; states_before/make.py
says how they were made, and makes them again. The embedded engine runs today's program over them, with stand-ins for
the providers that change nothing outside of the state. (It is `up` and not a preview, because a preview by the embedded
engine does not know the outputs of what it updates, as Google's provider does.) A newer program has another set-up and
other text for Slurm, so what delivers these may be updated, and nothing else.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from engine.core.diff import Diff
from engine.events import Event, Planned
from engine.providers import Providers
from engine.providers.base import Context, Provider
from engine.providers.dynamic import Dynamic
from engine.state.secrets import unseal
from engine.values import plain
from engine.workspace import Workspace
from tests.harness import ROOT, Recording

BEFORE = Path(__file__).parent / "states_before"
STACKS = ("dev", "a3mega")
CARRIES_VERSION = {
    "command:remote:Command": ("stdin", "create", "update", "delete"),
    "pulumi-python:dynamic/local:Machine": ("files",),
    "gcp:compute/instance:Instance": ("metadata.startup-script", "metadata.hpc-boot"),
    "gcp:compute/instanceFromTemplate:InstanceFromTemplate": ("metadata.startup-script", "metadata.hpc-boot"),
    # An object is named after the hash of its content.
    "gcp:storage/bucketObject:BucketObject": ("name", "source"),
}
"""Inputs that carry the set-up or Slurm's text, by type: other inputs are not updated."""
_make: Callable[[Providers, str], Provider] = Providers._make


class StandIn(Provider):
    """Checks and compares as the real provider, as far as there is one here, and does nothing."""

    def __init__(self, real: Provider) -> None:
        self.real = real

    def check(self, ctx: Context, olds: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
        return self.real.check(ctx, olds, news)

    def diff(self, ctx: Context, id_: str, olds: dict[str, Any], outputs: dict[str, Any], news: dict[str, Any]) -> Diff:
        diff = self.real.diff(ctx, id_, olds, outputs, news)
        if isinstance(self.real, Dynamic):
            # They look at this host, where nothing of the stack is: what differs with the old inputs too is due to it.
            absent = self.real.diff(ctx, id_, olds, outputs, olds)
            replaces = tuple(key for key in diff.replaces if key not in absent.replaces)
            return Diff(bool(replaces) or (diff.changes if not absent.changes else None), replaces)
        return diff

    def create(self, ctx: Context, news: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return f"{ctx.name}-id", news

    def update(
        self, ctx: Context, id_: str, olds: dict[str, Any], outputs: dict[str, Any], news: dict[str, Any]
    ) -> dict[str, Any]:
        return {**outputs, **news}


def up(stack: str, folder: Path, state: dict[str, Any]) -> list[Planned]:
    """What today's program does to the stack as it was."""
    workspace = Workspace(ROOT, backend=f"file://{folder}", passphrase=lambda: "passphrase")
    was = workspace.stack(stack, BEFORE / f"Pulumi.{stack}.yaml")
    was.import_state(state)
    planned: list[Planned] = []

    def collect(event: Event) -> None:
        planned.extend([event] if isinstance(event, Planned) else [])

    with (
        mock.patch.object(Providers, "_make", lambda self, family: StandIn(_make(self, family))),
        mock.patch("components.gcp.access.tunnels.opened", Recording().opened),
    ):
        assert was.up(collect).ok
    return planned


def state_of(stack: str) -> dict[str, Any]:
    return json.loads(gzip.decompress((BEFORE / f"{stack}.json.gz").read_bytes()))


def rows(state: dict[str, Any]) -> list[dict[str, Any]]:
    return state["deployment"]["resources"]


def disturbed(planned: list[Planned]) -> list[str]:
    """Steps that a newer program has no reason for."""
    return [
        f"{one.op} {one.urn}: {[change.path for change in one.changes]}"
        for one in planned
        if one.op != "same"
        and not (
            one.op == "update"
            and all(change.path.startswith(CARRIES_VERSION.get(one.type, ())) for change in one.changes)
        )
    ]


@pytest.mark.parametrize("stack", STACKS)
class TestStateOfBefore:
    def test_no_resource_is_created_replaced_or_deleted(self, stack: str, tmp_path: Path):
        state = state_of(stack)
        planned = up(stack, tmp_path, state)
        assert disturbed(planned) == []
        registered = {row["urn"] for row in rows(state) if not row["type"].startswith("pulumi:providers:")}
        assert {one.urn for one in planned} == registered

    def test_its_dynamic_providers_can_be_loaded(self, stack: str):
        """They are pickled by module and class: `destroy` and `refresh` load them from the state."""
        with_provider = [row for row in rows(state_of(stack)) if "__provider" in row.get("inputs", {})]
        assert with_provider
        for row in with_provider:
            provider = Dynamic({}, "hpc")._provider(plain(unseal(row["outputs"], str)), {})
            assert type(provider).__module__.startswith("components."), row["urn"]


class TestWhatWouldBeSeen:
    def test_a_replaced_machine(self, tmp_path: Path):
        state = state_of("dev")
        (row,) = [row for row in rows(state) if row["urn"].endswith("Machine::dev-cpu-0")]
        row["inputs"]["image"] = row["outputs"]["image"] = "another"
        assert [line for line in disturbed(up("dev", tmp_path, state)) if line.startswith(f"replace {row['urn']}")]

    def test_a_changed_urn(self, tmp_path: Path):
        state = json.loads(json.dumps(state_of("a3mega")).replace("hpc:gcp:Nat", "hpc:gcp:Nats"))
        steps = {line.split(" ")[0] for line in disturbed(up("a3mega", tmp_path, state))}
        assert {"create", "delete"} <= steps

    def test_a_changed_input(self, tmp_path: Path):
        state = state_of("a3mega")
        row = next(row for row in rows(state) if row["type"] == "gcp:compute/instanceTemplate:InstanceTemplate")
        row["inputs"]["machineType"] = "n1-standard-1"
        assert [line for line in disturbed(up("a3mega", tmp_path, state)) if line.startswith(f"update {row['urn']}")]
