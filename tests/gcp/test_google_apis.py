"""Requests of a machine to Google: they are retried, answers are checked, and errors say what to do."""

from collections.abc import Iterator

import google_apis
import pytest
from google_apis import BootError, GoogleApis, metadata, publish

from tests.lab.google.metadata import FakeGoogle

VERSION = "projects/p/secrets/munge/versions/3"


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGoogle]:
    """A stand-in of Google, without pauses between retries."""
    fake = FakeGoogle(attributes={"hpc-boot": "{}"}, secrets={VERSION: b"key\n"}, objects={"b/setup/a b.json": b"text"})
    listener = fake.listen()
    monkeypatch.setattr(google_apis, "METADATA", f"{listener.url}/computeMetadata/v1/instance/")
    monkeypatch.setattr(google_apis, "ENDPOINTS", dict.fromkeys(("secretmanager", "storage"), listener.url))
    monkeypatch.setattr(google_apis.time, "sleep", lambda _: None)
    yield fake
    listener.close()


class TestMetadata:
    def test_an_attribute_is_read(self, google):
        assert metadata("attributes/hpc-boot") == "{}"

    def test_an_overloaded_server_is_retried(self, google):
        google.overloaded = 2
        assert metadata("attributes/hpc-boot") == "{}"
        assert len(google.asked) == 3

    def test_a_missing_attribute_is_a_key_error(self, google):
        with pytest.raises(KeyError):
            metadata("attributes/none")

    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            ({"overloaded": 99}, "the metadata server answers 503, asked for instance/attributes/hpc-boot"),
            ({"flavor": None}, "not the metadata server"),
            ({"flavor": "Another"}, "not the metadata server"),
        ],
    )
    def test_another_answer_is_an_error(self, google, fault, message):
        vars(google).update(fault)
        with pytest.raises(BootError, match=message):
            metadata("attributes/hpc-boot")

    def test_no_answer_is_an_error(self, google, monkeypatch):
        monkeypatch.setattr(google_apis, "METADATA", "http://127.0.0.1:1/")
        with pytest.raises(BootError, match="does not answer"):
            metadata("attributes/hpc-boot")


class TestPublish:
    def test_published_text_is_a_guest_attribute(self, google):
        publish("failed: " + "x" * 2000)
        assert google.guest["hpc/boot"] == "failed: " + "x" * 992

    def test_a_failure_to_publish_is_ignored(self, google, monkeypatch):
        monkeypatch.setattr(google_apis, "METADATA", "http://127.0.0.1:1/")
        publish("done")
        assert google.guest == {}


class TestSecret:
    def test_a_secret_ends_with_one_line_end(self, google):
        google.secrets[VERSION] = b"key"
        assert GoogleApis({}).secret(VERSION) == b"key\n"

    def test_one_token_is_used_for_all_requests(self, google):
        cloud = GoogleApis({})
        cloud.secret(VERSION)
        cloud.secret(VERSION)
        assert sum(path.endswith("/token") for path in google.asked) == 1

    def test_refused_names_account_role_and_secret(self, google):
        google.refused = {VERSION}
        with pytest.raises(BootError) as raised:
            GoogleApis({}).secret(VERSION)
        for word in (google.account, "roles/secretmanager.secretAccessor", "projects/p/secrets/munge", "PERMISSION_"):
            assert word in str(raised.value)

    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            ({"secrets": {}}, r"projects/p/secrets/munge/versions/3 is not there yet \(404 NOT_FOUND"),
            ({"disabled": {VERSION}}, "is disabled or destroyed"),
            ({"account": None}, "no service account"),
        ],
    )
    def test_a_secret_that_can_not_be_read_is_an_error(self, google, fault, message):
        vars(google).update(fault)
        with pytest.raises(BootError, match=message):
            GoogleApis({}).secret(VERSION)

    def test_an_answer_of_another_shape_is_not_shown(self, google, monkeypatch):
        google.objects["b/x"] = b"the secret itself"
        monkeypatch.setattr(GoogleApis, "_ask", lambda *_: b"the secret itself")
        with pytest.raises(BootError) as raised:
            GoogleApis({}).secret(VERSION)
        assert "itself" not in str(raised.value)


class TestObject:
    WANTED = {  # noqa: RUF012
        "url": "gs://b/setup/a b.json",
        "sha256": "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1",
    }

    def test_an_object_is_checked_by_its_hash(self, google):
        assert GoogleApis({}).fetch("the set-up", self.WANTED) == b"text"

    @pytest.mark.parametrize(
        ("objects", "message"),
        [
            (
                {"b/setup/a b.json": b"other"},
                "is not what the stack put there, and is not used: its sha256 is d9298a10",
            ),
            ({}, r"can.t be fetched from gs://b/setup/a b\.json: 404"),
        ],
    )
    def test_another_or_missing_object_is_refused(self, google, objects, message):
        google.objects = objects
        with pytest.raises(BootError, match=message):
            GoogleApis({}).fetch("the set-up", self.WANTED)
