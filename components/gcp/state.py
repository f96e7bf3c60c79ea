"""State buckets of Google Cloud Storage, over its JSON API (cloud.google.com/storage/docs/json_api/v1/buckets)."""

import os
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession

from components.gcp.bake.design import LOG_IN, BakeError
from components.gcp.credentials import credentials

_HOST = "https://storage.googleapis.com"
_EMULATOR = "STORAGE_EMULATOR_HOST"
"""Variable with the address of a stand-in, as Google's own libraries read it; it gets no credentials."""
_SECONDS = 60
"""Time limit of one answer."""
_PAUSES = (1.0, 2.0, 4.0)
"""Seconds before the second and each later attempt."""
_LATER = frozenset({408, 429, 500, 502, 503, 504})
"""Answers that are worth a retry (cloud.google.com/storage/docs/retry-strategy)."""

_ADVICE = {
    ("has not been used in project", "accessnotconfigured", "service_disabled"): (
        "gcloud services enable storage.googleapis.com --project {project}"
    ),
    ("billing",): "link a billing account to {project}: gcloud billing projects link {project} --billing-account ID",
    ("autherror", "invalid credentials", "unauthenticated"): LOG_IN,
    ("forbidden", "permission", "does not have"): "ask for the role roles/storage.admin in project {project}",
    ("constraint",): "choose what the organization's policy allows, e.g. another --location",
    ("location",): "correct --location: a region such as us-central1, or US, EU, ASIA",
    ("bucket name",): "choose another --bucket",
    ("project",): "correct --project",
}


class StorageError(RuntimeError):
    """A call failed; its text says what, why and what to do."""


class Storage:
    """The calls of one project. All raise StorageError where Google refuses or does not answer."""

    def __init__(self, project: str) -> None:
        """Raises StorageError where there are no credentials."""
        self.project = project
        emulator = os.environ.get(_EMULATOR, "")
        self._base = f"{(emulator if '://' in emulator else f'http://{emulator}') if emulator else _HOST}/storage/v1/b"
        try:
            found = AnonymousCredentials() if emulator else credentials("")
        except BakeError as error:
            raise StorageError(str(error)) from None
        self._session = AuthorizedSession(found)

    def find(self, bucket: str) -> Mapping[str, Any] | None:
        """The bucket of that name, if it is one of the project's."""
        query = {"project": self.project, "prefix": bucket, "maxResults": "1000"}
        while True:
            page = self._ask(f"look for the bucket {bucket}", "GET", query)
            if row := next((row for row in page.get("items", ()) if row.get("name") == bucket), None):
                return row
            if not page.get("nextPageToken"):
                return None
            query = {**query, "pageToken": page["nextPageToken"]}

    def create(self, bucket: str, body: Mapping[str, Any]) -> bool:
        """Create a bucket; False if the name is taken, by whomever."""
        doing = f"create the bucket {bucket}"
        return bool(self._ask(doing, "POST", {"project": self.project}, {"name": bucket, **body}, taken={}))

    def _ask(
        self,
        doing: str,
        method: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        *,
        taken: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Google's answer; `taken` in place of a 409."""
        for pause in (*_PAUSES, None):
            try:
                answer = self._session.request(method, self._base, params=query, json=body, timeout=_SECONDS)
            except GoogleAuthError as error:
                raise _error(f"could not {doing}: {' '.join(str(error).split())}", LOG_IN) from None
            except OSError as error:  # the base class of the HTTP library's own errors
                if pause is None:
                    what = f"could not {doing}: {self._base} does not answer ({type(error).__name__})"
                    raise _error(what, "check the network, then run again") from None
            else:
                if answer.status_code == HTTPStatus.CONFLICT and taken is not None:
                    return taken
                if answer.ok:
                    return answer.json()
                if answer.status_code not in _LATER or pause is None:
                    raise self._refused(doing, answer)
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _refused(self, doing: str, answer: Any) -> StorageError:  # noqa: ANN401 - the HTTP library's own
        try:
            row = answer.json()["error"]
            reasons = [str(error.get("reason", "")) for error in row.get("errors", ())]
            message = " ".join(str(row.get("message", "")).split())
        except (ValueError, KeyError, TypeError, AttributeError):
            reasons, message = [], answer.reason or "no reason given"
        said = " ".join([*reasons, message]).lower()
        todo = next((text for marks, text in _ADVICE.items() if any(mark in said for mark in marks)), "run again later")
        return _error(
            f"could not {doing} in project {self.project}: Google answers {answer.status_code}: {message}",
            todo.format(project=self.project),
        )


def _error(what: str, todo: str) -> StorageError:
    return StorageError(f"{what}\n  to do: {todo}")
