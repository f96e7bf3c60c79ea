"""Commands on other machines, through the system's `ssh`.

One master connection for each distinct `connection`, shared by all commands to it. Keys and known hosts lie in a
private folder for as long as the run lasts. With a `hostKey` the machine must show exactly that key; without one,
nothing is verified, as pulumi-command does.
"""

import json
import os
import re
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
from hostfiles import PrivateFolder

_DEFAULTS = {"user": "root", "port": 22, "dialErrorLimit": 10, "perDialTimeout": 15}
_KEYS = ("password", "privateKey", "privateKeyPassword")
"""Secrets inside a connection (provider/pkg/provider/remote/connection.go of pulumi-command)."""
_SESSIONS = 8  # of the ten that sshd allows on one connection (MaxSessions)
_ALIVE = 15
"""Seconds of silence after which a machine is asked whether it is there; ssh hangs up when it has asked three times."""


def with_defaults(connection: Value) -> Value:
    """A connection as pulumi-command's Check fills it; unknown ones as they are."""
    if not isinstance(connection, dict):
        return connection
    filled = {**_DEFAULTS, **connection}
    if isinstance(filled.get("proxy"), dict):
        filled["proxy"] = {**_DEFAULTS, **filled["proxy"]}
    return filled


def with_secret_keys(value: Value) -> Value:
    """A connection with its keys marked as secret once more inside of it, as pulumi-command's Check does."""
    if is_secret(value):
        return secret(with_secret_keys(value["value"]))
    if not isinstance(value, dict):
        return value
    marked = {key: secret(v) if key in _KEYS and v is not None else v for key, v in value.items()}
    return {**marked, "proxy": with_secret_keys(marked["proxy"])} if "proxy" in marked else marked


def only_keys(connection: Value) -> Value:
    """A connection, secret as a whole, without what a message must show to be of use: where it leads, and as whom."""
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
        self._links: dict[str, _Link] = {}

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
    ) -> process.Outcome:
        """Run a command there. `environment` must be accepted by the machine's sshd (AcceptEnv), the optional one
        may be. Raises EngineError if the machine can't be reached in the attempts that the connection allows."""
        wanted, optional = environment or {}, optional_environment or {}
        link = self._link(with_defaults(connection))
        with link.slots:
            link.dial(ctx)
            # sshd drops what AcceptEnv does not name, without a word.
            guard = "".join(f'[ "${{{name}+x}}" ] || {{ echo {name} >&2; exit 97; }}; ' for name in wanted)
            sent = [f"-oSendEnv={name}" for name in (*wanted, *optional)]
            outcome = process.run(
                [*link.argv, *sent, "--", link.host, guard + command],
                stdin=stdin,
                env={**os.environ, **link.environment, **wanted, **optional},
                timeout=ctx.timeout,
                on_line=on_line,
            )
        if guard and outcome.status == 97 and outcome.stderr.strip() in wanted:
            raise EngineError(
                f"environment.{outcome.stderr.strip()}: not accepted by the sshd of {link.host}. "
                "Add it to AcceptEnv there, or write it before the command (NAME=value command)"
            )
        return outcome

    def close(self) -> None:
        """End all connections, remove all keys."""
        for link in self._links.values():
            link.hang_up()
        self._links.clear()
        if self._folder:
            self._folder.remove()
            self._folder = None

    def _link(self, connection: Props) -> "_Link":
        key = json.dumps(connection, sort_keys=True)
        with self._lock:
            if key not in self._links:
                self._folder = self._folder or PrivateFolder("pulumi-ssh")
                self._links[key] = _Link(connection, self._folder.path / str(len(self._links)))
            return self._links[key]


class _Link:
    """A connection: the files it needs, its arguments, its master process."""

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
        """Arguments for one hop; what must not be seen goes to files in the private folder."""
        options = {
            "LogLevel": "ERROR", "ConnectTimeout": max(int(c["perDialTimeout"]), 0) or "none",
            "ServerAliveInterval": _ALIVE, "GlobalKnownHostsFile": "/dev/null", "IdentitiesOnly": "yes",
            "Port": int(c["port"]), "User": c["user"], "UserKnownHostsFile": "/dev/null", "StrictHostKeyChecking": "no",
        }  # fmt: skip
        if key := c.get("hostKey"):
            # The alias spares us the brackets that ports other than 22 need.
            name = f"{prefix}machine"
            options |= {"HostKeyAlias": name, "StrictHostKeyChecking": "yes"}
            options["UserKnownHostsFile"] = self._file(f"{prefix}known_hosts", f"{name} {key.strip()}\n")
        if key := c.get("privateKey"):
            options["IdentityFile"] = self._file(f"{prefix}key", key.rstrip("\n") + "\n")
        else:
            options["IdentitiesOnly"] = "no"
        if word := (c.get("privateKeyPassword") if c.get("privateKey") else c.get("password")):
            answer = self._file(f"{prefix}answer", f"{word}\n")
            script = self._file(f"{prefix}askpass", f"#!/bin/sh\nexec cat {shlex.quote(answer)}\n", 0o700)
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
        """Have a master connection. Tries again until dialErrorLimit (-1: for ever); who has waited that long in vain
        is not waited for again in this run, but tried once. Raises EngineError."""
        limit = int(self._connection["dialErrorLimit"])
        shown = "inf" if limit < 0 else limit
        with self._lock:
            limit = 0 if self._given_up else limit
            if self._up and self._ask("check"):
                return
            attempt, pause = 0, 0.1
            while True:
                attempt += 1
                said = self._start_master()
                if said is None:
                    self._up = True
                    return
                if "host key" in said.lower() and "verification failed" in said.lower():
                    raise EngineError(f"{self.host} does not show the host key that connection.hostKey pins:\n{said}")
                if ctx.stopped():
                    raise EngineError(f"{self.host}: interrupted while waiting for an SSH connection")
                if 0 <= limit < attempt:
                    self._given_up = True
                    tries = f"{attempt} attempt{'s' if attempt > 1 else ''}"
                    raise EngineError(f"{self.host}: no SSH connection after {tries}: {said}")
                ctx.log("info", f"Dial {attempt}/{shown} failed: retrying ({said.splitlines()[-1]})", ephemeral=True)
                time.sleep(pause)
                pause = min(pause * 1.5, 5)

    def _start_master(self) -> str | None:
        """Start a master; None if there is one now, else ssh's message."""
        log = self._folder / "log"
        log.unlink(missing_ok=True)
        # The idle limit is for masters whose run was killed. A master must be allowed to send what its sessions send.
        options = ("ControlPersist=60", "ControlMaster=yes", "SendEnv=*")
        keep = [*(f"-o{option}" for option in options), "-E", str(log), "-N", "-f"]
        env = {**os.environ, **self.environment}
        # ssh itself gives up on a machine that does not answer, or does not go on speaking; this is in case it doesn't.
        allowed = int(self._connection["perDialTimeout"])
        try:
            done = subprocess.run(
                [*self.argv, *keep, "--", self.host], env=env, check=False, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                timeout=allowed + _ALIVE * 4 if allowed > 0 else None,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            return f"no login within {error.timeout:.0f} s"
        if done.returncode == 0:
            return None
        text = log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""
        return re.sub(r"\r", "", text) or f"ssh ended with status {done.returncode}"

    def _ask(self, what: str) -> bool:
        argv = [*self.argv, "-O", what, "--", self.host]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0

    def hang_up(self) -> None:
        if self._up:
            self._ask("exit")
