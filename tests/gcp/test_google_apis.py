"""What a machine asks Google for: answers are waited for and checked, and every refusal says what to do about it."""

from collections.abc import Iterator

import google_apis
import pytest
from google_apis import BootError, Cloud, metadata, publish

from lab.google.metadata import FakeGoogle

VERSION = "projects/p/secrets/munge/versions/3"


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGoogle]:
    """Google on this machine; nobody waits between two tries."""
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

    def test_a_server_that_stays_overloaded_is_an_error(self, google):
        google.overloaded = 99
        with pytest.raises(BootError, match="the metadata server answers 503, asked for instance/attributes/hpc-boot"):
            metadata("attributes/hpc-boot")

    @pytest.mark.parametrize("flavor", [None, "Another"])
    def test_a_server_without_googles_header_is_refused(self, google, flavor):
        google.flavor = flavor
        with pytest.raises(BootError, match="not the metadata server"):
            metadata("attributes/hpc-boot")

    def test_a_missing_attribute_is_a_key_error(self, google):
        with pytest.raises(KeyError):
            metadata("attributes/none")

    def test_no_answer_is_an_error(self, google, monkeypatch):
        monkeypatch.setattr(google_apis, "METADATA", "http://127.0.0.1:1/")
        with pytest.raises(BootError, match="does not answer"):
            metadata("attributes/hpc-boot")


class TestTell:
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
        assert Cloud({}).secret(VERSION) == b"key\n"

    def test_one_token_is_used_for_all_requests(self, google):
        cloud = Cloud({})
        cloud.secret(VERSION)
        cloud.secret(VERSION)
        assert sum(path.endswith("/token") for path in google.asked) == 1

    def test_refused_names_account_role_and_secret(self, google):
        google.refused = {VERSION}
        with pytest.raises(BootError) as told:
            Cloud({}).secret(VERSION)
        for word in (google.account, "roles/secretmanager.secretAccessor", "projects/p/secrets/munge", "PERMISSION_"):
            assert word in str(told.value)

    def test_not_there_yet(self, google):
        with pytest.raises(BootError, match=r"projects/p/secrets/x/versions/1 is not there yet \(404 NOT_FOUND"):
            Cloud({}).secret("projects/p/secrets/x/versions/1")

    def test_disabled(self, google):
        google.disabled = {VERSION}
        with pytest.raises(BootError, match="is disabled or destroyed"):
            Cloud({}).secret(VERSION)

    def test_a_machine_without_a_service_account_is_an_error(self, google):
        google.account = None
        with pytest.raises(BootError, match="no service account"):
            Cloud({}).secret(VERSION)

    def test_an_answer_of_another_shape_is_not_shown(self, google, monkeypatch):
        google.objects["b/x"] = b"the secret itself"
        monkeypatch.setattr(Cloud, "_ask", lambda *_: b"the secret itself")
        with pytest.raises(BootError) as told:
            Cloud({}).secret(VERSION)
        assert "itself" not in str(told.value)


class TestObject:
    WANTED = {  # noqa: RUF012
        "url": "gs://b/setup/a b.json",
        "sha256": "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1",
    }

    def test_an_object_is_checked_by_its_hash(self, google):
        assert Cloud({}).fetch("the set-up", self.WANTED) == b"text"

    def test_an_object_with_another_hash_is_refused(self, google):
        google.objects["b/setup/a b.json"] = b"other"
        with pytest.raises(BootError, match="is not what the stack put there, and is not used: its sha256 is d9298a10"):
            Cloud({}).fetch("the set-up", self.WANTED)

    def test_gone(self, google):
        google.objects.clear()
        with pytest.raises(BootError, match=r"can.t be fetched from gs://b/setup/a b\.json: 404"):
            Cloud({}).fetch("the set-up", self.WANTED)
