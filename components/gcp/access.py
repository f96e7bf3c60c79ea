"""Connections to machines on Google Cloud: SSH, directly or through Identity-Aware Proxy."""

import asyncio
import atexit
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import pulumi

from cluster.config import ClusterConfig
from cluster.platforms.gcp import iap
from cluster.platforms.gcp.names import place
from cluster.roster import MachineSpec, controller_name
from components.machine import Proxy, Reach

BOOT_SECONDS = 900.0
"""Time for a machine to listen to SSH after it was made. A first boot takes one to three minutes."""
_OPEN_SECONDS = 60.0
"""Time for gcloud to listen or to print an error, once it was started."""
_PAUSE_SECONDS = 5.0
_GUARD = Path(__file__).with_name("process_guard.py")

_lock = threading.Lock()
_tunnels: dict[int, "_Tunnel"] = {}


async def opened(instance: iap.Instance, port: int) -> None:
    """`keep_open` in a thread. Raises RunError."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def set_result(error: Exception | None) -> None:
        if done.done():
            return
        done.set_exception(error) if error else done.set_result(None)

    def work() -> None:
        error = None
        try:
            keep_open(instance, port)
        except Exception as raised:  # noqa: BLE001 - raised again where it is waited for
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(set_result, error)

    # A thread of no pool: Python would wait for a pool's at the program's end, and a boot may take minutes.
    threading.Thread(target=work, daemon=True).start()
    await done


def keep_open(instance: iap.Instance, port: int, *, seconds: float = BOOT_SECONDS) -> None:
    """Have a tunnel from a port of this host to a machine's SSH server, and open it again should it end.

    Raises RunError, which the engine shows without a traceback, when there is none after `seconds`, or sooner where
    waiting does not help.
    """
    with _lock:
        if not _tunnels:
            atexit.register(end_all)
        tunnel = _tunnels.setdefault(port, _Tunnel(instance, port))
    if tunnel.instance != instance:
        raise pulumi.RunError(f"port {port} is for a tunnel to {tunnel.instance.name} and to {instance.name} at once")
    tunnel.open(seconds)


def end_all() -> None:
    with _lock:
        ending = list(_tunnels.values())
        _tunnels.clear()
    for tunnel in ending:
        tunnel.end()


class _Tunnel:
    """A tunnel: the gcloud that holds it, and its output."""

    def __init__(self, instance: iap.Instance, port: int) -> None:
        self.instance, self._port = instance, port
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._watched = self._ended = False

    def open(self, seconds: float) -> None:
        """Open it, unless it is. Raises RunError."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._open(seconds)
            if not self._watched:
                self._watched = True
                threading.Thread(target=self._watch, daemon=True).start()

    def end(self) -> None:
        self._ended = True
        if self._process:
            _end(self._process)

    def _open(self, seconds: float) -> None:
        gcloud = shutil.which("gcloud")
        if not gcloud:
            raise pulumi.RunError(f"{self.instance.name}: {iap.missing()}")
        _refuse_taken(self._port, self.instance)
        limit = time.monotonic() + seconds
        while True:
            process = self._start(gcloud)
            if self._listens(process):
                return
            output = self._output()
            if self._ended or not iap.being_made(output) or time.monotonic() > limit:
                _end(process)
                raise pulumi.RunError(f"{self.instance.name}: {iap.explain(output, self.instance)}")
            time.sleep(min(_PAUSE_SECONDS, max(0.0, limit - time.monotonic())))

    def _start(self, gcloud: str) -> "subprocess.Popen[bytes]":
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - read when gcloud has ended
        # Isolated: the folder of a script is the first that it imports from, and ours has modules of common names.
        command = [sys.executable, "-I", str(_GUARD), gcloud, *self.instance.listening(self._port)]
        # In a session of its own: a terminal's Ctrl-C lets running steps finish, which need their tunnel.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, start_new_session=True
        )
        return self._process

    def _listens(self, process: "subprocess.Popen[bytes]") -> bool:
        """Return whether gcloud listens; waits until it does, or has ended. It tries to reach the machine before."""
        limit = time.monotonic() + _OPEN_SECONDS
        while process.poll() is None and not self._ended:
            if time.monotonic() > limit:
                return False
            if _answers(self._port):
                return True
            time.sleep(0.1)
        return False

    def _output(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def _watch(self) -> None:
        """Open it again when gcloud ends while it is needed: the next try of a command then gets through."""
        while self._process is not None:
            self._process.wait()
            if self._ended:
                return
            error_text = iap.last_error(self._output())
            _print(
                f"{self.instance.name}: the tunnel to it ended and is opened again"
                + (f": {error_text}" if error_text else "")
            )
            time.sleep(1)
            with self._lock:
                try:
                    self._open(BOOT_SECONDS)
                except pulumi.RunError as error:
                    if not self._ended:
                        _print(f"{error}\nCommands on {self.instance.name} can't be run any more.")
                    return


def _refuse_taken(port: int, instance: iap.Instance) -> None:
    """Raise RunError if another program has the port: connections would reach that program."""
    with socket.socket() as probe:
        # As gcloud does: what a tunnel of an earlier run left in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise pulumi.RunError(
                f"{instance.name}: port {port} of this host, where the tunnel to it begins, is in use by another "
                f"program ({error.strerror}). Is another run of this stack at work here? What has it: ss -ltnp "
                f"'sport = :{port}'. End that program, or run from another host"
            ) from None


