"""The connection to Nebius's API: one SDK for a process, with credentials from the environment."""

import atexit
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

NOT_FOUND = "NOT_FOUND"
MORE_QUOTA = "ask for more at https://console.nebius.com (Administration, Limits)"
"""The advice where a quota is full."""
LATER = frozenset({"operation_conflict", "operation_aborted", "too_many_requests"})
"""Details that say that the same call can succeed a little later."""


class NebiusError(RuntimeError):
    """A call or an operation failed, or did not end in time; the text says what, why and what to do."""

    code: str = ""
    """gRPC's name of the status, such as "NOT_FOUND"; empty if it is no answer of the API."""
    details: tuple[str, ...] = ()
    """Names of the API's details, such as "quota_failure"."""

    @property
    def later(self) -> bool:
        """True if the same call can succeed a little later."""
        return bool(LATER & {*self.details}) or (not self.details and self.code in ("ABORTED", "UNAVAILABLE"))


def explain(doing: str, error: Exception) -> NebiusError:
    """An exception of the SDK in words; `doing` is what failed, such as `create Filesystem jail`."""
    status = getattr(error, "status", None)
    code = getattr(getattr(status, "code", None), "name", "")
    if not code:
        text = " ".join(str(error).split())
        late = isinstance(error, TimeoutError) or "deadline" in text.lower() or type(error).__name__ == "TimeoutError"
        reason = "Nebius did not answer in time" if late else f"{type(error).__name__}: {text}".rstrip(": ")
        return nebius_error(doing, [reason], "check the network and the credential, and run it again")
    return of_status(doing, status)


def of_status(doing: str, status: Any) -> NebiusError:  # noqa: ANN401
    """A status of the API (`RequestStatusExtended`, of a call or an operation) in words."""
    code = status.code.name
    given = list(getattr(status, "service_errors", ()))
    details = [(error.details.field, error.details.value) for error in given if error.details is not None]
    reasons = [line for name, value in details for line in _reasons(name, value)]
    message = " ".join((status.message or "").split())
    if not reasons or not details:
        reasons = [f"{code}: {message}" if message else code, *reasons]
    elif message and all(message not in reason for reason in reasons):
        reasons.append(f"{code}: {message}")
    todos = [_DETAILS[name][1] for name, _ in details if name in _DETAILS] or [_ADVICE_OF_CODE.get(code, "")]
    if request := getattr(status, "request_id", ""):
        reasons.append(f"request id {request}, for Nebius's support")
    error = nebius_error(doing, reasons, todos[0])
    error.code, error.details = code, tuple(name for name, _ in details)
    return error


def nebius_error(doing: str, reasons: Iterable[str], todo: str = "") -> NebiusError:
    """An error: what failed, the reasons, and what to do."""
    lines = [f"could not {doing}:", *(f"    {reason}" for reason in reasons)]
    return NebiusError("\n".join([*lines, f"  to do: {todo}"] if todo else lines))


def _reasons(name: str, value: Any) -> list[str]:  # noqa: ANN401
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
        "choose another name, or delete the one that exists",
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
"""Details of a ServiceError (nebius.common.v1): a line for it, or for each of its violations, and what to do."""
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


TOKEN_VARIABLE = "NEBIUS_IAM_TOKEN"  # noqa: S105 - the name of the variable
"""Holds an IAM token, which expires after hours; the variable is the SDK's and the CLI's."""
CREDENTIALS_VARIABLE = "NEBIUS_CREDENTIALS_FILE"
"""Names a service account's credentials file, which never expires while a run lasts."""
STAND_IN_TOKEN = "rehearsal"  # noqa: S105 - what a stand-in is sent, in place of a credential
USER_AGENT = "hpc/1.0"
LOGIN_SECONDS = 30.0
"""Time that a credential may take: the SDK's own limit is 15 minutes, and it retries a wrong key all that time."""
CALL_SECONDS = 60.0
LIMITS: Mapping[str, float] = {"timeout": CALL_SECONDS, "auth_timeout": LOGIN_SECONDS}
"""Options of every call."""
LOG_IN = (
    "export NEBIUS_IAM_TOKEN=$(nebius iam get-access-token), or name a service account's credentials file in "
    f"{CREDENTIALS_VARIABLE} (it does not expire), or run `nebius profile create`"
)

