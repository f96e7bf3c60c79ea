"""`./hpc check cloud`: rows as text and as JSON, their exit code, and the record in the state dir."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands.cloud import last
from cli.stack import state_dir
from components.gcp import cloud_checks
from tests.cli.conftest import Hpc
from tests.cluster import stacks
from tests.lab.google.apis import GoogleApis, healthy, on, refusal

BILLING = "cloudbilling.projects.getBillingInfo"


@pytest.fixture
def apis(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleApis]:
    """The stack `classic`, in a project in which everything can be created."""
    (root / "Pulumi.classic.yaml").write_text(stacks.EVERY["classic"].read_text())
    with GoogleApis(healthy) as served:
        monkeypatch.setattr(cloud_checks, "GOOGLE", served.endpoint)
        monkeypatch.setattr(cloud_checks, "PAUSES", ())
        yield served


def test_a_project_in_which_all_is_well(hpc: Hpc, apis: GoogleApis) -> None:
    ended = hpc("check", "cloud", "classic")
    assert (ended.code, ended.err) == (0, "")
    assert "ok             billing account of my-project: linked to an open billing account\n" in ended.out
    assert ended.out.splitlines()[-1].endswith(" ok, 0 wrong, 0 could not ask")


def test_a_red_row_has_its_command_and_an_exit_code(hpc: Hpc, apis: GoogleApis) -> None:
    apis.rules.insert(0, on(BILLING, (200, {})))
    ended = hpc("check", "cloud", "classic")
    assert ended.code == 1
    lines = ended.out.splitlines()
    at = lines.index("wrong          billing account of my-project: no open billing account pays for the project")
    assert lines[at + 1].strip() == "to do: gcloud billing projects link my-project --billing-account ACCOUNT"


def test_an_unanswered_question_is_no_failure(hpc: Hpc, apis: GoogleApis) -> None:
    apis.rules.insert(0, on(BILLING, refusal(403, "denied")))
    ended = hpc("check", "cloud", "classic", "--json")
    document = json.loads(ended.out)
    assert (ended.code, document["ok"], document["stack"]) == (0, True, "classic")
    (row,) = [row for row in document["checks"] if row["outcome"] == "could not ask"]
    assert row["seen"] == "you lack the permission resourcemanager.projects.get"


def test_the_answers_are_kept_with_their_date(hpc: Hpc, apis: GoogleApis) -> None:
    assert last("classic") is None
    document = json.loads(hpc("check", "cloud", "classic", "--json").out)
    kept = last("classic")
    assert kept is not None
    assert json.loads(json.dumps({"stack": "classic", **kept.document()})) == document


def test_a_record_that_is_not_one_is_none(hpc: Hpc, apis: GoogleApis) -> None:
    hpc("check", "cloud", "classic")
    (state_dir.directory() / "cloud-checks" / "classic.json").write_text(
        '{"date": "2026-11-28", "checks": [{"id": "x"}]}'
    )
    assert last("classic") is None


def test_a_stack_without_a_cloud_is_refused(hpc: Hpc, root: Path) -> None:
    ended = hpc("check", "cloud", "dev")
    assert ended.code == 1
    assert "stack dev is on platform local: check cloud is for stacks on gcp." in ended.err


def test_no_credential_is_an_error_in_words(hpc: Hpc, apis: GoogleApis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_checks, "GOOGLE", "https://{}.googleapis.com")
    monkeypatch.setenv("GOOGLE_CREDENTIALS", "/nowhere")
    ended = hpc("check", "cloud", "classic", "--json")
    assert ended.code == 1
    assert "GOOGLE_CREDENTIALS is neither a key nor the path of one" in json.loads(ended.out)["error"]