def _answers(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Let the process guard end it, and wait until it has."""
    if process.stdin:
        with suppress(OSError):
            process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)


def _print(text: str) -> None:
    """The engine shows what a program writes to standard error."""
    print(text, file=sys.stderr, flush=True)


DIAL_ERROR_LIMIT = 120
"""The provider waits 5 s after a refusal, so this outlasts ten minutes of a machine's first boot."""
PER_DIAL_TIMEOUT = 10
"""Seconds. One that never answers is given up after half an hour."""
_LOOPBACK = "127.0.0.1"


class Access:
    """The connections to the machines of a cluster.

    With `login.public`, login machines are reached at their public addresses and all others through the first of
    them; else controller and login machines by a tunnel through Identity-Aware Proxy. The program logs in to no node:
    users reach nodes through the controller.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._config, self._place = config, place(config)
        self._entrances: dict[int, tuple[str, Proxy]] = {}
        self._controller: Proxy | None = None

    def reach(
        self,
        spec: MachineSpec,
        *,
        address: pulumi.Input[str],
        public: pulumi.Input[str] | None,
        instance_id: pulumi.Output[str],
        name: str,
        zone: pulumi.Output[str] | None = None,
        host_key: pulumi.Input[str],
    ) -> Reach:
        """Return how to reach a machine; `address` is its private address, `name` the instance's, `public` its public
        address where it has one, `zone` its zone where that is not the stack's.

        May be asked of machines in any order: the jump host is looked up when all are known.
        """
        if spec.roles == ("node",):
            return Reach(host=None, via=self._through_controller)
        if "controller" in spec.roles:
            self._controller = Proxy(host=address, host_key=host_key)
        patient = partial(Reach, dial_error_limit=DIAL_ERROR_LIMIT, per_dial_timeout=PER_DIAL_TIMEOUT)
        if self._config.login.public and "login" in spec.roles:
            if public is None:
                raise ValueError(f"{spec.name}: login.public, and it has no public address")
            self._entrances[spec.index] = (spec.name, Proxy(host=public, host_key=host_key))
            return patient(host=public)
        if self._config.login.public:
            return patient(host=address, proxy=lambda: self._entrance()[1], via=self._through_entrance)
        project, where = self._place.project, zone or self._place.zone
        cluster = f"{project}/{self._place.zone}/{self._config.name}"
        login = spec.index + 1
        index = {"controller": 0, "monitoring": iap.LAST}.get(spec.roles[0], login + (login >= iap.LAST))
        port = iap.port(cluster, index)

        async def tunnelled(found: list[str]) -> str:
            await opened(iap.Instance(name=name, project=project, zone=found[1]), port)
            return _LOOPBACK

        # Host and port are the same in every run: another connection would run every command again.
        return patient(
            host=_LOOPBACK if pulumi.runtime.is_dry_run() else pulumi.Output.all(instance_id, where).apply(tunnelled),
            port=port,
            via=lambda: {"iap": {"instance": name, "project": project, "zone": where}},
        )

    def _entrance(self) -> tuple[str, Proxy]:
        if not self._entrances:
            raise ValueError("login.public, and no login machine is known: the others can't be reached")
        return self._entrances[min(self._entrances)]

    def _through_entrance(self) -> Mapping[str, Any]:
        name, proxy = self._entrance()
        return {"jump": {"name": name, "address": proxy.host, "host_key": proxy.host_key}}

    def _through_controller(self) -> Mapping[str, Any]:
        if self._controller is None:
            raise ValueError("no controller is known: the nodes can't be reached")
        name = controller_name(self._config)
        return {"jump": {"name": name, "address": self._controller.host, "host_key": self._controller.host_key}}
