"""Requests of a machine to Google Cloud: metadata, secrets and objects, with error messages.

Source: discovery documents secretmanager.v1 and storage.v1 of google-api-python-client 2.202.0.
"""

import base64
import contextlib
import hashlib
import json
import time
import urllib.parse

from system.google_api import FLAVOR, METADATA, TOKEN, answer, refusal

ENDPOINTS = {
    "secretmanager": "https://secretmanager.googleapis.com",
    "storage": "https://storage.googleapis.com",
}


class BootError(Exception):
    """The boot can't continue now, and tries again. The text has the reason and what to do."""


class ApiError(Exception):
    """An error of an API: HTTP status, Google's name of the status, message."""

    def __init__(self, code: int, status: str = "", message: str = "") -> None:
        super().__init__(f"{code} {status}: {message}" if message else str(code))
        self.code, self.status = code, status


def metadata(path: str) -> str:
    """Return a value from the metadata server. Raises KeyError if it has none, and BootError if it does not answer."""
    problem = ""
    for pause in (1, 2, 4, 0):
        try:
            status, headers, body = answer(METADATA + path, FLAVOR, seconds=5)
        except OSError as error:
            problem = f"does not answer ({error})"
        else:
            if headers.get("Metadata-Flavor") != "Google":
                raise BootError("169.254.169.254 answers without `Metadata-Flavor: Google`: not the metadata server")
            if status == 404:
                raise KeyError(path)
            if status == 200:
                return body.decode()
            problem = f"answers {status}"
        time.sleep(pause)
    raise BootError(f"the metadata server {problem}, asked for instance/{path}")


def publish(text: str) -> None:
    """Write a text to a guest attribute, which can be read from outside without a login. Failures are ignored."""
    with contextlib.suppress(OSError):
        answer(METADATA + "guest-attributes/hpc/boot", FLAVOR, seconds=2, method="PUT", data=text[:1000].encode())


class GoogleApis:
    """Google's APIs, used with the machine's service account."""

    def __init__(self, endpoints: dict[str, str]) -> None:
        self.endpoints = {**ENDPOINTS, **endpoints}
        self._token = ""

    def secret(self, version: str) -> bytes:
        """Return the text of a secret's version, such as projects/P/secrets/S/versions/1. Raises BootError."""
        try:
            body = self._ask(f"{self.endpoints['secretmanager']}/v1/{version}:access")
        except ApiError as error:
            if error.code == 404:
                raise BootError(f"{version} is not there yet ({error})") from None
            if error.status == "FAILED_PRECONDITION":
                raise BootError(f"{version} is disabled or destroyed: enable it, or run `up` ({error})") from None
            if error.code == 403:
                raise BootError(
                    f"service account {account()} may not read {version.partition('/versions/')[0]}: it lacks "
                    f"roles/secretmanager.secretAccessor there, or the machine the scope cloud-platform ({error})"
                ) from None
            raise BootError(f"{version} can't be read: Secret Manager answers {error}") from None
        try:
            data = base64.b64decode(json.loads(body)["payload"]["data"], validate=True)
        except (ValueError, KeyError, TypeError):
            # The message leaves out the answer, which may contain the secret.
            raise BootError(f"{version} can't be read: Secret Manager answers 200 with something else") from None
        return data.rstrip(b"\n") + b"\n"

    def fetch(self, what: str, stored: dict[str, str]) -> bytes:
        """Return the content of an object, {url: gs://BUCKET/OBJECT, sha256}. Raises BootError, also if its hash
        differs."""
        bucket, _, name = stored["url"][len("gs://") :].partition("/")
        path = f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}?alt=media"
        try:
            body = self._ask(self.endpoints["storage"] + path)
        except ApiError as error:
            hint = f"; give service account {account()} roles/storage.objectViewer there" if error.code == 403 else ""
            raise BootError(f"{what} can't be fetched from {stored['url']}: {error}{hint}") from None
        sha256 = hashlib.sha256(body).hexdigest()
        if sha256 != stored["sha256"]:
            raise BootError(
                f"{what} at {stored['url']} is not what the stack put there, and is not used: "
                f"its sha256 is {sha256}, not {stored['sha256']}; run `up`"
            )
        return body

    def _ask(self, url: str) -> bytes:
        try:
            self._token = self._token or json.loads(metadata(TOKEN))["access_token"]
        except KeyError:
            raise BootError("this machine has no service account: make it with one") from None
        try:
            status, _, body = answer(url, {"Authorization": f"Bearer {self._token}"})
        except OSError as error:
            host = urllib.parse.urlsplit(url).netloc
            raise BootError(f"{host} does not answer ({error}): is there a way out of this network?") from None
        if status == 200:
            return body
        error = refusal(body)
        raise ApiError(status, error.status, error.message)


def account() -> str:
    """Return the machine's service account, for messages."""
    try:
        return metadata("service-accounts/default/email")
    except (BootError, KeyError):
        return "of this machine"
