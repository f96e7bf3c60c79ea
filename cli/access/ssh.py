"""The driver for targets with an SSH server, reached directly, behind a jump host or through Identity-Aware Proxy.

Each session has an ssh_config of its own in a private folder, with pinned host keys. The user's configuration and agent
are left out: they know nothing of these machines. All targets behind a jump host share one connection to it.
"""

import json
import os
import re
import select
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cli.access.target import UNREACHED, Driver, Target
from cli.errors import CliError
from cluster.platforms.gcp import iap
from scripts.hostfiles import PrivateFolder

IAP = "iap"
"""The method of targets behind Identity-Aware Proxy; all others of this file are reached by plain ssh."""
_WORD = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.:-]*[A-Za-z0-9_])?")
_KEY = re.compile(r"[A-Za-z0-9@.-]+ [A-Za-z0-9+/=]+")
PINNED = {
    "StrictHostKeyChecking": "yes",
    "GlobalKnownHostsFile": "/dev/null",
    "UpdateHostKeys": "no",
    "ServerAliveInterval": "15",
}
"""Options of every host: host keys come from the stack's state, and from nowhere else."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A block of an ssh_config."""

    names: Sequence[str]
    options: Mapping[str, str]


def iap_instance(target: Target) -> iap.InstanceName:
    """Return the project, zone and name by which Identity-Aware Proxy finds a target."""
    name, project, zone = (checked(target.row.get(key)) for key in ("instance", "project", "zone"))
    return iap.InstanceName(name=name, project=project, zone=zone)


def route_options(target: Target) -> dict[str, str]:
    """Return the ssh_config options for a target's address and for the jump host or proxy in front of it."""
    # By name: a recreated machine may get an address that another one had.
    options = {"HostName": checked(target.address), "Port": str(target.port), "HostKeyAlias": checked(target.name)}
    if target.jump:
        options["ProxyJump"] = checked(target.jump.name)
    elif target.method == IAP:
        # ssh gives the line to a shell, after it has replaced what begins with %.
        options["ProxyCommand"] = shlex.join(["gcloud", *iap_instance(target).pipe_arguments()]).replace("%", "%%")
    return options


def render(hosts: Iterable[Host]) -> str:
    """Return the text of an ssh_config. Values are not quoted: `quoted` does that for paths."""
    blocks = [
        "\n".join([f"Host {' '.join(host.names)}", *(f"  {name} {value}" for name, value in host.options.items())])
        for host in hosts
    ]
    return "\n\n".join(blocks) + "\n"


def known_hosts(keys: Mapping[str, str]) -> str:
    """Return the lines of a known_hosts for keys by the target's name; targets without a key have no line."""
    return "".join(f"{checked(name)} {_checked_key(name, key)}\n" for name, key in keys.items() if key)


def quoted(path: Path) -> str:
    """Return a path as a value of an ssh_config. Raises CliError: an ssh_config can't name it."""
    text = str(path)
    if re.search(r'["\\\x00-\x1f]|\$\{', text):
        raise CliError(f"{text!r}: a path in an ssh_config can hold no quote, backslash, line break or ${{...}}.")
    return f'"{text.replace("%", "%%")}"'


def checked(word: object) -> str:
    """Return a name or an address, which ssh_config has without quotes. Raises CliError: it is not one plain word."""
    if not isinstance(word, str) or not _WORD.fullmatch(word):
        raise CliError(f"the stack's outputs name {word!r}, which is no name or address of a machine.")
    return word


def _checked_key(name: str, key: str) -> str:
    # What follows the key itself is a comment.
    match = _KEY.match(key)
    if not match or "\n" in key or not key.isprintable():
        raise CliError(f"{name}: {key[:60]!r} is no public SSH host key.")
    return match[0]


_LINE = re.compile(r"[\s|&;<>()$`*?]")
"""Characters by which a word is more than a word to a shell."""
_WAIT_UNTIL_RECORDED = (
    'last=$(squeue --noheader --states=all --user="$(id -un)" --format=%A --sort=-i | head -n 1); '
    "for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "
    '[ -z "$last" ] || sacct --noheader --allocations --format=jobid | grep -qw "$last" && break; sleep 0.3; done; '
)
"""Waits, 6 s at most, until the user's newest job is in the database.

slurmctld sends new jobs to slurmdbd in rounds of five seconds: a `sacct` right after a job would not show it.
"""


