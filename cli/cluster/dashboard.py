"""The server of `./hpc dashboard` on this machine's loopback address. It serves the page with the cluster's dashboards,
and forwards their queries to Prometheus on its machine over SSH, or to VictoriaMetrics in Kubernetes with kubectl.

Everyone who has the address with its token can read. Everything else is refused: other methods, other paths of
Prometheus' API, and other host names (a page elsewhere could use a name that resolves to this machine).
"""

import hmac
import json
import secrets
import socket
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from ssl import SSLContext, SSLError
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from cli import console
from cli.access.remote import driver_of
from cli.cluster.cluster import Cluster
from cli.errors import CliError
from cluster.monitoring.dashboards import DashboardPage
from scripts.node.interface import PROMETHEUS_PORT
from scripts.node.monitoring.tls import pinned

PATHS = ("api/v1/query", "api/v1/query_range")
"""Paths of Prometheus' API that the page queries."""
_ARGUMENTS = frozenset(("query", "time", "start", "end", "step"))
_SECONDS = 30.0
"""Time limit of a request to Prometheus."""
_PAUSE = 3.0
"""Seconds between two attempts to connect."""


class Response(NamedTuple):
    """A response of Prometheus, forwarded without a change."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Prometheus:
    """Prometheus of a cluster. Its connection is opened again after it broke."""

    def __init__(self, cluster: Cluster) -> None:
        self._target, self._key = cluster.monitoring, cluster.admin_key
        self._stack, self._lock = ExitStack(), threading.Lock()
        self._headers, self._context = dict[str, str](), None
        if login := cluster.prometheus:
            pair = f"{login['user']}:{login['password']}"
            self._headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
            self._context = pinned(login["certificate"])
        self._path: Path | None = None
        self._root = ""
        self._error, self._last_attempt = "", 0.0

    def ask(self, path: str, *, compressed: bool = False) -> Response:
        """Send a request for a path below the root and return the response. Raises CliError: there is none."""
        for retry in (True, False):
            connection = _Connection(self._socket(), self._context)
            try:
                connection.connect()
            except SSLError as error:
                self._disconnect(connection.path)
                raise CliError(f"{self.name} has another certificate than that of the last `up`: {error}") from None
            except OSError:
                # ssh has ended: the machine was restarted, or this machine was suspended.
                self._disconnect(connection.path)
                if retry:
                    continue
                raise CliError(f"{self._target.name} does not answer") from None
            try:
                headers = {**self._headers, **({"Accept-Encoding": "gzip"} if compressed else {})}
                connection.request("GET", f"/{self._root}{path}", headers=headers)
                response = connection.getresponse()
                if response.status == HTTPStatus.SERVICE_UNAVAILABLE:
                    raise CliError(f"{self.name} is starting")
                if response.status == HTTPStatus.UNAUTHORIZED:
                    raise CliError(f"{self.name} refuses the password of the last `up`: run `up` again")
                names = ("Content-Type", "Content-Encoding")
                headers = {name: value for name in names if (value := response.getheader(name))}
                return Response(response.status, headers, response.read())
            except (OSError, HTTPException):
                raise CliError(f"{self.name} does not answer") from None
            finally:
                connection.close()
        raise AssertionError

    @property
    def name(self) -> str:
        """The name in messages."""
        return "VictoriaMetrics" if self._root else f"Prometheus on {self._target.name}"

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            self._stack.close()

    def _socket(self) -> Path:
        with self._lock:
            if self._path:
                return self._path
            if time.monotonic() - self._last_attempt < _PAUSE and self._error:
                raise CliError(self._error)
            try:
                forwarded = driver_of(self._target).prometheus(self._target, self._key, PROMETHEUS_PORT)
                self._path, self._root = self._stack.enter_context(forwarded)
            except CliError as error:
                self._error = str(error)
                raise
            finally:
                self._last_attempt = time.monotonic()
            return self._path

    def _disconnect(self, path: Path) -> None:
        """Close the connection over this socket, unless another request has already replaced it."""
        with self._lock:
            if self._path == path:
                self._stack.close()
                self._path = None


class _Connection(HTTPConnection):
    """HTTP over a socket of this host."""

    def __init__(self, path: Path, context: SSLContext | None) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self.path, self._context = path, context

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_SECONDS)
        self.sock.connect(str(self.path))
        if self._context:
            self.sock = self._context.wrap_socket(self.sock)


FindJob = Callable[[str], Mapping[str, Any]]
"""Returns the job with a number: {nodes, started, ended ...}. Raises CliError: there is none."""


class DashboardServer(ThreadingHTTPServer):
    """Serves the page until it is shut down."""

    daemon_threads = True

    def __init__(self, port: int, page: DashboardPage, prometheus: Prometheus, find_job: FindJob) -> None:
        """Listen on a port of the loopback address, 0 for any free one. Raises CliError: the port is taken."""
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise CliError(f"--port {port}: {error.strerror}. Leave it out for a free one.") from None
        self.page, self.prometheus, self.find_job = page, prometheus, find_job
        self.token = secrets.token_urlsafe(24)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print why a request failed, unless the browser closed the connection."""
        del request, client_address
        if not isinstance(error := sys.exc_info()[1], ConnectionError):
            console.note(f"A request of the page failed: {type(error).__name__}: {error}")

    @property
    def url(self) -> str:
        """The page's address. Everyone who has it can read the dashboards."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: DashboardServer  # pyrefly: ignore[bad-override-mutable-attribute]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "hpc", ""
    timeout = 60

    def do_GET(self) -> None:
        """Answer a request."""
        url = urlsplit(self.path)
        token, _, path = url.path.removeprefix("/").partition("/")
        port = self.server.server_port
        is_loopback = self.headers.get("Host") in (f"127.0.0.1:{port}", f"localhost:{port}")
        if not is_loopback or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(404, "Nothing here: open the address that ./hpc dashboard has printed.")
        elif path == "":
            page = self.server.page
            self._send(200, {"Content-Type": "text/html; charset=utf-8", **page.headers}, page.text.encode())
        elif path in PATHS:
            arguments = [(key, value) for key, value in parse_qsl(url.query) if key in _ARGUMENTS]
            self._forward(f"{path}?{urlencode(arguments)}")
        elif path == "job":
            self._send_job(dict(parse_qsl(url.query)).get("id", ""))
        else:
            self._refuse(404, f"Only these are answered: {', '.join((*PATHS, 'job'))}")

    def _forward(self, path: str) -> None:
        try:
            self._send(*self.server.prometheus.ask(path, compressed="gzip" in self.headers.get("Accept-Encoding", "")))
        except CliError as error:
            self._refuse(502, str(error))

    def _send_job(self, number: str) -> None:
        try:
            job = self.server.find_job(number)
        except CliError as error:
            self._refuse(404, str(error))
        else:
            self._send(200, {"Content-Type": "application/json"}, json.dumps(job).encode())

    def _refuse(self, status: int, why: str) -> None:
        text = json.dumps({"status": "error", "error": why})
        self._send(status, {"Content-Type": "application/json"}, text.encode())

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        always = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        for name, value in {**always, **headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing: the address is a secret."""
