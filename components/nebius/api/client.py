"""The connection to Nebius's API: one SDK for a process, with credentials from the environment."""

import atexit
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

from cluster.platforms.nebius.names import CREDENTIALS_VARIABLE, MORE_QUOTA, OTHER_NAME, TOKEN_VARIABLE

NOT_FOUND = "NOT_FOUND"


class NebiusError(RuntimeError):
    """A failure or timeout of a call or an operation; the text says what failed, why, and what to do."""

    code: str = ""
    """gRPC's name of the status, such as "NOT_FOUND"; empty if the API did not answer."""
    details: tuple[str, ...] = ()
    """Names of the API's details, such as "quota_failure"."""
    reasons: tuple[str, ...] = ()
    todo: str = ""

    @property
    def is_temporary(self) -> bool:
        """True if the same call can succeed a little later."""
        if self.details:
            return bool({"operation_conflict", "operation_aborted", "too_many_requests"} & {*self.details})
        return self.code in ("ABORTED", "UNAVAILABLE")


def explain(action: str, error: Exception) -> NebiusError:
    """Return the NebiusError for an exception of the SDK; `action` is what failed: `create Filesystem jail`."""
    status = getattr(error, "status", None)
    code = getattr(getattr(status, "code", None), "name", "")
    if not code:
        text = " ".join(str(error).split())
        # asyncio has a TimeoutError of its own in Python 3.10.
        timed_out = "deadline" in text.lower() or any(base.__name__ == "TimeoutError" for base in type(error).__mro__)
        reason = "Nebius did not answer in time" if timed_out else f"{type(error).__name__}: {text}".rstrip(": ")
        return nebius_error(action, [reason], "check the network and the credential, and run it again")
    return status_error(action, status)


def status_error(action: str, status: Any) -> NebiusError:  # noqa: ANN401
    """Return the NebiusError for a status of a call or an operation (`RequestStatusExtended`)."""
    code = status.code.name
    errors = getattr(status, "service_errors", ())
    details = [(error.details.field, error.details.value) for error in errors if error.details is not None]
    reasons = [line for name, value in details for line in _reasons(name, value)]
    message = " ".join((status.message or "").split())
    if not reasons or not details:
        reasons = [f"{code}: {message}" if message else code, *reasons]
    elif message and all(message not in reason for reason in reasons):
        reasons.append(f"{code}: {message}")
    todos = [_DETAILS[name][1] for name, _ in details if name in _DETAILS] or [_ADVICE_OF_CODE.get(code, "")]
    if request := getattr(status, "request_id", ""):
        reasons.append(f"request id {request}, for Nebius's support")
    error = nebius_error(action, reasons, todos[0])
    error.code, error.details = code, tuple(name for name, _ in details)
    return error


def nebius_error(action: str, reasons: Iterable[str], todo: str) -> NebiusError:
    """Return an error that says what failed, the reasons, and what to do, if anything."""
    found = tuple(reasons)
    lines = [f"could not {action}:", *(f"    {reason}" for reason in found)]
    error = NebiusError("\n".join([*lines, f"  to do: {todo}"] if todo else lines))
    error.reasons, error.todo = found, todo
    return error


def _reasons(name: str, value: Any) -> list[str]:  # noqa: ANN401
    """Return a line for a detail, or for each of its violations."""
    if name not in _DETAILS:
        return [f"{name}: {' '.join(repr(value).split())}"]
    text, _ = _DETAILS[name]
    violations = value.violations if hasattr(value, "violations") else [value]
    return [" ".join(text.format(it=violation).split()).rstrip(": ") for violation in violations]


