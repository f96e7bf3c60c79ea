"""`./hpc warm-up`: what the nodes are asked to download, and what is refused."""

import json
from typing import Any

import pytest

from cli.cluster.jobs import Jobs
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs import warm_up
from cluster.observe.nodes import parse_nodes
from tests.cli.commands.jobs.test_check import NODES, OUTPUTS
from tests.cli.conftest import Hpc, patch_outputs


@pytest.fixture
def ran(root: object, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the nodes of stack `dev`, which is up, were asked to download."""
    asked: list[dict[str, Any]] = []
    patch_outputs(monkeypatch, OUTPUTS)
    monkeypatch.setattr(Scheduler, "nodes", lambda _: parse_nodes(NODES))
    monkeypatch.setattr(Jobs, "put", lambda _, files: asked.append({"files": set(files)}))
    monkeypatch.setattr(warm_up, "_run", lambda _, text: asked.append(json.loads(text)) or 0)
    return asked


def test_images_of_the_command_line(ran: list[dict[str, Any]], hpc: Hpc):
    assert hpc("warm-up", "dev", "--image", "alpine:3.20", "--nodes", "cpu-1", "--seconds", "90").code == 0
    written, asked = ran
    assert (asked["images"], asked["seconds"]) == (["alpine:3.20"], 90)
    assert [(row["name"], row["nodes"], row["others"]) for row in asked["partitions"]] == [
        ("cpu", ["dev-cpu-1"], ["dev-cpu-0"])
    ]
    assert written["files"] == {"/opt/apps/hpc/warm_up/warm_up.py", "/opt/apps/hpc/warm_up/warm_up.sh"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "there is nothing to download"),
        (["--image", "docker://alpine"], "--image 'docker://alpine': allowed is an image as registries name it"),
        (["--image", "nvcr.io#nvidia/pytorch"], "with / after the registry"),
    ],
)
def test_what_is_wrong_is_refused(ran: list[dict[str, Any]], hpc: Hpc, words: list[str], text: str):
    assert text in hpc("warm-up", "dev", *words).error
    assert ran == []
