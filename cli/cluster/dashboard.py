"""The page of `./hpc dashboard`: a server on this machine's loopback address that shows the cluster's dashboards, and
passes their queries on to Prometheus on its machine, through SSH, or to VictoriaMetrics in Kubernetes, by kubectl.

Who has the address with its token can read; all else is refused: other methods, other hosts' names (a page elsewhere
can't reach it through one that it lets resolve to this machine), other paths of Prometheus' API.
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
from cli.access import remote
from cli.cluster.cluster import Cluster
from cli.errors import CliError
from cluster.monitoring.files import PROMETHEUS_PORT
from cluster.monitoring.page import Page
from scripts.node.monitoring.tls import pinned

PATHS = ("api/v1/query", "api/v1/query_range")
"""Of Prometheus' API: what the page asks."""
_ARGUMENTS = frozenset(("query", "time", "start", "end", "step"))
_SECONDS = 30.0
"""Time for an answer of Prometheus."""
_PAUSE = 3.0
"""Seconds between two attempts to connect."""


class Answer(NamedTuple):
    """What Prometheus answers, as it comes."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Prometheus:
    """Prometheus of a cluster, over a connection of SSH that is opened again when it has broken."""

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
        self._refused, self._tried = "", 0.0

    def ask(self, path: str, *, compressed: bool = False) -> Answer:
        """The answer to a request below the root. Raises CliError: there is none."""
        for again in (True, False):
            connection = _Connection(self._socket(), self._context)
            try:
                connection.connect()
            except SSLError as error:
                self._forget(connection.path)
                raise CliError(f"{self.name} has another certificate than that of the last `up`: {error}") from None
            except OSError:
                # ssh has ended: the machine there has restarted, or this machine has slept.
                self._forget(connection.path)
                if again:
                    continue
                raise CliError(f"{self._target.name} does not answer") from None
            try:
                headers = {**self._headers, **({"Accept-Encoding": "gzip"} if compressed else {})}
                connection.request("GET", f"/{self._root}{path}", headers=headers)
                found = connection.getresponse()
                if found.status == HTTPStatus.SERVICE_UNAVAILABLE:
                    raise CliError(f"{self.name} is starting")
                if found.status == HTTPStatus.UNAUTHORIZED:
                    raise CliError(f"{self.name} refuses the password of the last `up`: run `up` again")
                names = ("Content-Type", "Content-Encoding")
                headers = {name: value for name in names if (value := found.getheader(name))}
                return Answer(found.status, headers, found.read())
            except (OSError, HTTPException):
                raise CliError(f"{self.name} does not answer") from None
            finally:
                connection.close()
        raise AssertionError

    @property
    def name(self) -> str:
        """What it is called."""
        return "VictoriaMetrics" if self._root else f"Prometheus on {self._target.name}"

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            self._stack.close()

    def _socket(self) -> Path:
        with self._lock:
            if self._path:
                return self._path
            if time.monotonic() - self._tried < _PAUSE and self._refused:
                raise CliError(self._refused)
            try:
                there = remote.prometheus(self._target, self._key, PROMETHEUS_PORT)
                self._path, self._root = self._stack.enter_context(there)
            except CliError as error:
                self._refused = str(error)
                raise
            finally:
                self._tried = time.monotonic()
            return self._path

    def _forget(self, path: Path) -> None:
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


Find = Callable[[str], Mapping[str, Any]]
"""Finds a job by its number: {nodes, started, ended ...}. Raises CliError: there is none."""


class Server(ThreadingHTTPServer):
    """Serves the page until it is shut down."""

    daemon_threads = True

    def __init__(self, port: int, page: Page, prometheus: Prometheus, find: Find) -> None:
        """Listen on the loopback address, on any free port if it is 0. Raises CliError: the port is taken."""
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise CliError(f"--port {port}: {error.strerror}. Leave it out for a free one.") from None
        self.page, self.prometheus, self.find = page, prometheus, find
        self.token = secrets.token_urlsafe(24)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print why a request failed, unless its browser did not wait for the answer."""
        del request, client_address
        if not isinstance(error := sys.exc_info()[1], ConnectionError):
            console.note(f"A request of the page failed: {type(error).__name__}: {error}")

    @property
    def url(self) -> str:
        """The page's address, which lets in whoever has it."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyrefly: ignore[bad-override-mutable-attribute]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "hpc", ""
    timeout = 60

    def do_GET(self) -> None:
        """Answer a request."""
        url = urlsplit(self.path)
        token, _, path = url.path.removeprefix("/").partition("/")
        port = self.server.server_port
        known = self.headers.get("Host") in (f"127.0.0.1:{port}", f"localhost:{port}")
        if not known or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(404, "Nothing here: open the address that ./hpc dashboard has printed.")
        elif path == "":
            page = self.server.page
            self._send(200, {"Content-Type": "text/html; charset=utf-8", **page.headers}, page.text.encode())
        elif path in PATHS:
            given = [(key, value) for key, value in parse_qsl(url.query) if key in _ARGUMENTS]
            self._pass_on(f"{path}?{urlencode(given)}")
        elif path == "job":
            self._job(dict(parse_qsl(url.query)).get("id", ""))
        else:
            self._refuse(404, f"Only these are answered: {', '.join((*PATHS, 'job'))}")

    def _pass_on(self, path: str) -> None:
        try:
            self._send(*self.server.prometheus.ask(path, compressed="gzip" in self.headers.get("Accept-Encoding", "")))
        except CliError as error:
            self._refuse(502, str(error))

    def _job(self, number: str) -> None:
        try:
            found = self.server.find(number)
        except CliError as error:
            self._refuse(404, str(error))
        else:
            self._send(200, {"Content-Type": "application/json"}, json.dumps(found).encode())

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
