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
from components.machine import MachineAccess, Proxy

BOOT_SECONDS = 900.0
"""Time for a machine's SSH server to answer after the machine was created. A first boot takes one to three minutes."""
_OPEN_SECONDS = 60.0
"""Time for gcloud to listen or to print an error, after its start."""
_PAUSE_SECONDS = 5.0
_GUARD = Path(__file__).with_name("process_guard.py")

_lock = threading.Lock()
_tunnels: dict[int, "_Tunnel"] = {}


async def open_tunnel(instance: iap.InstanceName, port: int) -> None:
    """Run `keep_open` in a thread, and wait until the tunnel is open. Raises RunError."""
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
        except Exception as raised:  # noqa: BLE001 - raised again by `await done`
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nothing waits for the result
            loop.call_soon_threadsafe(set_result, error)

    # Not a pool: at its end Python would wait for the pool's threads, and a boot may take minutes.
    threading.Thread(target=work, daemon=True).start()
    await done


def keep_open(instance: iap.InstanceName, port: int, *, seconds: float = BOOT_SECONDS) -> None:
    """Open a tunnel from a port of this host to a machine's SSH server, and open it again whenever it ends.

    Raises RunError, which the engine shows without a traceback, if there is no tunnel after `seconds`, or sooner if
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
        tunnels = list(_tunnels.values())
        _tunnels.clear()
    for tunnel in tunnels:
        tunnel.end()


class _Tunnel:
    """A tunnel: the process of gcloud that holds it, and its output."""

    def __init__(self, instance: iap.InstanceName, port: int) -> None:
        self.instance, self._port = instance, port
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._is_watched = self._ended = False

    def open(self, seconds: float) -> None:
        """Open the tunnel if it is not open. Raises RunError."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._open(seconds)
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._reopen_when_ended, daemon=True).start()

    def end(self) -> None:
        self._ended = True
        if self._process:
            _end(self._process)

    def _open(self, seconds: float) -> None:
        gcloud = shutil.which("gcloud")
        if not gcloud:
            raise pulumi.RunError(f"{self.instance.name}: {iap.missing()}")
        _require_free(self._port, self.instance)
        deadline = time.monotonic() + seconds
        while True:
            process = self._start(gcloud)
            if self._wait_until_listening(process):
                return
            output = self._output()
            if self._ended or not iap.is_booting(output) or time.monotonic() > deadline:
                _end(process)
                raise pulumi.RunError(f"{self.instance.name}: {iap.explain(output, self.instance)}")
            time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))

    def _start(self, gcloud: str) -> "subprocess.Popen[bytes]":
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - read when gcloud has ended
        # -I: a script imports from its own folder first, which has modules with common names.
        command = [sys.executable, "-I", str(_GUARD), gcloud, *self.instance.listen_arguments(self._port)]
        # In a session of its own: after Ctrl-C running steps finish, which need their tunnel.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, start_new_session=True
        )
        return self._process

    def _wait_until_listening(self, process: "subprocess.Popen[bytes]") -> bool:
        """Wait until gcloud listens or ends, and return whether it listens. gcloud connects to the machine first."""
        deadline = time.monotonic() + _OPEN_SECONDS
        while process.poll() is None and not self._ended:
            if time.monotonic() > deadline:
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

    def _reopen_when_ended(self) -> None:
        """Open the tunnel again when gcloud ends while it is needed, so that the next try of a command connects."""
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


def _require_free(port: int, instance: iap.InstanceName) -> None:
    """Raise RunError if another program has the port: connections would reach that program."""
    with socket.socket() as probe:
        # As gcloud does: a port that an earlier tunnel left in TIME_WAIT is free.
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
    """Make the process guard end its command, and wait until both have ended."""
    if process.stdin:
        with suppress(OSError):
            process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)


def _print(text: str) -> None:
    """Print to standard error, which engines show."""
    print(text, file=sys.stderr, flush=True)


DIAL_ERROR_LIMIT = 120
"""Tries. The provider waits 5 s after a refused connection, so this is longer than ten minutes of a first boot."""
PER_DIAL_TIMEOUT = 10
"""Seconds. A machine that never answers is given up after half an hour."""
_LOOPBACK = "127.0.0.1"


class Access:
    """The connections to the machines of a cluster.

    With `login.public`, login machines are reached at their public addresses, and all others with the first login
    machine as jump host. Otherwise controller and login machines are reached by a tunnel through Identity-Aware Proxy.
    The program logs in to no node: users reach nodes through the controller.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._config, self._place = config, place(config)
        self._jump_hosts: dict[int, tuple[str, Proxy]] = {}
        self._controller: Proxy | None = None

    def machine_access(
        self,
        spec: MachineSpec,
        *,
        address: pulumi.Input[str],
        public: pulumi.Input[str] | None,
        instance_id: pulumi.Output[str],
        name: str,
        host_key: pulumi.Input[str],
    ) -> MachineAccess:
        """Return the connection to a machine. `address` is its private address, `name` the instance's name, `public`
        its public address if it has one.

        Machines may come in any order: the jump host is looked up when all are known.
        """
        if spec.roles == ("node",):
            return MachineAccess(host=None, via=self._via_controller)
        if "controller" in spec.roles:
            self._controller = Proxy(host=address, host_key=host_key)
        access = partial(MachineAccess, dial_error_limit=DIAL_ERROR_LIMIT, per_dial_timeout=PER_DIAL_TIMEOUT)
        if self._config.login.public and "login" in spec.roles:
            if public is None:
                raise ValueError(f"{spec.name}: login.public, and it has no public address")
            self._jump_hosts[spec.index] = (spec.name, Proxy(host=public, host_key=host_key))
            return access(host=public)
        if self._config.login.public:
            return access(host=address, proxy=lambda: self._jump_host()[1], via=self._via_jump_host)
        project, zone = self._place.project, self._place.zone
        cluster = f"{project}/{zone}/{self._config.name}"
        login = spec.index + 1
        index = {"controller": 0, "monitoring": iap.LAST}.get(spec.roles[0], login + (login >= iap.LAST))
        port = iap.port(cluster, index)

        async def tunnel(_: str) -> str:
            await open_tunnel(iap.InstanceName(name=name, project=project, zone=zone), port)
            return _LOOPBACK

        # Host and port are the same in every run: another connection would run every command again.
        dry_run = pulumi.runtime.is_dry_run()
        return access(
            host=_LOOPBACK if dry_run else instance_id.apply(tunnel),
            port=port,
            via=lambda: {"iap": {"instance": name, "project": project, "zone": zone}},
        )

    def _jump_host(self) -> tuple[str, Proxy]:
        if not self._jump_hosts:
            raise ValueError("login.public, and no login machine is known: the others can't be reached")
        return self._jump_hosts[min(self._jump_hosts)]

    def _via_jump_host(self) -> Mapping[str, Any]:
        name, proxy = self._jump_host()
        return {"jump": {"name": name, "address": proxy.host, "host_key": proxy.host_key}}

    def _via_controller(self) -> Mapping[str, Any]:
        if self._controller is None:
            raise ValueError("no controller is known: the nodes can't be reached")
        name = controller_name(self._config)
        return {"jump": {"name": name, "address": self._controller.host, "host_key": self._controller.host_key}}
