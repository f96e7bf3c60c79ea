"""`./hpc backend init gcs`: what it creates, what it takes over, what it refuses, over HTTP in Google's own JSON."""

import json
import stat
from pathlib import Path

import pytest

from components.gcp.state import default_name
from components.local.compute_engine.http import DroppedConnectionError, RefusalError
from tests.cli.conftest import CLOUD, Hpc
from tests.lab.google.storage import FakeStorage, Owned

INIT = ("backend", "init", "gcs", "--project", "p1", "--bucket", "my-state")


def bucket(**changes: object) -> dict:
    """One that may hold state."""
    access = {"uniformBucketLevelAccess": {"enabled": True}, "publicAccessPrevention": "enforced"}
    return {
        "name": "my-state",
        "location": "EU",
        "versioning": {"enabled": True},
        "iamConfiguration": access,
        **changes,
    }


class TestFromNothing:
    def test_the_bucket_keeps_versions_and_is_closed(self, hpc: Hpc, google: FakeStorage) -> None:
        ended = hpc(*INIT, "--location", "europe-west4", "--keep", "20")
        assert ended.code == 0, ended.err
        made = google.buckets["my-state"].resource
        assert google.buckets["my-state"].project == "p1"
        assert made["location"] == "EUROPE-WEST4"
        assert made["versioning"] == {"enabled": True}
        assert made["iamConfiguration"]["publicAccessPrevention"] == "enforced"
        assert made["iamConfiguration"]["uniformBucketLevelAccess"] == {"enabled": True}
        # 20 old versions: the 21st has 21 newer ones, the live one among them.
        assert made["lifecycle"]["rule"][0]["condition"] == {"isLive": False, "numNewerVersions": 21}
        assert made["softDeletePolicy"] == {"retentionDurationSeconds": "604800"}
        assert "created    bucket my-state: in EUROPE-WEST4, the last 20 versions are kept" in ended.out
        assert "backend URL: gs://my-state" in ended.out
        assert "./hpc env STACK --backend my-state" in ended.err

    def test_project_and_region_come_from_a_stack(self, hpc: Hpc, google: FakeStorage, root: Path) -> None:
        (root / "Pulumi.small.yaml").write_text(CLOUD)
        assert hpc("backend", "init", "gcs", "--stack", "small").code == 0
        (name,) = google.buckets
        assert name == default_name("my-project")
        assert google.buckets[name].project == "my-project"
        assert google.buckets[name].resource["location"] == "US-CENTRAL1"

    def test_a_dry_run_writes_nothing_anywhere(self, hpc: Hpc, google: FakeStorage, tmp_path: Path) -> None:
        ended = hpc(*INIT, "--dry-run")
        assert ended.code == 0
        assert "to create  bucket my-state: in US" in ended.out
        assert "Nothing was changed" in ended.err
        assert {call.method for call in google.calls} == {"GET"}
        assert not (tmp_path / "home/backends").exists()

    def test_json(self, hpc: Hpc, google: FakeStorage) -> None:
        document = json.loads(hpc(*INIT, "--json").out)
        assert document["url"] == "gs://my-state"
        assert document["environment"] == {"PULUMI_BACKEND_URL": "gs://my-state"}
        assert [step["done"] for step in document["steps"]] == ["created"]


class TestAgain:
    def test_a_second_run_changes_nothing(self, hpc: Hpc, google: FakeStorage, tmp_path: Path) -> None:
        hpc(*INIT)
        file = tmp_path / "home/backends/my-state.json"
        before, kept = json.dumps(google.buckets["my-state"].resource), file.read_bytes()
        google.calls.clear()
        ended = hpc(*INIT)
        assert ended.code == 0
        assert "found      bucket my-state" in ended.out
        assert {call.method for call in google.calls} == {"GET"}
        assert json.dumps(google.buckets["my-state"].resource) == before
        assert file.read_bytes() == kept
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700

    def test_it_is_found_behind_others_on_a_later_page(self, hpc: Hpc, google: FakeStorage) -> None:
        for number in range(5):
            google.buckets[f"my-state-{number}"] = Owned("p1", bucket(name=f"my-state-{number}"))
        google.buckets["my-state"] = Owned("p1", bucket())
        google.buckets["my-stat"] = Owned("p1", bucket(name="my-stat"))
        assert "found      bucket my-state" in hpc(*INIT).out

    def test_an_answer_that_was_lost_does_not_create_it_twice(self, hpc: Hpc, google: FakeStorage) -> None:
        def lose(number: int, call: object) -> None:
            if number == 2:
                raise DroppedConnectionError

        google.after = lose
        ended = hpc(*INIT)
        assert ended.code == 0, ended.err
        assert "my-state" in google.buckets


