"""A stack file that Google Cloud could not make is refused by the command itself, before anything exists."""

import json
from pathlib import Path

import pulumi
import pytest
import yaml

from cluster.platforms.gcp.names import place
from components.config import load
from tests.cli.conftest import Hpc
from tests.clouds import settings
from tests.cluster.test_config_errors import CLOUD

ISSUE = (
    "a reservation with placement",
    "spot machines from a reservation",
    "two mounts of one EXAScaler",
    "two EXAScaler file systems",
    "an OSS disk beyond its type's limit",
    "an image family",
    "machines and GPUs in one network",
    "services in the GPUs' network",
    "services in the machines' network",
    "a fsname of nine letters",
    "a bucket over /home",
    "an unknown disk type",
    "a project id with a typo",
    "no zone",
)


@pytest.mark.parametrize("case", ISSUE)
@pytest.mark.parametrize("command", ["preview", "up"])
def test_it_is_refused_in_words_and_nothing_is_made(hpc: Hpc, root: Path, command: str, case: str) -> None:
    changes, where, given, allowed, todo = CLOUD[case]
    stack = settings(**{key: value for key, value in changes.items() if not key.startswith("gcp:")})
    stack |= {key: value for key, value in changes.items() if key.startswith("gcp:")}
    stack = {key: value for key, value in stack.items() if value is not None}
    (root / "Pulumi.cloud.yaml").write_text(yaml.safe_dump({"config": stack}, sort_keys=False))
    ended = hpc(command, "cloud")
    assert ended.code == 1
    assert "1 error in the stack configuration" in ended.err
    assert all(words in ended.err for words in (where, given, allowed, todo))
    assert "Traceback" not in ended.out + ended.err
    assert not list((root.parent / "home").rglob("cloud.json*"))


def test_the_program_itself_refuses_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the Pulumi CLI runs it, with nobody who has read the file before."""
    stack: dict[str, str] = {}
    monkeypatch.setattr("pulumi.config.get_config", stack.get)
    wrong = settings(storage={"lustre": {"kind": "exascaler", "fsname": "exacloud9"}})
    stack.update({"hpc:cluster": json.dumps(wrong["hpc:cluster"]), "gcp:project": wrong["gcp:project"]})
    with pytest.raises(pulumi.RunError, match=r"2 errors(?s:.)*1 to 8 letters(?s:.)*gcp:zone us-central1-a"):
        load()
    stack.update({"hpc:cluster": json.dumps(settings()["hpc:cluster"]), "gcp:zone": "europe-west4-a"})
    assert place(load()).region == "europe-west4"


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"a": ' * 100_000 + "1" + "}" * 100_000, "dev", "{"])
def test_the_program_refuses_what_is_no_mapping_that_can_be_read(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("pulumi.config.get_config", {"hpc:cluster": text}.get)
    with pytest.raises(pulumi.RunError, match="the cluster as a mapping") as caught:
        load()
    assert len(str(caught.value)) < 1000
