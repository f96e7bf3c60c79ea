"""Credentials of calls to Google: those of the provider, and none for other endpoints."""

import json
from pathlib import Path

import google.auth.credentials
import pytest

from components.gcp.bake_design import GoogleCloudError
from components.gcp.credentials import KEYS, credentials, host

USER = {"type": "authorized_user", "client_id": "id", "client_secret": "secret", "refresh_token": "token"}


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever runs the tests may be logged in."""
    for name in (*KEYS, "GOOGLE_OAUTH_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


class TestWho:
    def test_without_credentials_the_message_says_how_to_log_in(self) -> None:
        with pytest.raises(
            GoogleCloudError, match=r"no credentials for Google Cloud.*\n.*gcloud auth application-default login"
        ):
            credentials("")

    def test_a_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "a-token")
        assert credentials("").token == "a-token"

    def test_a_key_as_text_or_as_a_file(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "key.json").write_text(json.dumps(USER))
        for given in (json.dumps(USER), str(tmp_path / "key.json")):
            monkeypatch.setenv("GOOGLE_CREDENTIALS", given)
            assert getattr(credentials(""), "refresh_token") == "token"  # noqa: B009 - only these credentials have it

    @pytest.mark.parametrize("given", ["nonsense", "{", "[]", "{}", '{"type": "authorized_user"}'])
    def test_an_invalid_key_is_an_error(self, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
        monkeypatch.setenv("GOOGLE_CREDENTIALS", given)
        with pytest.raises(GoogleCloudError, match="application-default login"):
            credentials("")

    def test_application_default_credentials(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "application_default_credentials.json").write_text(json.dumps(USER))
        assert getattr(credentials(""), "refresh_token") == "token"  # noqa: B009 - only these credentials have it


class TestWhere:
    def test_a_local_endpoint_gets_no_credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "a-token")
        found = credentials("http://127.0.0.1:8080")
        assert isinstance(found, google.auth.credentials.AnonymousCredentials)

    @pytest.mark.parametrize("endpoint", ["http://compute.example.com", "http://192.0.2.1:80", "ftp://127.0.0.1", "x"])
    def test_credentials_are_not_sent_unencrypted(self, endpoint: str) -> None:
        with pytest.raises(GoogleCloudError, match="unencrypted"):
            host(endpoint)

    def test_an_endpoint_is_reduced_to_scheme_and_host(self) -> None:
        assert host("https://compute.example.com/compute/v1/") == "https://compute.example.com"
