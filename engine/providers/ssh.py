"""Commands on other machines, with the system's `ssh`.

Each distinct `connection` has one master connection, which all its commands share. Keys and known hosts are in a
private folder until the run ends. With a `hostKey`, the machine must have exactly that key; without one, the key is not
verified, as in pulumi-command.
"""

import json
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from engine.errors import EngineError
from engine.providers import process
from engine.providers.base import Context
from engine.values import Props, Value, is_secret, secret
from scripts.hostfiles import PrivateFolder

_DEFAULTS = {"user": "root", "port": 22, "dialErrorLimit": 10, "perDialTimeout": 15}
_KEYS = ("password", "privateKey", "privateKeyPassword")
"""Secrets inside a connection (provider/pkg/provider/remote/connection.go of pulumi-command)."""
_SESSIONS = 8  # of the ten that sshd allows on one connection (MaxSessions)
_ALIVE = 15
"""Seconds of silence after which ssh sends a keepalive message (ServerAliveInterval). It ends the connection when three
of them are not answered."""


def with_defaults(connection: Value) -> Value:
    """Return a connection with the defaults of pulumi-command's Check. One that is unknown stays as it is."""
    if not isinstance(connection, dict):
        return connection
    filled = {**_DEFAULTS, **connection}
    if isinstance(filled.get("proxy"), dict):
        filled["proxy"] = {**_DEFAULTS, **filled["proxy"]}
    return filled


def with_secret_keys(value: Value) -> Value:
    """Return a connection with its keys marked as secrets within it, as by pulumi-command's Check."""
    if is_secret(value):
        return secret(with_secret_keys(value["value"]))
    if not isinstance(value, dict):
        return value
    marked = {key: secret(v) if key in _KEYS and v is not None else v for key, v in value.items()}
    return {**marked, "proxy": with_secret_keys(marked["proxy"])} if "proxy" in marked else marked


def only_keys(connection: Value) -> Value:
    """Return a connection, secret as a whole, without host, port and user, which messages must show."""
    inner = connection["value"] if is_secret(connection) else connection
    if not isinstance(inner, dict):
        return connection
    kept = {name: value for name, value in inner.items() if name not in ("host", "port", "user", "proxy")}
    return secret({**kept, "proxy": only_keys(inner.get("proxy"))})


class Sessions:
    """The SSH connections of one run."""

    def __init__(self) -> None:
        self._folder: PrivateFolder | None = None
        self._lock = threading.Lock()
        self._connections: dict[str, _Connection] = {}

    def run(
        self,
        ctx: Context,
        connection: Props,
        command: str,
        *,
        stdin: str | bytes = "",
        environment: dict[str, str] | None = None,
        optional_environment: dict[str, str] | None = None,
        on_line: Callable[[str, str], None] = lambda _stream, _line: None,
    ) -> process.ProcessOutcome:
        """Run a command on the machine. Its sshd must accept `environment` (AcceptEnv), and may drop the optional one.
        Raises EngineError if the machine can't be reached in the attempts that the connection allows."""
        required, optional = environment or {}, optional_environment or {}
        master = self._connection_to(with_defaults(connection))
        with master.slots:
            master.dial(ctx)
            # sshd silently drops variables that AcceptEnv does not name.
            guard = "".join(f'[ "${{{name}+x}}" ] || {{ echo {name} >&2; exit 97; }}; ' for name in required)
            send = [f"-oSendEnv={name}" for name in (*required, *optional)]
            outcome = process.run(
                [*master.argv, *send, "--", master.host, guard + command],
                stdin=stdin,
                env={**os.environ, **master.environment, **required, **optional},
                timeout=ctx.timeout,
                on_line=on_line,
            )
        if guard and outcome.status == 97 and outcome.stderr.strip() in required:
            raise EngineError(
                f"environment.{outcome.stderr.strip()}: not accepted by the sshd of {master.host}. "
                "Add it to AcceptEnv there, or write it before the command (NAME=value command)"
            )
        return outcome

    def close(self) -> None:
        """End all connections and remove all keys."""
        for master in self._connections.values():
            master.close()
        self._connections.clear()
        if self._folder:
            self._folder.remove()
            self._folder = None

    def _connection_to(self, connection: Props) -> "_Connection":
        key = json.dumps(connection, sort_keys=True)
        with self._lock:
            if key not in self._connections:
                self._folder = self._folder or PrivateFolder("pulumi-ssh")
                self._connections[key] = _Connection(connection, self._folder.path / str(len(self._connections)))
            return self._connections[key]


