"""A stand-in for the object storage: what S3 answers to a list and to a deletion of objects, on loopback.

Source: Amazon S3's API reference, ListObjectsV2, DeleteObjects and Error Responses.
"""

import base64
import hashlib
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from tests.lab.nebius_api.status import Store, access_key_id

LIMIT = 1000
"""Keys that a list has, and that a deletion may name, at most (API reference: MaxKeys; "up to 1,000 keys")."""
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_DELETE, _KEY = (f"{{{NAMESPACE}}}{name}" for name in ("Object", "Key"))


class S3Error(Exception):
    """An error with its HTTP status, and code and message of the table of error codes."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.code, self.message = status, code, message
        super().__init__(code)


class ObjectStorage:
    """The objects of all buckets of a store, by S3's API at `domain_name`."""

    def __init__(self, store: Store, lock: Any) -> None:
        self.store, self.lock = store, lock
        self.requests: list[str] = []
        """Method and query of each request."""
        self.refusals: list[S3Error] = []
        """Errors that the next requests get."""
        storage = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                storage.answer(self)

            def do_POST(self) -> None:
                storage.answer(self)

            def log_message(self, *_args: object) -> None:  # pyrefly: ignore[bad-override]
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.domain_name = f"127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        """Accept requests."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        body = handler.rfile.read(int(handler.headers.get("content-length", "0")))
        address = urlsplit(handler.path)
        query = {name: values[-1] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        status = 200
        try:
            with self.lock:
                self.requests.append(f"{handler.command} {address.query}")
                if self.refusals:
                    raise self.refusals.pop(0)
                self._authenticate(handler.headers, body)
                text = self._execute(handler.command, unquote(address.path).strip("/"), query, handler.headers, body)
                self.store.save()
        except S3Error as error:
            status = error.status
            text = f"<Error><Code>{error.code}</Code><Message>{escape(error.message)}</Message></Error>"
        content = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/xml")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def _authenticate(self, headers: Any, body: bytes) -> None:
        """Refuse a key that does not exist and a hash of another body; a signature is not computed again."""
        credential = headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        if credential not in {access_key_id(row) for row in self.store.of("AccessKey")}:
            message = "The AWS access key ID you provided does not exist in our records."
            raise S3Error(403, "InvalidAccessKeyId", message)
        if headers.get("x-amz-content-sha256") != hashlib.sha256(body).hexdigest():
            message = "The provided 'x-amz-content-sha256' header does not match what was computed."
            raise S3Error(400, "XAmzContentSHA256Mismatch", message)

    def _execute(self, method: str, name: str, query: Mapping[str, str], headers: Any, body: bytes) -> str:
        rows = [row for row in self.store.of("Bucket") if row["metadata"]["name"] == name]
        if not any(row["state"] == "ACTIVE" for row in rows):
            raise S3Error(404, "NoSuchBucket", "The specified bucket does not exist.")
        objects = self.store.contents.setdefault(name, {})
        if method == "GET" and query.get("list-type") == "2":
            return _listed(name, sorted(objects), int(query.get("max-keys", LIMIT)))
        if method == "POST" and "delete" in query:
            digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
            if headers.get("content-md5") != digest:
                raise S3Error(400, "InvalidRequest", "Missing required header for this request: Content-MD5")
            keys = [key.text or "" for row in ET.fromstring(body).iter(_DELETE) for key in row.iter(_KEY)]  # noqa: S314
            if not 0 < len(keys) <= LIMIT:
                message = "The XML that you provided was not well formed or did not validate against our schema."
                raise S3Error(400, "MalformedXML", message)
            for key in keys:
                objects.pop(key, None)
            return f'<DeleteResult xmlns="{NAMESPACE}"></DeleteResult>'  # a quiet one has errors alone
        raise S3Error(501, "NotImplemented", "A header that you provided implies functionality that isn't implemented.")


def _listed(name: str, keys: list[str], most: int) -> str:
    """Return the first page of a list."""
    page = keys[: min(most, LIMIT)]
    rows = "".join(f"<Contents><Key>{escape(key)}</Key><Size>1</Size></Contents>" for key in page)
    more = "true" if len(page) < len(keys) else "false"
    return (
        f'<ListBucketResult xmlns="{NAMESPACE}"><Name>{name}</Name><Prefix></Prefix><KeyCount>{len(page)}</KeyCount>'
        f"<MaxKeys>{most}</MaxKeys><IsTruncated>{more}</IsTruncated>{rows}</ListBucketResult>"
    )