_DETAILS: Mapping[str, tuple[str, str]] = {
    "bad_request": ("bad request: {it.field}: {it.message}", "correct the named field in the stack file"),
    "bad_resource_state": (
        "{it.resource_id} is in a state that does not allow it: {it.message}",
        "wait until its operation has ended, then run it again",
    ),
    "resource_not_found": (
        "there is no {it.resource_id}",
        "correct the id in the stack file; if it is the stack's own, run `./hpc refresh STACK`",
    ),
    "resource_already_exists": (
        "it exists already, with the id {it.resource_id}",
        OTHER_NAME,
    ),
    "out_of_range": ("out of range: asked {it.requested}, limit {it.limit}", "set a value within the limit"),
    "permission_denied": (
        "permission denied on {it.resource_id}",
        (
            "ask an administrator of the tenant to put your account into the group `editors`, or log in to another "
            "one; groups, memberships and permits take the role `admin` of the project, and a cluster has them for its "
            "backups alone (without: nebius.backups: {enabled: false})"
        ),
    ),
    "resource_conflict": (
        "conflict with {it.resource_id}: {it.message}",
        "run it again; if it stays, somebody else changes the same resource",
    ),
    "operation_aborted": (
        "operation {it.operation_id} on {it.resource_id} was aborted by operation {it.aborted_by_operation_id}",
        "run it again",
    ),
    "operation_conflict": (
        "another operation on {it.resource_id} is under way: {it.conflicting_operation_id}",
        "wait until the other operation has ended, then run it again",
    ),
    "too_many_requests": ("too many requests: {it.violation}", "run it again in a minute"),
    "quota_failure": (
        "quota {it.quota}: limit {it.limit}, asked {it.requested}: {it.message}",
        f"{MORE_QUOTA}, or ask for less in the stack file; then run it again",
    ),
    "not_enough_resources": (
        "Nebius has not enough {it.resource_type}: asked {it.requested}: {it.message}",
        (
            "choose another region, fabric or preset, or run it again later; a reservation or `capacity` block is not "
            "affected"
        ),
    ),
    "internal_error": (
        "internal error of Nebius (request {it.request_id}, trace {it.trace_id})",
        "run it again; if it stays, report the request id to Nebius's support",
    ),
}
"""By the name of a ServiceError's detail (nebius.common.v1): the line that describes it, and what to do."""
_ADVICE_OF_CODE: Mapping[str, str] = {
    "UNAUTHENTICATED": (
        "the credential was not accepted or has expired: log in again, or use a service account's credentials file, "
        "which does not expire (NEBIUS_CREDENTIALS_FILE)"
    ),
    "PERMISSION_DENIED": _DETAILS["permission_denied"][1],
    NOT_FOUND: _DETAILS["resource_not_found"][1],
    "ALREADY_EXISTS": _DETAILS["resource_already_exists"][1],
    "UNAVAILABLE": "Nebius's API can't be reached: check the network and run it again",
    "DEADLINE_EXCEEDED": "Nebius did not answer in time: run it again",
    "RESOURCE_EXHAUSTED": "run it again in a minute",
    "INTERNAL": _DETAILS["internal_error"][1],
}


LOGIN_SECONDS = 30.0
"""Timeout for a credential: the SDK's own is 15 minutes, during which it retries with a wrong key."""
LIMITS: Mapping[str, float] = {"timeout": 60.0, "auth_timeout": LOGIN_SECONDS}
"""Options of every call."""
_most: ContextVar[float] = ContextVar("most seconds of a call", default=LIMITS["timeout"])


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Give each call inside no more than these seconds, its retries included."""
    token = _most.set(seconds)
    try:
        yield
    finally:
        _most.reset(token)


_lock = threading.Lock()
_sdks: dict[tuple[int, str], Any] = {}
"""The SDKs of this process, by its pid and the address of a stand-in."""
STAND_IN_VARIABLE = "HPC_NEBIUS_STAND_IN"
"""Environment variable with HOST:PORT of a stand-in for Nebius's API on this machine, without TLS: tests set it."""


def stand_in() -> str:
    """Return the address of a stand-in for the API; empty for Nebius's own."""
    return os.environ.get(STAND_IN_VARIABLE, "")