class _Connection:
    """A connection: its files, its arguments and its master process."""

    def __init__(self, connection: Props, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self._folder, self._connection = folder, connection
        self._lock = threading.Lock()
        self._up = self._given_up = False
        self.slots = threading.BoundedSemaphore(_SESSIONS)
        self.host = str(connection["host"])
        self.environment = {"SSH_ASKPASS_REQUIRE": "never"}
        options = self._options(connection, "")
        if proxy := connection.get("proxy"):
            command = ["ssh", *self._options(proxy, "proxy-"), "-W", "[%h]:%p", "--", str(proxy["host"])]
            options += ["-o", "ProxyCommand=" + " ".join(a if "%" in a else shlex.quote(a) for a in command)]
        self.argv = ["ssh", *options, "-S", str(folder / "master")]

    def _options(self, c: Props, prefix: str) -> list[str]:
        """Return ssh's arguments for one hop. Keys and passwords are in files of the private folder, not in them."""
        options = {
            "LogLevel": "ERROR", "ConnectTimeout": max(int(c["perDialTimeout"]), 0) or "none",
            "ServerAliveInterval": _ALIVE, "GlobalKnownHostsFile": "/dev/null", "IdentitiesOnly": "yes",
            "Port": int(c["port"]), "User": c["user"], "UserKnownHostsFile": "/dev/null", "StrictHostKeyChecking": "no",
        }  # fmt: skip
        if key := c.get("hostKey"):
            # With an alias, known_hosts needs no brackets for ports other than 22.
            name = f"{prefix}machine"
            options |= {"HostKeyAlias": name, "StrictHostKeyChecking": "yes"}
            options["UserKnownHostsFile"] = self._file(f"{prefix}known_hosts", f"{name} {key.strip()}\n")
        if key := c.get("privateKey"):
            options["IdentityFile"] = self._file(f"{prefix}key", key.rstrip("\n") + "\n")
        else:
            options["IdentitiesOnly"] = "no"
        if password := (c.get("privateKeyPassword") if c.get("privateKey") else c.get("password")):
            file = self._file(f"{prefix}answer", f"{password}\n")
            script = self._file(f"{prefix}askpass", f"#!/bin/sh\nexec cat {shlex.quote(file)}\n", 0o700)
            self.environment |= {"SSH_ASKPASS": script, "SSH_ASKPASS_REQUIRE": "force"}
            options["NumberOfPasswordPrompts"] = 1
        else:
            options["BatchMode"] = "yes"
        if agent := c.get("agentSocketPath"):
            options["IdentityAgent"] = agent
        return ["-F", "none", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]

    def _file(self, name: str, text: str, mode: int = 0o600) -> str:
        path = self._folder / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as out:
            out.write(text)
        return str(path)

    def dial(self, ctx: Context) -> None:
        """Start the master connection unless it is up. Retries up to dialErrorLimit times (-1: without limit). After
        that limit was reached once, later calls of this run try only once. Raises EngineError."""
        limit = int(self._connection["dialErrorLimit"])
        attempts = "inf" if limit < 0 else limit
        with self._lock:
            limit = 0 if self._given_up else limit
            if self._up and self._control("check"):
                return
            attempt, pause = 0, 0.1
            while True:
                attempt += 1
                message = self._start_master()
                if message is None:
                    self._up = True
                    return
                if "host key" in message.lower() and "verification failed" in message.lower():
                    raise EngineError(
                        f"{self.host} does not show the host key that connection.hostKey pins:\n{message}"
                    )
                if ctx.stopped():
                    raise EngineError(f"{self.host}: interrupted while waiting for an SSH connection")
                if 0 <= limit < attempt:
                    self._given_up = True
                    tries = f"{attempt} attempt{'s' if attempt > 1 else ''}"
                    raise EngineError(f"{self.host}: no SSH connection after {tries}: {message}")
                last_line = message.splitlines()[-1]
                ctx.log("info", f"Dial {attempt}/{attempts} failed: retrying ({last_line})", ephemeral=True)
                time.sleep(pause)
                pause = min(pause * 1.5, 5)

    def _start_master(self) -> str | None:
        """Start the master process. Returns None if it is up, else ssh's error message."""
        log = self._folder / "log"
        log.unlink(missing_ok=True)
        # ControlPersist ends the masters of killed runs. The master must allow the variables that its sessions send.
        options = ("ControlPersist=60", "ControlMaster=yes", "SendEnv=*")
        arguments = [*(f"-o{option}" for option in options), "-E", str(log), "-N", "-f"]
        env = {**os.environ, **self.environment}
        # ssh ends by itself when a machine does not answer, or no longer; this limit is for the case that it does not.
        seconds = int(self._connection["perDialTimeout"])
        try:
            done = subprocess.run(
                [*self.argv, *arguments, "--", self.host], env=env, check=False, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                timeout=seconds + _ALIVE * 4 if seconds > 0 else None,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            return f"no login within {error.timeout:.0f} s"
        if done.returncode == 0:
            return None
        text = log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""
        return text.replace("\r", "") or f"ssh ended with status {done.returncode}"

    def _control(self, command: str) -> bool:
        """Send a control command (`ssh -O`) to the master. Returns whether it succeeded."""
        argv = [*self.argv, "-O", command, "--", self.host]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0

    def close(self) -> None:
        if self._up:
            self._control("exit")
