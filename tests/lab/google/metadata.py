"""A stand-in of the metadata server, Secret Manager and Cloud Storage, in Google's protocol.

One server stands in for all three. It listens at the address that a test sets, also in a machine's network namespace,
at the metadata server's address there.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import json
import os
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

ADDRESS = "169.254.169.254"
CLONE_NEWNET = 0x40000000  # sched.h
TOKEN = "ya29.token-of-the-tests"
METADATA = "/computeMetadata/v1/"

Answer = tuple[int, str, bytes]
"""Status, content type, body."""


@dataclass
class FakeGoogle:
    """The contents and the faults of the server. A test may change both while it runs."""

    attributes: dict[str, str] = field(default_factory=dict)
    """Custom metadata of the instance."""
    secrets: dict[str, bytes] = field(default_factory=dict)
    """Payload of each version, such as projects/p/secrets/s/versions/1."""
    refused: set[str] = field(default_factory=set)
    """Versions that the service account may not read."""
    disabled: set[str] = field(default_factory=set)
    """Versions that nobody may read any more."""
    objects: dict[str, bytes] = field(default_factory=dict)
    """Objects in buckets, by bucket/name."""
    account: str | None = "node@project.iam.gserviceaccount.com"
    flavor: str | None = "Google"
    """Metadata-Flavor of the answers."""
    overloaded: int = 0
    """Number of the next requests that are answered with 503."""
    slow: float = 0
    """Seconds before each answer."""
    asked: list[str] = field(default_factory=list)
    """Paths of the requests."""
    host: dict[str, Any] = field(default_factory=lambda: {"preempted": "FALSE", "maintenance-event": "NONE"})
    """Announced events of the instance: preempted, maintenance-event, upcoming-maintenance."""
    answered: threading.local = field(default_factory=threading.local)
    """`tag` of the metadata that this thread answered with; it differs after each change."""
    guest: dict[str, str] = field(default_factory=dict)
    """Guest attributes that the machine wrote, by NAMESPACE/KEY."""

    def answer(self, path: str, query: dict[str, str], headers: Callable[[str], str | None]) -> Answer:
        """Return the answer to a request."""
        self.asked.append(path)
        time.sleep(self.slow)
        if self.overloaded > 0:
            self.overloaded -= 1
            return 503, "text/html", b"<html>503 Service Unavailable</html>"
        if path.startswith(METADATA):
            return self._metadata(path[len(METADATA) :], query, headers)
        if headers("Authorization") != f"Bearer {TOKEN}":
            return _error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        if path.startswith("/storage/v1/b/"):
            return self._object(path)
        return self._secret(path[len("/v1/") :])

    def _metadata(self, path: str, query: dict[str, str], headers: Callable[[str], str | None]) -> Answer:
        if headers("X-Forwarded-For") or headers("Metadata-Flavor") != "Google":
            return 403, "text/html", b"<html>Missing Metadata-Flavor:Google header.</html>"
        if query.get("wait_for_change") == "true":
            self._wait(query)
        found: Any = self._tree()
        self.answered.tag = _tag(found)
        for part in path.rstrip("/").split("/"):
            if not isinstance(found, dict) or part not in found:
                return 404, "text/html", b"<html>The requested URL was not found on this server.</html>"
            found = found[part]
        if not isinstance(found, dict):
            if query.get("alt") == "json":
                return 200, "application/json", json.dumps(found).encode()
            return 200, "application/text", str(found).encode()
        if set(found) >= {"access_token"} or query.get("recursive", "").lower() == "true":
            return 200, "application/json", json.dumps(found if "access_token" in found else _camel(found)).encode()
        listing = "".join(f"{name}/\n" if isinstance(value, dict) else f"{name}\n" for name, value in found.items())
        return 200, "application/text", listing.encode()

    def _tree(self) -> dict[str, Any]:
        token = {"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"}
        accounts = {"default": {"aliases": "default", "email": self.account, "token": token}} if self.account else {}
        return {"instance": {"attributes": dict(self.attributes), "service-accounts": accounts, **self.host}}

    def _wait(self, query: dict[str, str]) -> None:
        end = time.monotonic() + float(query.get("timeout_sec", 300))
        while _tag(self._tree()) == query.get("last_etag") and time.monotonic() < end:
            time.sleep(0.05)

    def _secret(self, path: str) -> Answer:
        version, colon, verb = path.partition(":")
        if (colon, verb) != (":", "access"):
            return _error(404, "NOT_FOUND", f"Method not found: {path}")
        name = version.partition("/versions/")[0]
        if version in self.refused:
            text = f"Permission 'secretmanager.versions.access' denied for resource '{version}' (or it may not exist)."
            return _error(403, "PERMISSION_DENIED", text)
        if version in self.disabled:
            return _error(400, "FAILED_PRECONDITION", f"Secret Version [{version}] is in DISABLED state.")
        if version not in self.secrets:
            return _error(404, "NOT_FOUND", f"Secret [{name}] not found or has no versions.")
        payload = {"data": base64.b64encode(self.secrets[version]).decode()}
        return 200, "application/json", json.dumps({"name": version, "payload": payload}).encode()

    def _object(self, path: str) -> Answer:
        bucket, _, name = path[len("/storage/v1/b/") :].partition("/o/")
        name = urllib.parse.unquote(name)
        if f"{bucket}/{name}" not in self.objects:
            return _error(404, "", f"No such object: {bucket}/{name}")
        return 200, "application/octet-stream", self.objects[f"{bucket}/{name}"]

    def listen(self, address: str = "127.0.0.1", port: int = 0, *, namespace: Path | None = None) -> Listener:
        """Serve until the listener is closed, in another network namespace if one is given (/proc/PID/ns/net)."""
        return Listener(self, address, port, namespace)


class Listener:
    """An address at which the server listens."""

    def __init__(self, fake: FakeGoogle, address: str, port: int, namespace: Path | None) -> None:
        self._server = _Server((address, port), _Handler, bind_and_activate=False)
        self._server.fake = fake
        # A socket stays in the network namespace that it was created in. A separate thread enters the namespace for it.
        binder = _SocketBinder(self._server, namespace)
        binder.start()
        binder.join()
        if binder.error:
            raise binder.error
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """URL of the server."""
        host, port = self._server.server_address[:2]
        return f"http://{host}:{port}"

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _SocketBinder(threading.Thread):
    def __init__(self, server: _Server, namespace: Path | None) -> None:
        super().__init__()
        self.server, self.namespace = server, namespace
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            if self.namespace:
                handle = os.open(self.namespace, os.O_RDONLY)
                try:
                    libc = ctypes.CDLL(None, use_errno=True)
                    if libc.setns(handle, CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), f"setns {self.namespace}")
                finally:
                    os.close(handle)
                self.server.socket.close()
                self.server.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self.server.server_bind()
            self.server.server_activate()
        except OSError as error:
            self.error = error


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    fake: FakeGoogle


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        fake = cast("_Server", self.server).fake
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        status, kind, body = fake.answer(parts.path, query, self.headers.get)
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if parts.path.startswith(METADATA) and fake.flavor:
                self.send_header("Metadata-Flavor", fake.flavor)
                self.send_header("ETag", getattr(fake.answered, "tag", "0"))
            self.end_headers()
            self.wfile.write(body)

    def do_PUT(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        name = self.path.partition("/instance/guest-attributes/")[2]
        accepted = bool(name) and self.headers.get("Metadata-Flavor") == "Google"
        if accepted:
            cast("_Server", self.server).fake.guest[name] = text
        with contextlib.suppress(OSError):
            self.send_response(200 if accepted else 403)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's own name
        """Print nothing: the requests are recorded."""


def _tag(tree: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def _camel(tree: Any) -> Any:
    """Return a folder as Google prints it recursively: its own keys, not those of attributes, in camel case."""
    if not isinstance(tree, dict):
        return tree
    return {
        re.sub("-(.)", lambda found: found[1].upper(), key): value if key == "attributes" else _camel(value)
        for key, value in tree.items()
    }


def _error(code: int, status: str, message: str) -> Answer:
    error = {"code": code, "message": message, **({"status": status} if status else {})}
    return code, "application/json", json.dumps({"error": error}).encode()
