"""A destroy without deletion_protection deletes the backups, without which Nebius would not delete their bucket."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from components.nebius import object_storage
from components.nebius.api import client, lifecycle, objects
from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import KINDS
from components.nebius.backups import ContentsProvider
from tests.harness import ROOT
from tests.lab.nebius_api.object_storage import S3Error
from tests.lab.nebius_api.server import NebiusServer
from tests.waiting import wait_for

PROJECT, OWNER, BUCKET = "project-e00test", "0123456789abcdef", "lab-backups-01234567"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[NebiusServer]:
    for name in ("NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE", "NEBIUS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(object_storage, "PASS_SECONDS", 0.01)
    with NebiusServer(seconds=0.01) as server:
        yield server
        client.close()


def filled(api: NebiusServer, count: int) -> dict[str, Any]:
    """Add a bucket with backups and a key to it, and return the inputs of its contents."""
    with api.lock:
        ids = [
            api.store.add(kind, {"parent_id": PROJECT, "name": BUCKET, "labels": {"hpc-owner": OWNER}}, {}, "ACTIVE")
            for kind in ("Bucket", "AccessKey")
        ]
        bucket, key = (row["metadata"]["id"] for row in ids)
        api.store.contents[BUCKET] = {f"data/{number:04x} <&>": 1 for number in range(count)}
    found: Any = objects.get(KINDS["AccessKey"], key)
    return {
        "bucket_id": bucket, "key_id": found.status.aws_access_key_id, "secret": "s", "keep": False,
        "pace": 0.01,
    }  # fmt: skip


def left(api: NebiusServer) -> int:
    with api.lock:
        return len(api.store.contents[BUCKET])


def delete_bucket(api: NebiusServer, id_: str) -> None:
    given = {"kind": "Bucket", "resource_name": BUCKET, "parent_id": PROJECT, "owner": OWNER, "pace": 0.01}
    lifecycle.delete(id_, given)


def test_a_signature_is_that_of_amazons_example() -> None:
    """Source: API reference, Authenticating Requests: Using the Authorization Header, "GET Bucket (List Objects)"."""
    bucket = object_storage.BucketWithKey(
        url="https://examplebucket.s3.amazonaws.com", region="us-east-1", name="examplebucket", pace=0.01,
        key_id="AKIAIOSFODNN7EXAMPLE", secret="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    )  # fmt: skip
    host, at = {"host": "examplebucket.s3.amazonaws.com"}, datetime(2013, 5, 24, tzinfo=timezone.utc)
    headers = bucket.sign("GET", "/", {"prefix": "J", "max-keys": "2"}, host, b"", at)
    expected = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    assert headers["authorization"].endswith(f"Signature={expected}")


def test_a_bucket_goes_once_its_backups_are_deleted(api: NebiusServer, capfd: pytest.CaptureFixture[str]) -> None:
    given = filled(api, 2500)
    with pytest.raises(NebiusError, match="BucketNotEmpty"):
        delete_bucket(api, given["bucket_id"])
    ContentsProvider().delete("x", given)
    assert left(api) == 0
    assert [line for line in api.storage.requests if line.startswith("POST")] == ["POST delete="] * 3
    assert "2500 objects deleted" in "".join(capfd.readouterr())
    delete_bucket(api, given["bucket_id"])
    seen = len(api.storage.requests)
    ContentsProvider().delete("x", given)
    assert len(api.storage.requests) == seen, "a bucket that is deleted is not asked again"


def test_it_goes_on_after_a_kill(api: NebiusServer) -> None:
    given = filled(api, 1500)
    program = "import json, sys; from components.nebius.backups import ContentsProvider as P; "
    command = [sys.executable, "-c", f"{program}P().delete('x', json.loads(sys.argv[1]))", json.dumps(given)]

    def refuse_later() -> bool:
        """From the second deletion on, S3 does not answer."""
        with api.lock:
            if left(api) < 1500 and not api.storage.refusals:
                api.storage.refusals = [S3Error(503, "SlowDown", "Please reduce your request rate.")] * 100_000
            return bool(api.storage.refusals) and len(api.storage.refusals) < 100_000

    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as child:
        try:
            wait_for(refuse_later, "a request after the first deletion")
        finally:
            child.send_signal(signal.SIGKILL)
    api.storage.refusals = []
    ContentsProvider().delete("x", given)
    assert left(api) == 0


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_can_pass_is_tried_again(api: NebiusServer, status: int, capfd: pytest.CaptureFixture[str]) -> None:
    given = filled(api, 3)
    api.storage.refusals = [S3Error(status, "SlowDown", "Please reduce your request rate.")] * 2
    ContentsProvider().delete("x", given)
    assert left(api) == 0
    assert f"HTTP {status}, SlowDown: Please reduce your request rate.; it is tried again" in "".join(
        capfd.readouterr()
    )


def test_what_stays_refused_is_an_error_in_words(api: NebiusServer) -> None:
    given = filled(api, 3)
    with pytest.raises(NebiusError, match=r"HTTP 403, InvalidAccessKeyId: .*\n  to do: "):
        ContentsProvider().delete("x", {**given, "key_id": "NAKIANOTHER"})
    assert left(api) == 3


def test_a_bucket_that_is_still_written_to_is_an_error(api: NebiusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    given, deletion = filled(api, 1), object_storage.BucketWithKey._delete

    def written_again(bucket: object_storage.BucketWithKey, keys: list[str]) -> int:
        deleted = deletion(bucket, keys)
        late.append(len(keys))
        return deleted

    late: list[int] = []
    monkeypatch.setattr(object_storage.BucketWithKey, "_delete", written_again)
    looks = iter(range(object_storage.PASSES))

    def write(*_: object) -> None:
        with api.lock:
            api.store.contents[BUCKET][f"late-{next(looks)}"] = 1

    monkeypatch.setattr(object_storage.Poll, "pause", write)
    with pytest.raises(NebiusError, match="something writes to it: 5 objects were deleted"):
        ContentsProvider().delete("x", given)
    assert late == [1] * object_storage.PASSES


def test_protected_backups_stay(api: NebiusServer, capfd: pytest.CaptureFixture[str]) -> None:
    ContentsProvider().delete("x", {**filled(api, 3), "keep": True})
    assert left(api) == 3
    assert api.storage.requests == []
    assert f"backups in bucket {BUCKET} are not deleted: deletion_protection is on" in "".join(capfd.readouterr())