def sdk() -> Any:  # noqa: ANN401
    """Return the SDK of this process after its login.

    Raises NebiusError if there is no credential, or Nebius does not accept it within LOGIN_SECONDS.
    """
    # An SDK has a thread of its own, so a forked process can't use its parent's.
    key = (os.getpid(), stand_in())
    with _lock:
        if key not in _sdks:
            created = _create_sdk()
            try:
                # A first call, so that a wrong credential fails before anything is done.
                call("log in to Nebius", created.whoami, auth_options=_synchronous_renewal(), timeout=LOGIN_SECONDS)
            except BaseException:
                _close(created)
                raise
            if not _sdks:
                atexit.register(close)
            _sdks[key] = created
        return _sdks[key]


def has_bare_token() -> bool:
    """Return whether the credential is an IAM token of the environment, which can't be renewed."""
    return not stand_in() and bool(os.environ.get(TOKEN_VARIABLE, "").strip())


def close() -> None:
    """Close the SDKs of this process."""
    with _lock:
        for key in [key for key in _sdks if key[0] == os.getpid()]:
            _close(_sdks.pop(key))


def _synchronous_renewal() -> dict[str, str]:
    """Return options without which the SDK renews a credential in the background, and only logs a failure."""
    from nebius.aio.token.options import OPTION_RENEW_REQUIRED, OPTION_RENEW_SYNCHRONOUS, OPTION_REPORT_ERROR

    return dict.fromkeys((OPTION_RENEW_REQUIRED, OPTION_RENEW_SYNCHRONOUS, OPTION_REPORT_ERROR), "1")


def token() -> tuple[str, datetime | None]:
    """Return a token for Kubernetes' API and its time of expiry. Raises NebiusError.

    It is the IAM token (nebius-solutions-library b2a14f03, soperator/installations/example/terraform.tf). This does
    not call Nebius's API, because kubectl waits for it at each of its starts.
    """
    if has_bare_token():
        # The SDK would return it as it is, after half a second of imports.
        return os.environ[TOKEN_VARIABLE].strip(), None
    created = _create_sdk()
    try:
        answer = created.get_token_sync(LOGIN_SECONDS, _synchronous_renewal())
    except Exception as error:
        raise explain("get a token for Kubernetes", error) from error
    finally:
        _close(created)
    return answer.token, answer.expiration


def call(action: str, method: Callable[..., Any], *args: Any, **options: Any) -> Any:  # noqa: ANN401
    """Call a method of the SDK and return its answer. Raises NebiusError, whose text starts with `action`."""
    given = {**LIMITS, **options}
    try:
        return method(*args, **{**given, **{name: min(given[name], _most.get()) for name in LIMITS}}).wait()
    except NebiusError:
        raise
    except Exception as error:
        raise explain(action, error) from error


def _create_sdk() -> Any:  # noqa: ANN401
    from nebius.base.options import INSECURE
    from nebius.base.resolver import Constant
    from nebius.sdk import SDK

    # The SDK logs each failed attempt with a traceback; the error that ends the call says the same in words.
    logging.getLogger("nebius").addHandler(logging.NullHandler())
    common: dict[str, Any] = {"user_agent_prefix": "hpc/1.0"}
    if address := stand_in():
        # The user's own token is never sent: the connection, over loopback, is not encrypted.
        return SDK(credentials="stand-in", resolver=Constant(address), options=[(INSECURE, True)], **common)
    try:
        if has_bare_token():
            return SDK(**common)
        if file := os.environ.get(CREDENTIALS_VARIABLE, "").strip():
            return SDK(credentials_file_name=str(Path(file).expanduser()), **common)
        from nebius.aio.cli_config import Config

        return SDK(config_reader=Config(), **common)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise NebiusError(
            f"no credential for Nebius: {reason}\n"
            f"  to do: export {TOKEN_VARIABLE}=$(nebius iam get-access-token), or name a service account's credentials "
            f"file in {CREDENTIALS_VARIABLE} (it does not expire), or run `nebius profile create`"
        ) from error


def _close(created: Any) -> None:  # noqa: ANN401
    # A connection that does not close in time is closed with the process.
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        created.sync_close(timeout=5)
