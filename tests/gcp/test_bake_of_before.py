"""Images that stood before the program knew their content stay: a newer program is no reason to replace a cluster.

The states are those that it wrote for the stacks of this project at its last commit before (tests/gcp/before).
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.load.parse import parse
from components.gcp.bake.resource import BakeProvider
from engine import events
from lab.google.compute import FakeCompute
from tests.cluster.stacks import ROOT, load
from tests.components.test_gcp_image import BAKED, made
from tests.gcp.baking import PATIENT, no_machine_is_left
from tests.gcp.test_bake_engine import Run, run

BEFORE: dict[str, dict[str, Any]] = json.loads((ROOT / "tests/gcp/before/bakes.json").read_text())

__all__ = ["run"]


@pytest.fixture
def fake() -> Iterator[FakeCompute]:
    with FakeCompute() as server:
        yield server


def asked_for(stack: str, **changes: Any) -> dict[str, Any]:
    """What today's program asks for, for a stack file of that time, whose images are of the first recipe."""
    given = load(stack)
    image = {key: one for key, one in given["hpc:cluster"]["image"].items() if key not in ("recipe", "snapshot")}
    cluster = {**given["hpc:cluster"], "image": {**image, "recipe": "2025-01", **changes.pop("image", {})}, **changes}
    (one,) = made(parse({**given, "hpc:cluster": cluster})).all(BAKED)
    return dict(one.inputs)


@pytest.mark.parametrize("stack", BEFORE)
class TestDiff:
    def test_the_image_stays_and_its_content_is_noted(self, stack: str):
        found = BakeProvider().diff("", BEFORE[stack], asked_for(stack))
        assert (found.changes, found.replaces) == (True, [])
        assert "self_link" in (found.stables or [])

    def test_it_is_noted_once(self, stack: str):
        news = asked_for(stack)
        noted = {**BEFORE[stack], "content": news["content"], "labels": news["labels"]}
        assert not BakeProvider().diff("", noted, news).changes

    @pytest.mark.parametrize(
        "changes",
        [
            {"image": {"recipe": "2026-11"}},
            {"slurm": {"version": "24.11"}},
            {"image": {"builder": {"size_gb": 150}}},
        ],
        ids=json.dumps,
    )
    def test_what_the_user_asks_for_at_the_same_time_is_done(self, stack: str, changes: dict[str, Any]):
        assert BakeProvider().diff("", BEFORE[stack], asked_for(stack, **changes)).replaces


@pytest.mark.parametrize("stack", BEFORE)
def test_up_notes_it_without_a_machine_and_knows_the_next_edit(stack: str, fake: FakeCompute, run: Run):
    before = {key: value for key, value in BEFORE[stack].items() if key != "self_link"}
    common = {"endpoint": fake.endpoint, "pace": PATIENT, "subnetwork": "s", "tag": "t", "service_account": "a"}
    run("up", only={**before, **common, "script": "#!/bin/bash\n"})
    fake.calls.clear()

    after = {**_plain(asked_for(stack)), **common}
    planned = [e for e in run("up", only=after) if isinstance(e, events.Planned) and "BakedImage" in e.type]
    assert [event.op for event in planned] == ["update"]
    assert [f"{c.method} {c.path.rpartition('/')[2]}" for c in fake.calls if c.method != "GET"] == ["POST setLabels"]
    (image,) = fake.world.images
    assert image == f"projects/my-project/global/images/{BEFORE[stack]['image']}"

    assert {e.op for e in run("up", only=after) if isinstance(e, events.Planned)} == {"same"}
    own = {"provision": [{"name": "10-tools", "text": "#!/bin/bash\ntrue\n"}]}
    run("up", only={**_plain(asked_for(stack, image=own)), **common})
    assert set(fake.world.images) == {f"projects/my-project/global/images/{asked_for(stack, image=own)['image']}"}
    no_machine_is_left(fake)


def _plain(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if name not in ("__provider", "self_link")}
