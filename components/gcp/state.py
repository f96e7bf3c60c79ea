"""State buckets in Google Cloud Storage, over its JSON API (cloud.google.com/storage/docs/json_api/v1/buckets)."""

import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession

from cluster.config import ClusterConfig
from cluster.platforms.gcp.names import GoogleCloud
from components.cloud_questions import PASSING
from components.gcp.bake_design import LOG_IN, GoogleCloudError
from components.gcp.credentials import credentials
from components.state_bucket import Backend, BucketRecord, BucketStep, Done, Environment, StateBucketError, Version

_HOST = "https://storage.googleapis.com"
_EMULATOR = "STORAGE_EMULATOR_HOST"
"""Variable with the address of a stand-in, as Google's own libraries read it; it gets no credentials."""
_SECONDS = 60
"""Time limit of one answer."""
_PAUSES = (1.0, 2.0, 4.0)
"""Seconds before the second and each later attempt."""

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


class StorageApi:
    """The calls of one project. All raise StateBucketError where Google refuses or does not answer."""

    def __init__(self, project: str) -> None:
        """Raises StateBucketError where there are no credentials."""
        self.project = project
        emulator = os.environ.get(_EMULATOR, "")
        self._base = f"{(emulator if '://' in emulator else f'http://{emulator}') if emulator else _HOST}/storage/v1/b"
        try:
            identity = AnonymousCredentials() if emulator else credentials("")
        except GoogleCloudError as error:
            raise StateBucketError(str(error)) from None
        self._session = AuthorizedSession(identity)

    def find(self, bucket: str) -> Mapping[str, Any] | None:
        """Return the bucket of that name if it belongs to the project, else None."""
        query = {"project": self.project, "prefix": bucket, "maxResults": "1000"}
        while True:
            page = self._ask(f"look for the bucket {bucket}", "GET", query)
            if row := next((row for row in page.get("items", ()) if row.get("name") == bucket), None):
                return row
            if not page.get("nextPageToken"):
                return None
            query = {**query, "pageToken": page["nextPageToken"]}

    def create(self, bucket: str, body: Mapping[str, Any]) -> bool:
        """Create a bucket. Returns False if a bucket of that name exists, in any project."""
        doing = f"create the bucket {bucket}"
        return bool(self._ask(doing, "POST", {"project": self.project}, {"name": bucket, **body}))

    def _ask(
        self, doing: str, method: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return Google's answer; empty where the name in `body` is taken (409)."""
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
                if answer.status_code == HTTPStatus.CONFLICT and body is not None:
                    return {}
                if answer.ok:
                    return answer.json()
                if answer.status_code not in PASSING or pause is None:
                    raise self._refusal(doing, answer)
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _refusal(self, doing: str, answer: Any) -> StateBucketError:  # noqa: ANN401 - the HTTP library's own
        try:
            row = answer.json()["error"]
            reasons = [str(error.get("reason", "")) for error in row.get("errors", ())]
            message = " ".join(str(row.get("message", "")).split())
        except (ValueError, KeyError, TypeError, AttributeError):
            reasons, message = [], answer.reason or "no reason given"
        text = " ".join([*reasons, message]).lower()
        todo = next((todo for words, todo in _ADVICE.items() if any(word in text for word in words)), "run again later")
        return _error(
            f"could not {doing} in project {self.project}: Google answers {answer.status_code}: {message}",
            todo.format(project=self.project),
        )


def _error(what: str, todo: str) -> StateBucketError:
    return StateBucketError(f"{what}\n  to do: {todo}")


NAME = re.compile(r"(?!goog)[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]")
"""Names without dots (cloud.google.com/storage/docs/buckets#naming)."""
KEPT = 100
"""Old versions of each file that are kept by default."""
_UNDELETE_SECONDS = 7 * 24 * 3600
"""Time for which a deleted object can be restored: Google's own default for soft delete."""


def default_name(project: str) -> str:
    """Return the default name of a project's bucket, which is the same on every machine and unique to the project."""
    return f"pulumi-slurm-{hashlib.md5(project.encode(), usedforsecurity=False).hexdigest()}"


def record(
    config: ClusterConfig | None, *, project: str | None, bucket: str | None, location: str | None, keep: int
) -> BucketRecord:
    """Return the record of a bucket, which may not exist yet. Defaults come from the stack.

    Raises StateBucketError if no project is known, or if the name is not allowed for a bucket.
    """
    place = config.section(GoogleCloud) if config else None
    project = project or (place.project if place else "")
    if not project:
        raise StateBucketError("--project is missing, and no stack on Google Cloud is given that has one (--stack).")
    name = bucket or default_name(project)
    if not NAME.fullmatch(name) or "google" in name:
        raise StateBucketError(
            f"--bucket\n  given: {name!r}\n  allowed: 3 to 63 of a-z, 0-9, - and _, a letter or digit first and "
            "last, no `goog` in front, no `google` anywhere"
        )
    location = location or (place.region if place else "US")
    return BucketRecord(kind="gcs", bucket=name, project=project, settings={"location": location, "keep": str(keep)})


class CloudStorage(Backend):
    """A Cloud Storage bucket. Whoever runs Pulumi needs roles/storage.objectAdmin on it, with Google credentials."""

    kind = "gcs"
    title = "Google Cloud Storage"

    def prepare(self, *, dry_run: bool) -> Iterator[BucketStep]:
        """Find or create the bucket."""
        name, location = self.record.bucket, self.record.settings["location"]
        storage = StorageApi(self.record.project)
        existing, done = storage.find(name), Done.FOUND
        if existing is None and dry_run:
            yield BucketStep(what=f"bucket {name}", done=Done.TO_CREATE, detail=f"in {location}, {self._kept}")
            return
        if existing is None:
            done = Done.CREATED if storage.create(name, self._body) else Done.FOUND
            existing = storage.find(name)  # another run may have created it meanwhile
        if existing is None:
            raise StateBucketError(
                f"the bucket {name} belongs to another project: names are unique in all of Google Cloud.\n"
                "  to do: choose another --bucket"
            )
        _require_safe(existing)
        kept = self._kept if done is Done.CREATED else _versions(existing)
        detail = f"in {existing.get('location', location)}, {kept}"
        if not dry_run:
            self.save(self.record)
        yield BucketStep(what=f"bucket {name}", done=done, detail=detail)

    def renew(self) -> str:
        """Do nothing: Google's own libraries renew tokens."""
        return ""

    def environment(self, cli: Version) -> Environment:  # noqa: ARG002 - all versions read the same URL
        return Environment(variables={"PULUMI_BACKEND_URL": f"gs://{self.record.bucket}"})

    @property
    def _kept(self) -> str:
        return f"the last {self.record.settings['keep']} versions are kept"

    @property
    def _body(self) -> Mapping[str, Any]:
        """The bucket's settings, in the API's own names."""
        # The live version counts as newer than the first old one.
        condition = {"isLive": False, "numNewerVersions": int(self.record.settings["keep"]) + 1}
        return {
            "location": self.record.settings["location"],
            "iamConfiguration": {
                "uniformBucketLevelAccess": {"enabled": True},
                "publicAccessPrevention": "enforced",
            },
            "versioning": {"enabled": True},
            "softDeletePolicy": {"retentionDurationSeconds": str(_UNDELETE_SECONDS)},
            "lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": condition}]},
            "labels": {"hpc": "state"},
        }