def shell_line(user: str, command: Sequence[str], *, terminal: bool) -> str:
    """Return the line that root's shell runs to run a command as a user.

    A command of one word that can't be a program's name, such as "squeue | wc -l", is a line for the user's shell, as
    in ssh(1). Otherwise two shells read the words, root's and the user's login shell, so they are quoted twice.
    No command means the login shell. For root the line is then empty, since ssh has already logged root in.
    """
    words = command[0] if len(command) == 1 and _LINE.search(command[0]) else shlex.join(command)
    if command and command[0].split(maxsplit=1)[:1] == ["sacct"]:
        words = _WAIT_UNTIL_RECORDED + words
    if user == "root":
        return words
    if not command:
        return f"exec runuser -l {shlex.quote(user)}"
    # `-c` starts a session of its own, which a terminal's Ctrl-C and job control do not reach.
    option = "--session-command" if terminal else "-c"
    return f"exec runuser -l {shlex.quote(user)} {option} {shlex.quote(words)}"


CONNECT_SECONDS = 15
_IAP_SECONDS = 20
"""More than that for Identity-Aware Proxy: gcloud takes two seconds to start, and as many for each connection."""
_HOST_KEYS = "python3 /usr/local/lib/hpc/node host-keys"
_HOST_KEYS_SECONDS = 20.0
_END_SECONDS = 3.0
READY = "ready"
_NO_REASON = re.compile(
    "Connection closed by UNKNOWN|Connection to UNKNOWN|kex_exchange_identification: Connection closed"
    "|stdio forwarding failed"
)
"""Beginnings of lines that ssh ends with, whatever the reason was."""


