"""The connection to Nebius's API: one SDK for a process, with credentials from the environment."""

import atexit
import logging
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from components.nebius.api.errors import NebiusError, explain

TOKEN_VARIABLE = "NEBIUS_IAM_TOKEN"  # noqa: S105 - the name of the variable
"""Holds an IAM token, which expires after hours; the variable is the SDK's and the CLI's."""
CREDENTIALS_VARIABLE = "NEBIUS_CREDENTIALS_FILE"
"""Names a service account's credentials file, which never expires while a run lasts."""
STAND_IN_TOKEN = "rehearsal"  # noqa: S105 - what a stand-in is sent, in place of a credential
USER_AGENT = "hpc/1.0"
LOGIN_SECONDS = 30.0
"""How long a credential may take: the SDK's own limit is 15 minutes, and it retries a wrong key all that time."""
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
    """Whether the credential is a bare token, which can't be renewed."""
    return not endpoint and bool(os.environ.get(TOKEN_VARIABLE, "").strip())


def close() -> None:
    """Close the SDKs of this process."""
    with _lock:
        mine = [key for key in _open if key[0] == os.getpid()]
        for made in [_open.pop(key) for key in mine]:
            _close(made)


def log_in(made: Any) -> Any:  # noqa: ANN401
    """Who the credential is of (`GetProfileResponse`): the first call, which fails early."""
    from nebius.aio.token.options import OPTION_RENEW_REQUIRED, OPTION_RENEW_SYNCHRONOUS, OPTION_REPORT_ERROR

    # Without them the SDK renews in the background, and only logs that it can't.
    options = {OPTION_RENEW_REQUIRED: "1", OPTION_RENEW_SYNCHRONOUS: "1", OPTION_REPORT_ERROR: "1"}
    return call("log in to Nebius", made.whoami, auth_options=options, timeout=LOGIN_SECONDS)


def token(endpoint: str = "") -> tuple[str, datetime | None]:
    """A token for Kubernetes' API, and when it expires. Raises NebiusError.

    Without a call of Nebius's API: kubectl waits for it at each of its starts.
    """
    from nebius.aio.token.options import OPTION_RENEW_REQUIRED, OPTION_RENEW_SYNCHRONOUS, OPTION_REPORT_ERROR

    made = _make(endpoint)
    options = {OPTION_RENEW_REQUIRED: "1", OPTION_RENEW_SYNCHRONOUS: "1", OPTION_REPORT_ERROR: "1"}
    try:
        found = made.get_token_sync(LOGIN_SECONDS, options)
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