def _require_safe(bucket: Mapping[str, Any]) -> None:
    """Raise StateBucketError if an existing bucket lacks a setting that a bucket with state must have."""
    access = bucket.get("iamConfiguration") or {}
    settings = {
        "--versioning": (bucket.get("versioning") or {}).get("enabled"),
        "--uniform-bucket-level-access": (access.get("uniformBucketLevelAccess") or {}).get("enabled"),
        "--public-access-prevention": access.get("publicAccessPrevention") == "enforced",
    }
    missing = [flag for flag, is_set in settings.items() if not is_set]
    if missing:
        raise StateBucketError(
            f"the bucket {bucket['name']} exists without {', '.join(flag[2:].replace('-', ' ') for flag in missing)}, "
            "which a bucket with state must have. It was left as it is.\n"
            f"  to do: gcloud storage buckets update gs://{bucket['name']} {' '.join(missing)}, then run again"
        )


def _versions(bucket: Mapping[str, Any]) -> str:
    """Return how many versions of each file an existing bucket keeps, in words."""
    rules = (bucket.get("lifecycle") or {}).get("rule") or ()
    limits = [number for rule in rules if (number := (rule.get("condition") or {}).get("numNewerVersions"))]
    return f"the last {min(limits) - 1} versions are kept" if limits else "all versions are kept"
