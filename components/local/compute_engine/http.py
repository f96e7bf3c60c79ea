"""The base of stand-ins of Google's APIs: an HTTP server on this machine that answers in Google's JSON, records every
call, and can drop or refuse requests."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from typing_extensions import Self

Answer = tuple[int, dict[str, Any]]
GOOGLE = "https://www.googleapis.com/compute/v1/"
"""Beginning of links to resources of Compute Engine."""


@dataclass(frozen=True)
class Call:
    """A request."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]
    headers: dict[str, str] = field(repr=False)


class DroppedConnectionError(Exception):
    """Raised in place of an answer: the connection is closed without one."""


class RefusalError(Exception):
    """Raised in place of an answer: an error in Google's format."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        row = {"message": message, "domain": "global", "reason": reason}
        self.answer: Answer = (status, {"error": {"code": status, "message": message, "errors": [row]}})


class GoogleHttp:
    """Serves `handle` until the end of a `with`. Requests of all clients are handled one at a time."""

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        """`address` and port to listen on; port 0: a free one."""
        self.calls: list[Call] = []
        self.before: Callable[[int, Call], None] = lambda _number, _call: None
        """Called with each request's number, from 1, before the request is handled. May raise RefusalError or
        DroppedConnectionError."""
        self.after: Callable[[int, Call], None] = lambda _number, _call: None
        """Called after the request was handled, before the answer."""
        self._lock: contextlib.AbstractContextManager[bool] = threading.Lock()
        self._server = _Server(address, _Handler)
        self._server.fake = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def endpoint(self) -> str:
        """URL of the server."""
        host, port = self._server.server_address[:2]
        return f"http://{host}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def handle(self, call: Call) -> Answer:
        """Answer a request; raises RefusalError for an error."""
        raise NotImplementedError

    def answer(self, call: Call) -> Answer:
        """Handle a request, and return the answer for the client."""
        with self._lock:
            self.calls.append(call)
            number = len(self.calls)
            try:
                self.before(number, call)
                answer = self.handle(call)
            except RefusalError as refusal:
                answer = refusal.answer
            self.after(number, call)
            return answer


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    fake: GoogleHttp


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _serve(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = Call(
            self.command,
            urllib.parse.unquote(parts.path),
            dict(urllib.parse.parse_qsl(parts.query)),
            json.loads(text) if text else {},
            dict(self.headers.items()),
        )
        self.close_connection = False
        try:
            status, payload = cast("_Server", self.server).fake.answer(call)
        except DroppedConnectionError:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        body = json.dumps(payload).encode()
        # A client that was killed doesn't wait for its answer.
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - the server's own names

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing: the calls are recorded."""
