"""Requests of a machine to Google Cloud and to its metadata server, and Google's words in a refusal."""

import contextlib
import json
from typing import Any, NamedTuple

METADATA = "http://169.254.169.254/computeMetadata/v1/instance/"  # by number: there before any name is
FLAVOR = {"Metadata-Flavor": "Google"}
TOKEN = "service-accounts/default/token"  # noqa: S105 - a path


def answer(
    url: str, headers: dict[str, str], *, seconds: float = 30, method: str = "GET", data: bytes | None = None
) -> tuple[int, Any, bytes]:
    """Return an answer's status, headers and body, whatever its status. Raises OSError where there is none."""
    # Half of what a controller's phases import, most of which ask nobody.
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310 - http and https, by callers
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would be given the token
    try:
        try:
            with opener.open(request, timeout=seconds) as reply:
                return reply.status, reply.headers, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()
    except http.client.HTTPException as error:
        raise OSError(f"broken answer: {error!r}") from None


class Refusal(NamedTuple):
    """The words of an answer that is an error; each is empty where the answer has none."""

    status: str = ""
    reason: str = ""
    message: str = ""


def refusal(body: bytes) -> Refusal:
    """Return Google's words in the body of an error. A pure function."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, IndexError):
        said = json.loads(body)["error"]
        first = (said.get("errors") or [{}])[0]
        return Refusal(str(said.get("status") or ""), str(first.get("reason") or ""), str(said.get("message") or ""))
    return Refusal()