class Ssh(Driver):
    """Runs commands with the system's ssh, which logs in as root."""

    needs_admin_key = True

    @contextmanager
    def connect(self, targets: Sequence[Target], admin_key: str, *, seconds: float) -> Generator["_Session"]:
        """Open a session. For a target that can't be reached the argv prints the reason and ends like ssh. Raises
        CliError: there is no ssh here, or an output of the stack is no name, address or key."""
        with ExitStack() as stack:
            yield _Session(stack, admin_key, targets, seconds)

    @contextmanager
    def log_in(self, target: Target, admin_key: str, user: str, key: Path) -> Generator["_Session"]:
        """Open a session like `connect`, for one target, as `user` with that user's own private key. Raises CliError:
        as for `connect`, or the key can't be read."""
        if not os.access(key, os.R_OK) or not key.is_file():
            raise CliError(f"{key}: there is no private key that can be read.")
        with ExitStack() as stack:
            yield _Session(stack, admin_key, [target], CONNECT_SECONDS, SshLogin(user, key))

    @contextmanager
    def prometheus(self, target: Target, admin_key: str, port: int) -> Generator[tuple[Path, str]]:
        """Forward a port of the target's loopback address, where Prometheus answers at the root. Raises CliError: as
        for `connect`, or the target does not answer."""
        with ExitStack() as stack:
            yield _Session(stack, admin_key, [target], CONNECT_SECONDS).forward(target, port), ""

    def host_keys(self, targets: Sequence[Target], admin_key: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the host keys that targets published to their jump hosts, and for each other target the reason why
        its key is not known. Raises CliError: as for `connect`."""
        with self.connect(targets, admin_key, seconds=CONNECT_SECONDS) as session:
            names = [target.name for target in targets]
            keys = {name: session.keys[name] for name in names if session.keys[name]}
            return keys, {name: session.unreachable[name] for name in names if name in session.unreachable}

    @staticmethod
    def extra_seconds(target: Target) -> float:
        return _IAP_SECONDS if target.method == IAP else 0

    @staticmethod
    def explain(target: Target, stderr: str) -> str:
        """Return the last line of ssh's output that has a reason."""
        if target.method == IAP and "ERROR: (gcloud" in stderr:
            return iap.explain(stderr, iap_instance(target))
        if target.jump and "Session open refused" in stderr:
            return f"{target.jump.name} gets no connection to it at {target.address}"
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        reasons = [line for line in lines if not _NO_REASON.match(line)]
        return (reasons or lines or [""])[-1]


class SshLogin(NamedTuple):
    """The user who logs in to the targets, where that is not root with the stack's key."""

    user: str
    key: Path


class _Session:
    """A private folder with an ssh_config, and the connections to the jump hosts."""

    def __init__(
        self, stack: ExitStack, admin_key: str, targets: Sequence[Target], seconds: float, login: SshLogin | None = None
    ) -> None:
        ssh = shutil.which("ssh")
        if not ssh:
            raise CliError("there is no ssh here. Install it (on Debian and Ubuntu: apt-get install openssh-client).")
        folder = PrivateFolder("hpc-ssh")
        stack.callback(folder.remove)
        self._stack, self._seconds, self._folder = stack, seconds, Path(folder.path)
        self._ssh = [ssh, "-F", f"{self._folder}/config"]
        self._login, self._requested = login, {target.name for target in targets}
        # Each jump host comes before the targets behind it.
        self._targets = {host.name: host for target in targets for host in reversed(_chain(target))}
        self._jumps = list(dict.fromkeys(target.jump.name for target in self._targets.values() if target.jump))
        self.unreachable: dict[str, str] = {}
        """The reason why a target can't be reached, by its name."""
        self.keys = {name: target.host_key for name, target in self._targets.items()}
        self._write("known_hosts", known_hosts(self.keys))
        self._write("config", render([*map(self._host, self._targets.values()), self._defaults()]))
        _write_key(stack, self._folder / "key", admin_key)
        self._connect_jump_hosts()

    def _connect_jump_hosts(self) -> None:
        """Connect to the jump hosts, and read from them the host keys that the stack's outputs lack."""
        broken_jumps: dict[str, str] = {}
        for name, target in self._targets.items():
            if target.method == IAP and not shutil.which("gcloud"):
                self.unreachable[name] = iap.missing()
            elif target.jump and target.jump.name in broken_jumps:
                self.unreachable[name] = broken_jumps[target.jump.name]
            elif not self.keys[name]:
                self.unreachable[name] = "its host key is not known: it has not published one, so it has not joined"
            if name in self._jumps and (reason := self._connect_jump_host(target)):
                broken_jumps[name] = reason

    def __call__(self, target: Target, user: str, command: Sequence[str], *, terminal: bool = False) -> list[str]:
        """Return the program and arguments that run a command as a user on a target."""
        if reason := self.unreachable.get(target.name):
            return ["sh", "-c", f'printf "%s\\n" "$1" >&2; exit {UNREACHED}', "sh", reason]
        # A user who has logged in with an own key needs no other user's shell.
        line = shell_line("root" if self._login else user, command, terminal=terminal)
        # Not over a shared connection: a server limits the sessions of one (MaxSessions).
        return [*self._ssh, "-S", "none", "-t" if terminal else "-T", target.name, *([line] if line else [])]

    def forward(self, target: Target, port: int) -> Path:
        """Forward a port of the target's loopback address until the session ends. Returns the path of the local socket.
        Raises CliError: the target does not answer."""
        path = self._folder / "forwarded"
        options = ("-S", "none", "-o", "ExitOnForwardFailure=yes", "-L", f"{path}:127.0.0.1:{port}")
        if reason := self.unreachable.get(target.name) or self._hold_connection(target, *options):
            raise CliError(f"{target.name} does not answer: {reason}")
        return path

    def _connect_jump_host(self, jump: Target) -> str:
        """Connect to a jump host and fetch host keys from it. Returns why that failed, else ""."""
        if reason := self.unreachable.get(jump.name):
            return reason
        if reason := self._hold_connection(jump, "-o", "ControlMaster=yes"):
            return f"jump host {jump.name}: {reason}"
        return self._fetch_host_keys(jump)

    def _hold_connection(self, target: Target, *options: str) -> str:
        """Hold a connection open until the session ends. Other connections share it by its ControlPath, or it forwards
        a port. Returns why that failed, else ""."""
        seconds = self._seconds + Ssh.extra_seconds(target)
        command = [*self._ssh, *options, "-T", target.name, f"echo {READY}; exec cat >/dev/null"]
        stderr = self._stack.enter_context(hold_open(command, seconds))
        return "" if stderr is None else Ssh.explain(target, stderr) or f"no answer within {seconds:.0f} s"

    def _fetch_host_keys(self, jump: Target) -> str:
        """Read from a jump host the keys that machines behind it have published. Returns why that failed, else ""."""
        behind = [target.name for target in self._targets.values() if target.jump and target.jump.name == jump.name]
        unknown = [name for name in behind if not self.keys[name]]
        if not unknown:
            return ""
        try:
            done = subprocess.run(
                [*self._ssh, "-T", jump.name, _HOST_KEYS],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_HOST_KEYS_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{jump.name} returned no host keys within {_HOST_KEYS_SECONDS:.0f} s"
        if done.returncode:
            reason = Ssh.explain(jump, done.stderr) or f"exit code {done.returncode}"
            return f"{jump.name} returned no host keys: {reason}"
        published = json.loads(done.stdout)
        self.keys |= {name: published[name].strip() for name in unknown if published.get(name)}
        self._write("known_hosts", known_hosts(self.keys))
        return ""

    def _host(self, target: Target) -> Host:
        seconds = self._seconds + Ssh.extra_seconds(target)
        options = {**route_options(target), "ConnectTimeout": f"{seconds:.0f}"}
        if target.here:
            # The machine has only this one (components/local/host/machine.py): it needs the least processor time.
            options["KexAlgorithms"] = "^ecdh-sha2-nistp256"
        if target.name in self._jumps:
            options["ControlPath"] = f"{self._folder}/{self._jumps.index(target.name)}"
        if self._login and target.name in self._requested:
            options["User"] = checked(self._login.user)
            options["IdentityFile"] = quoted(self._login.key)
            # A person's key may have a passphrase, which ssh asks for.
            options["BatchMode"] = "no"
        elif self._login:
            options |= {"User": "root", "IdentityFile": f"{self._folder}/key"}
        return Host(names=[target.name], options=options)

    def _defaults(self) -> Host:
        options = {
            **PINNED,
            "User": "root",
            # ssh tries every key that it is given.
            **({} if self._login else {"IdentityFile": f"{self._folder}/key"}),
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "PreferredAuthentications": "publickey",
            "BatchMode": "yes",
            "UserKnownHostsFile": f"{self._folder}/known_hosts",
            "LogLevel": "ERROR",  # no line after every command; errors are still printed
        }
        return Host(names=["*"], options=options)

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text, encoding="utf-8")


def _chain(target: Target) -> list[Target]:
    """Return a target and its jump hosts, the nearest to the target first."""
    return [target, *(_chain(target.jump) if target.jump else [])]


def _write_key(stack: ExitStack, path: Path, key: str) -> None:
    """Write a private key to a path. Where the system has memfd_create the key is only in memory, so it is gone
    however this process ends."""
    text = (key if key.endswith("\n") else f"{key}\n").encode()
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("hpc")
        stack.callback(os.close, descriptor)
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, text)
        # ssh closes what it inherits, but may open what this process holds.
        path.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
    else:
        path.touch(mode=0o600)
        path.write_bytes(text)


@contextmanager
def hold_open(command: Sequence[str], seconds: float) -> Generator[str | None]:
    """Run a program that prints READY and ends with its standard input, so that it ends however this process ends.
    Yields None once the program is ready, or its error output."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # A terminal's Ctrl-C is for what goes through it.
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin  # noqa: S101 - a pipe
        try:
            if _wait_until_ready(process, seconds):
                yield None
            else:
                errors.seek(0)
                yield errors.read().decode(errors="replace")
        finally:
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Return whether the program prints READY within so many seconds."""
    assert process.stdout  # noqa: S101 - a pipe
    deadline, output = time.monotonic() + seconds, b""
    while (remaining := deadline - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], remaining)[0]:
            data = os.read(process.stdout.fileno(), 4096)
            output += data
            if READY.encode() in output:
                return True
            if not data:
                process.wait()
                return False
    return False