class TestRefused:
    def test_somebody_elses_bucket(self, hpc: Hpc, google: FakeStorage, tmp_path: Path) -> None:
        google.buckets["my-state"] = Owned("p2", bucket())
        ended = hpc(*INIT)
        assert ended.code == 1
        assert "the bucket my-state belongs to another project" in ended.err
        assert "choose another --bucket" in ended.err
        assert not (tmp_path / "home/backends").exists()

    def test_a_bucket_without_versioning_is_left_as_it_is(self, hpc: Hpc, google: FakeStorage) -> None:
        google.buckets["my-state"] = Owned("p1", bucket(versioning={}))
        ended = hpc(*INIT)
        assert ended.code == 1
        assert "exists without versioning," in ended.err
        assert "gcloud storage buckets update gs://my-state --versioning, then" in ended.err
        assert google.buckets["my-state"].resource["versioning"] == {}

    def test_all_that_is_missing_is_named_at_once(self, hpc: Hpc, google: FakeStorage) -> None:
        google.buckets["my-state"] = Owned("p1", {"name": "my-state", "location": "EU"})
        assert "--versioning --uniform-bucket-level-access --public-access-prevention" in hpc(*INIT).err

    REFUSALS = (
        RefusalError(403, "forbidden", "a@b does not have storage.buckets.list access"),
        RefusalError(403, "accessNotConfigured", "API has not been used in project 7"),
        RefusalError(403, "accountDisabled", "The billing account is disabled"),
        RefusalError(400, "invalid", "Unknown project id: p1"),
        RefusalError(412, "conditionNotMet", "'us' violates constraint 'constraints/gcp.resourceLocations'"),
        RefusalError(401, "authError", "Invalid Credentials"),
    )

    def test_google_refuses(self, hpc: Hpc, google: FakeStorage, reviewed) -> None:
        shown = {}
        for refusal in self.REFUSALS:

            def refuse(number: int, call: object, refusal: RefusalError = refusal) -> None:
                raise refusal

            google.before = refuse
            ended = hpc(*INIT)
            assert ended.code == 1
            shown[str(refusal)] = ended.err
        reviewed("cli/backend-gcs", shown)

    def test_google_is_overloaded_for_a_while(self, hpc: Hpc, google: FakeStorage) -> None:
        def refuse(number: int, call: object) -> None:
            if number < 4:
                raise RefusalError(503, "backendError", "We encountered an internal error")

        google.before = refuse
        assert hpc(*INIT).code == 0

    def test_nobody_answers(self, hpc: Hpc, google: FakeStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
        ended = hpc(*INIT)
        assert ended.code == 1
        assert "does not answer" in ended.err

    def test_no_credentials(self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
        ended = hpc(*INIT)
        assert ended.code == 1
        assert "no credentials for Google Cloud" in ended.err
        assert "gcloud auth application-default login" in ended.err

    @pytest.mark.parametrize("name", ["A", "goog-state", "my-google-state", "-a-b", "a" * 64, "a.b.c", "é" * 5])
    def test_a_name_that_no_bucket_can_have(self, hpc: Hpc, google: FakeStorage, name: str) -> None:
        ended = hpc("backend", "init", "gcs", "--project", "p1", f"--bucket={name}")
        assert ended.code == 1
        assert "--bucket" in ended.err
        assert "allowed:" in ended.err
        assert google.calls == []

    def test_no_project(self, hpc: Hpc, google: FakeStorage) -> None:
        assert "--project is missing" in hpc("backend", "init", "gcs").err
        assert "--project is missing" in hpc("backend", "init", "gcs", "--stack", "dev").err