_lock = threading.Lock()
_open: dict[tuple[int, str], Any] = {}


def sdk(endpoint: str = "") -> Any:  # noqa: ANN401
    """The SDK of this process, whose credential was accepted; `endpoint` is a stand-in's TOKEN@HOST:PORT, without TLS.

    Raises NebiusError if there is no credential, or Nebius does not accept it within LOGIN_SECONDS.
    """
    # An SDK has a thread of its own, so a forked process can't use its parent's.
    key = (os.getpid(), endpoint)
    with _lock:
        if key not in _open:
            made = _make(endpoint)
            try:
                log_in(made)
            except BaseException:
                _close(made)
                raise
            if not _open:
                atexit.register(close)
            _open[key] = made
        return _open[key]


def expires(endpoint: str = "") -> bool:
    """Return whether the credential is a bare token, which can't be renewed."""
    return not endpoint and bool(os.environ.get(TOKEN_VARIABLE, "").strip())


def close() -> None:
    with _lock:
        mine = [key for key in _open if key[0] == os.getpid()]
        for made in [_open.pop(key) for key in mine]:
            _close(made)


def log_in(made: Any) -> Any:  # noqa: ANN401
    """Return who the credential is of (`GetProfileResponse`): the first call, which fails early."""
    return call("log in to Nebius", made.whoami, auth_options=_at_once(), timeout=LOGIN_SECONDS)


def _at_once() -> dict[str, str]:
    """Options without which the SDK renews a credential in the background, and only logs that it can't."""
    from nebius.aio.token.options import OPTION_RENEW_REQUIRED, OPTION_RENEW_SYNCHRONOUS, OPTION_REPORT_ERROR

    return dict.fromkeys((OPTION_RENEW_REQUIRED, OPTION_RENEW_SYNCHRONOUS, OPTION_REPORT_ERROR), "1")


def token(endpoint: str = "") -> tuple[str, datetime | None]:
    """A token for Kubernetes' API, and when it expires. Raises NebiusError.

    Without a call of Nebius's API: kubectl waits for it at each of its starts.
    """
    if expires(endpoint):
        # The SDK would return it as it is, after half a second of imports.
        return os.environ[TOKEN_VARIABLE].strip(), None
    made = _make(endpoint)
    try:
        found = made.get_token_sync(LOGIN_SECONDS, _at_once())
    except Exception as error:
        raise explain("get a token for Kubernetes", error) from error
    finally:
        _close(made)
    return found.token, found.expiration


def call(doing: str, method: Callable[..., Any], *args: Any, **options: Any) -> Any:  # noqa: ANN401
    """The answer of a call; NebiusError, which starts with `doing`, when there is none."""
    try:
        return method(*args, **{**LIMITS, **options}).wait()
    except NebiusError:
        raise
    except Exception as error:
        raise explain(doing, error) from error


def _make(endpoint: str) -> Any:  # noqa: ANN401
    from nebius.base.options import INSECURE
    from nebius.base.resolver import Constant
    from nebius.sdk import SDK

    # It logs every attempt that failed, with a traceback; the error that ends the call says the same in words.
    logging.getLogger("nebius").addHandler(logging.NullHandler())
    common: dict[str, Any] = {"user_agent_prefix": USER_AGENT}
    if endpoint:
        # Never the user's own token: it goes over loopback without encryption.
        own, _, address = endpoint.rpartition("@")
        credential = own or STAND_IN_TOKEN
        return SDK(credentials=credential, resolver=Constant(address), options=[(INSECURE, True)], **common)
    try:
        if expires():
            return SDK(**common)
        if file := os.environ.get(CREDENTIALS_VARIABLE, "").strip():
            return SDK(credentials_file_name=str(Path(file).expanduser()), **common)
        from nebius.aio.cli_config import Config

        return SDK(config_reader=Config(), **common)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise NebiusError(f"no credential for Nebius: {reason}\n  to do: {LOG_IN}") from error


def _close(made: Any) -> None:  # noqa: ANN401
    # A connection that does not close in time is closed with the process.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made.sync_close(timeout=5)
        except Exception:  # noqa: BLE001 - nothing depends on it any more
            return
