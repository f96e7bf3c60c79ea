"""`./hpc warm-up`: the request for downloads, and what is refused."""

import json
from typing import Any

import pytest

from cli.cluster.jobs import Jobs
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs import warm_up
from scripts.node.slurm.nodes import parse as nodes_of
from tests.cli.commands.jobs.test_check import NODES, OUTPUTS
from tests.cli.conftest import Hpc, patch_outputs


@pytest.fixture
def requests(root: object, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The files and the requests that stack `dev`, which is up, was given."""
    given: list[dict[str, Any]] = []
    patch_outputs(monkeypatch, OUTPUTS)
    monkeypatch.setattr(Scheduler, "nodes", lambda _: nodes_of(NODES))
    monkeypatch.setattr(Jobs, "put", lambda _, files: given.append({"files": set(files)}))
    monkeypatch.setattr(warm_up, "_run", lambda _, text: given.append(json.loads(text)) or 0)
    return given


def test_images_and_nodes_of_the_command_line_are_requested(requests: list[dict[str, Any]], hpc: Hpc):
    assert hpc("warm-up", "dev", "--image", "alpine:3.20", "--nodes", "cpu-1", "--seconds", "90").code == 0
    written, request = requests
    assert (request["images"], request["seconds"]) == (["alpine:3.20"], 90)
    assert [(row["name"], row["nodes"], row["others"]) for row in request["partitions"]] == [
        ("cpu", ["dev-cpu-1"], ["dev-cpu-0"])
    ]
    assert written["files"] == {"/opt/apps/hpc/warm_up/warm_up.py", "/opt/apps/hpc/warm_up/warm_up.sh"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "there is nothing to download"),
        (["--image", "docker://alpine"], "--image 'docker://alpine': allowed is an image as registries name it"),
        (["--image", "nvcr.io#nvidia/pytorch"], "with / after the registry"),
    ],
)
def test_a_request_without_downloads_or_with_a_wrong_image_is_refused(
    requests: list[dict[str, Any]], hpc: Hpc, options: list[str], message: str
):
    assert message in hpc("warm-up", "dev", *options).error
    assert requests == []
