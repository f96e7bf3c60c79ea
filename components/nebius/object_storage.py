"""The S3 API of Nebius's object storage, as far as it takes to empty a bucket.

Sources: Amazon S3's API reference (ListObjectsV2, DeleteObjects, Signature Version 4 in the header Authorization),
which Nebius's object storage answers and the role storage.object-editor may send
(docs.nebius.com/object-storage/supported-actions, 2026-11-28); the recipe's backups_store/main.tf
(nebius-solutions-library 533ff06), which empties its bucket over the same API.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from components.dynamic import report
from components.nebius.api.client import NebiusError, nebius_error, stand_in
from components.nebius.poll import Poll

MOST_KEYS = 1000
"""Keys of a list and of a deletion: S3 allows no more."""
PASSES, PASS_SECONDS = 5, 5.0
"""How often a bucket is found to have objects again, and the seconds between two lists: both are the recipe's."""
REPORTED = 10_000
"""Objects after which the progress is reported again."""
RETRY_SECONDS = 300.0
"""Time for which a request is repeated that S3 can't answer."""
_ANSWER_SECONDS = 60.0
_TEMPORARY = frozenset({429, 500, 502, 503, 504})
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_TAG_NAMESPACE = re.compile(r"\{.*\}")


def url_of(domain_name: str) -> str:
    """Return the URL of a bucket's object storage; that of a stand-in has its port in the name."""
    return f"http://{domain_name}" if stand_in() else f"https://{domain_name}:443"


@dataclass(frozen=True, kw_only=True)
class BucketWithKey:
    """A bucket and the access key to it."""

    url: str
    """URL of the object storage."""
    region: str
    name: str
    key_id: str
    secret: str
    pace: float
    """Seconds between two attempts."""

    def empty(self) -> int:
        """Delete all objects and return their number; a bucket that does not exist has none.

        It begins with a list each time, so it goes on where a killed run ended. Writers that have not ended yet may
        add objects after a list: it is empty if a list has nothing a while after the last deletion.

        Raises NebiusError if objects can't be deleted, or come faster than they go.
        """
        deleted = 0
        for _ in range(PASSES):
            before = deleted
            while keys := self._keys():
                if deleted == 0:
                    report(f"deleting the objects in bucket {self.name}")
                now = deleted + self._delete(keys)
                if now // REPORTED > deleted // REPORTED:
                    report(f"bucket {self.name}: {now} objects deleted so far")
                deleted = now
            if deleted == before:
                if deleted:
                    report(f"bucket {self.name} is empty: {deleted} objects deleted")
                return deleted
            Poll(PASS_SECONDS, self.pace).pause()
        reason = f"something writes to it: {deleted} objects were deleted, and there are new ones"
        raise nebius_error(self._action, [reason], "end what writes to the bucket, then run it again")

    @property
    def _action(self) -> str:
        return f"delete the objects in bucket {self.name}"

    def _keys(self) -> list[str]:
        """Return the first keys of the bucket."""
        answer = self._ask("GET", {"list-type": "2", "max-keys": str(MOST_KEYS)})
        return [] if answer is None else [_text(row, "Key") for row in answer if _tag(row) == "Contents"]

    def _delete(self, keys: Sequence[str]) -> int:
        """Delete objects and return how many are gone; the others are in the next list.

        Raises NebiusError if none of them could be deleted.
        """
        rows = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
        answer = self._ask("POST", {"delete": ""}, f'<Delete xmlns="{_NAMESPACE}"><Quiet>true</Quiet>{rows}</Delete>')
        failed = [] if answer is None else [row for row in answer if _tag(row) == "Error"]
        if len(failed) == len(keys):
            raise self._error(f"{_text(failed[0], 'Key')}: {_described(failed[0])}")
        return len(keys) - len(failed)

    def _ask(self, method: str, query: Mapping[str, str], content: str = "") -> ET.Element | None:
        """Send a request and return its answer; None if there is no such bucket."""
        poll, body = Poll(RETRY_SECONDS, self.pace), content.encode()
        while True:
            try:
                with urlopen(self._request(method, query, body), timeout=_ANSWER_SECONDS) as answer:  # noqa: S310
                    return ET.fromstring(answer.read())  # noqa: S314 - of the storage that the key is sent to
            except HTTPError as error:
                failure = _parsed(error.read())
                if failure is not None and _text(failure, "Code") == "NoSuchBucket":
                    return None
                reason = f"HTTP {error.code}" if failure is None else f"HTTP {error.code}, {_described(failure)}"
                is_temporary = error.code in _TEMPORARY
            except (OSError, HTTPException, ET.ParseError) as error:
                # URLError and timeouts are OSErrors.
                reason, is_temporary = f"{self.url} does not answer: {getattr(error, 'reason', error)}", True
            if not is_temporary or poll.left < 0:
                raise self._error(reason)
            poll.pause(reason, f"{self._action}: {reason}; it is tried again")

    def _request(self, method: str, query: Mapping[str, str], body: bytes) -> Request:
        path = f"/{quote(self.name)}"
        headers = {"host": urlsplit(self.url).netloc.removesuffix(":443")}
        if body:
            headers["content-md5"] = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
            headers["content-type"] = "application/xml"
        signed = self.sign(method, path, query, headers, body, datetime.now(timezone.utc))
        url = f"{self.url}{path}?{_encoded(query)}"
        return Request(url, data=body or None, headers=signed, method=method)  # noqa: S310

    def sign(  # noqa: PLR0917
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes, at: datetime
    ) -> dict[str, str]:
        """Return the headers with those of Signature Version 4. `headers` have lower-case names; `at` is in UTC."""
        moment, digest = at.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest()
        every = {**headers, "x-amz-content-sha256": digest, "x-amz-date": moment}
        names = ";".join(sorted(every))
        lines = "".join(f"{name}:{every[name]}\n" for name in sorted(every))
        canonical = "\n".join([method, path, _encoded(query), lines, names, digest])
        scope = [moment[:8], self.region, "s3", "aws4_request"]
        text = ["AWS4-HMAC-SHA256", moment, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()]
        key = f"AWS4{self.secret}".encode()
        for part in [*scope, "\n".join(text)]:
            key = hmac.digest(key, part.encode(), "sha256")
        credential = f"Credential={self.key_id}/{'/'.join(scope)}"
        every["authorization"] = f"{text[0]} {credential},SignedHeaders={names},Signature={key.hex()}"
        return every

    def _error(self, reason: str) -> NebiusError:
        todo = f"resolve the reason and run it again; or delete the bucket {self.name} in Nebius's console, then run it"
        return nebius_error(self._action, [reason], todo)


def _encoded(query: Mapping[str, str]) -> str:
    """Return the query in the form that is signed: sorted, and each word percent-encoded."""
    return "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(query.items()))


def _tag(element: ET.Element) -> str:
    return _TAG_NAMESPACE.sub("", element.tag)


def _text(element: ET.Element, name: str) -> str:
    return next((child.text or "" for child in element if _tag(child) == name), "")


def _described(error: ET.Element) -> str:
    return f"{_text(error, 'Code')}: {_text(error, 'Message')}"


def _parsed(body: bytes) -> ET.Element | None:
    """Return the error that S3 answers with; None if something else, such as a proxy, answers."""
    try:
        return ET.fromstring(body)  # noqa: S314 - of the storage that the key is sent to
    except ET.ParseError:
        return None
