"""Sends the questions of cluster/platforms/gcp/cloud_checks.py side by side, and reads the answers.

Only GET and testIamPermissions are sent, which neither create nor change anything and are free. Hosts of others than
Google get no credential.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

import google.oauth2.credentials
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.exceptions import GoogleAuthError, RefreshError
from google.auth.transport.requests import AuthorizedSession
from google.auth.transport.requests import Request as Transport

from cluster.cloud_checks import CloudRow
from cluster.config import ClusterConfig
from cluster.platforms.gcp.cloud_checks import AskedStack, checks
from cluster.platforms.gcp.cloud_request import Answer, CloudRequest
from cluster.printable import one_line
from components.cloud_questions import NETWORK, PASSING, SECONDS, NotAskedError, attempts, rows
from components.gcp.bake_design import LATER, LOG_IN, cloud_error
from components.gcp.credentials import credentials
from components.public_files import exists

GOOGLE = "https://{}.googleapis.com"
"""Address of a service (rootUrl of the discovery documents)."""

# Reasons of google.rpc.ErrorInfo (googleapis/googleapis 2f8d204, google/api/error_reason.proto).
_REASONS: Mapping[str, tuple[str, str]] = {
    "SERVICE_DISABLED": (
        "the service {service}.googleapis.com is not enabled in {consumer}",
        "gcloud services enable {service}.googleapis.com --project {consumer}",
    ),
    "BILLING_DISABLED": (
        "{consumer} has no open billing account",
        "gcloud billing projects link {consumer} --billing-account ACCOUNT",
    ),
    "USER_PROJECT_DENIED": (
        "your credential's quota project {consumer} does not let you use it",
        "gcloud auth application-default set-quota-project {project}",
    ),
    "CONSUMER_INVALID": (
        "there is no project {consumer}, or it can't be used",
        "correct gcp:project, or the credential's quota project: gcloud projects list",
    ),
    "SECURITY_POLICY_VIOLATED": (
        "a perimeter of VPC Service Controls refuses you ({uid})",
        "run it from inside the perimeter, or ask its administrators for access, with the id {uid}",
    ),
    "ACCESS_TOKEN_EXPIRED": ("your login has expired", LOG_IN),
}
_UNAUTHENTICATED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404


def check(config: ClusterConfig, before: ClusterConfig | None = None, state: str = "") -> list[CloudRow]:
    """Return the row of each check. `before` is the configuration that the running cluster has, and `state` the URL of
    the stack's state.

    Raises GoogleCloudError where there are no credentials, or where they have expired.
    """
    stack = AskedStack(config=config, before=before, state=state)
    session = Session(stack.project)

    def ask(request: CloudRequest | str) -> Answer | bool:
        # The address of a file that others publish is asked for without a credential.
        return exists(request, SECONDS) if isinstance(request, str) else session.ask(request, SECONDS)

    return rows(checks(stack), ask, SECONDS, "Google")


class Session:
    """Requests with the caller's credential, which is renewed once before the first."""

    def __init__(self, project: str) -> None:
        """Raises GoogleCloudError where there are no credentials, or where they have expired."""
        self._project = project
        self._identity = _with_quota_project(credentials(GOOGLE.format("compute")), project)
        if isinstance(self._identity, AnonymousCredentials) or self._identity.valid:
            return
        try:
            self._identity.refresh(Transport())
        except GoogleAuthError as error:
            text = one_line(" ".join(str(error).split()))
            raise cloud_error(f"could not log in to Google Cloud: {text}", LOG_IN) from None

    def ask(self, request: CloudRequest, seconds: float) -> Answer:
        """Return the answer. Raises NotAskedError: there is none within that time."""
        url, query = f"{GOOGLE.format(request.service)}/{request.path}", list(request.query)
        method, body = ("POST", {"permissions": list(request.tests)}) if request.tests else ("GET", None)
        for left, last in attempts(seconds):
            try:
                with AuthorizedSession(self._identity) as session:
                    answer = session.request(method, url, params=query, json=body, timeout=left)
            except RefreshError:
                raise NotAskedError("your login has expired", LOG_IN) from None
            except (GoogleAuthError, OSError) as error:  # OSError is the base class of the HTTP library's own errors
                if last:
                    why = f"{request.service}.googleapis.com does not answer ({type(error).__name__})"
                    raise NotAskedError(why, NETWORK) from None
            else:
                if answer.ok:
                    return _document(answer)
                if answer.status_code == _NOT_FOUND:
                    return None
                if last or not _is_passing(answer):
                    raise self._refusal(request, answer)
        raise AssertionError("the last attempt returns or raises")

    def _refusal(self, request: CloudRequest, answer: Any) -> NotAskedError:  # noqa: ANN401 - the HTTP library's own
        error = _error(answer)
        info = next((row for row in error.get("details", ()) if row.get("reason")), {})
        metadata = {key: one_line(str(value)) for key, value in info.get("metadata", {}).items()}
        consumer = metadata.get("consumer", "").rpartition("/")[2] or self._project
        values = {"service": request.service, "consumer": consumer, "project": self._project}
        values["uid"] = metadata.get("uid", "no id")
        if answer.status_code == _UNAUTHENTICATED:
            return NotAskedError("your login has expired", LOG_IN)
        if texts := _REASONS.get(info.get("reason", "")):
            why, todo = (text.format_map(values) for text in texts)
            return NotAskedError(why, todo)
        if answer.status_code == _FORBIDDEN and request.permission:
            todo = f"ask for a role with {request.permission}, such as {request.role}, on {_asked_for(request)}"
            return NotAskedError(f"you lack the permission {request.permission}", todo)
        text = one_line(" ".join(str(error.get("message") or answer.reason).split()))
        return NotAskedError(f"Google answers {answer.status_code}: {text}", "run it again later")


def _with_quota_project(identity: Credentials, project: str) -> Credentials:
    """Return a user's credential with the stack's project for quotas, unless it has one. Without any, most services
    refuse a login of gcloud (cloud.google.com/docs/authentication/troubleshoot-adc#user-creds-client-based)."""
    is_user = isinstance(identity, google.oauth2.credentials.Credentials)
    if not is_user or identity.quota_project_id or os.environ.get("GOOGLE_OAUTH_ACCESS_TOKEN"):
        return identity
    return identity.with_quota_project(project)


def _is_passing(answer: Any) -> bool:  # noqa: ANN401 - the HTTP library's own
    """Return whether a later attempt may get another answer."""
    reasons = {str(row.get("reason", "")) for row in _error(answer).get("errors", ())}
    return answer.status_code in PASSING or bool(reasons & LATER)


def _error(answer: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the HTTP library's own
    """Return Google's error; empty if the answer is not Google's, such as a proxy's."""
    try:
        error = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}


def _document(answer: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the HTTP library's own
    """Raises NotAskedError: something else than Google answered."""
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise NotAskedError(
            "the answer is not Google's JSON", "check the proxy: HTTPS_PROXY and NO_PROXY, then run again"
        )
    return document


def _asked_for(request: CloudRequest) -> str:
    """Return the project, the billing account or the bucket of a request."""
    named = re.findall(r"(?:projects|billingAccounts|b)/([^/:]+)", request.path)
    return named[0] if named else dict(request.query)["project"]
