"""Requests without a credential, to registries and archives, through the proxy that the environment names (HTTPS_PROXY,
NO_PROXY)."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

from components.cloud_questions import NETWORK, PASSING, SECONDS, NotAskedError, attempts

_LIMIT = 64 << 20
"""Bytes of a repository's index that are read; the largest known one has 20 MB."""
_NAME = {"User-Agent": "hpc"}
"""Cloudflare may refuse the name of Python's library (developers.cloudflare.com, error 1010)."""
_GONE = (404, 410)


def fetch(  # noqa: PLR0917 - the first four as they are written on one line
    url: str,
    headers: Mapping[str, str],
    method: str = "GET",
    token: str = "",
    seconds: float = SECONDS,
    limit: int = _LIMIT,
) -> tuple[bytes, Mapping[str, str]]:
    """Return the first bytes of an answer and its headers; answers that pass are asked for again.

    Raises OSError, of which HTTPError is one, and ValueError.
    """
    request = urllib.request.Request(url, headers={**_NAME, **headers}, method=method)  # noqa: S310 - of the stack file
    if token:
        # Registries redirect to a store of blobs, which refuses requests with another token than its own.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    for left, last in attempts(seconds):
        try:
            with urllib.request.urlopen(request, timeout=left) as answer:  # noqa: S310
                return answer.read(limit), answer.headers
        except urllib.error.HTTPError as error:
            if last or error.code not in PASSING:
                raise
        except OSError:
            if last:
                raise
        except http.client.HTTPException as error:
            if last:
                raise ConnectionError(f"the answer is not HTTP ({type(error).__name__})") from None
    raise AssertionError("the last attempt returns or raises")


def exists(url: str, seconds: float = SECONDS) -> bool:
    """Return whether a file exists. Raises NotAskedError."""
    host = urlsplit(url).netloc
    try:
        # Not HEAD, which apt does not send: not every host may answer it as it does GET.
        fetch(url, {"Range": "bytes=0-0"}, seconds=seconds, limit=1)
    except urllib.error.HTTPError as error:
        if error.code in _GONE:
            return False
        raise NotAskedError(f"{host} answers {error.code}", "run it again later") from None
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NotAskedError(f"{host} does not answer ({type(reason).__name__})", NETWORK) from None
    return True
