"""Requests of a machine to Google Cloud and to its metadata server, and the texts of Google's errors."""

import contextlib
import json
from typing import Any, NamedTuple

METADATA = "http://169.254.169.254/computeMetadata/v1/instance/"  # an address, since it is needed before DNS works
FLAVOR = {"Metadata-Flavor": "Google"}
TOKEN = "service-accounts/default/token"  # noqa: S105 - a path


def answer(
    url: str, headers: dict[str, str], *, seconds: float = 30, method: str = "GET", data: bytes | None = None
) -> tuple[int, Any, bytes]:
    """Return status, headers and body of the response, whatever its status. Raises OSError if there is none."""
    # Slow to import: half of the modules of a controller's phases, most of which send no request.
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310 - http and https, by callers
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would receive the token
    try:
        try:
            with opener.open(request, timeout=seconds) as response:
                return response.status, response.headers, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()
    except http.client.HTTPException as error:
        raise OSError(f"broken answer: {error!r}") from None


class Refusal(NamedTuple):
    """Status, reason and message of an error response; each is empty if the response has none."""

    status: str = ""
    reason: str = ""
    message: str = ""


def refusal(body: bytes) -> Refusal:
    """Return status, reason and message in the body of an error response. A pure function."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, IndexError):
        error = json.loads(body)["error"]
        first = (error.get("errors") or [{}])[0]
        return Refusal(str(error.get("status") or ""), str(first.get("reason") or ""), str(error.get("message") or ""))
    return Refusal()
