"""The way to a cluster's machines: the options of ssh, pinned keys, and what lies in between.

A machine that another one leads to shares one connection to that with all the others behind it, whether it is asked
alone or with hundreds. The user's own configuration of ssh and agent are left out: they know nothing of these machines.
"""

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cli.access.jump_host import Gate, last
from cli.cluster.cluster import Machine
from cli.errors import CliError
from cluster.platforms.gcp import iap

UNREACHED = 255
"""ssh's own exit code, which a command there may have as well."""
CONNECT_SECONDS = 15
IAP_SECONDS = 20
"""More than that for Google's proxy: gcloud takes two seconds to start, and as many for each connection, on its own."""
_HOST_KEYS = "python3 /usr/local/lib/hpc/node host-keys"

Argv = Callable[[Machine, list[str]], list[str]]
"""The command that runs ssh to a machine, with these words at its end."""


def slack(machine: Machine) -> float:
    """Seconds that the way to a machine may take beyond those of one that answers here."""
    return IAP_SECONDS if machine.iap else 0


def words(machine: Machine, said: str) -> str:
    """What ssh, or who was to lead to the machine, said of why it was not reached, without lines that tell nothing."""
    if machine.iap and "ERROR: (gcloud" in said:
        return iap.explain(said, machine.iap)
    if machine.jump and "Session open refused" in said:
        return f"{machine.jump.name} gets no connection to it at {machine.address}"
    return last(said)


@contextmanager
def ways(machines: Iterable[Machine], admin_key: str, *, seconds: float = CONNECT_SECONDS) -> Generator[Argv]:
    """What leads to each of these machines as root, while its keys and connections are there.

    It gives a machine up that does not answer within `seconds`, 15 at most, and what the way there takes. For one
    that nothing leads to, it is a command that says why and ends like ssh.

    Raises:
        CliError: there is no ssh here.
    """
    every = list(machines)
    with ExitStack() as open_:
        way = _Way(open_, admin_key, {m.name: m for one in every for m in _chain(one)}, seconds)
        way.learn([machine for machine in every if not machine.host_key])
        for machine in every:
            way.prepare(machine)
        yield way.argv


class _Way:
    def __init__(self, open_: ExitStack, admin_key: str, machines: Mapping[str, Machine], seconds: float) -> None:
        self._open, self._seconds = open_, seconds
        ssh = shutil.which("ssh")
        if not ssh:
            raise CliError("there is no ssh here. Install it (on Debian and Ubuntu: apt-get install openssh-client).")
        self._ssh = ssh
        self._key = open_.enter_context(private(admin_key if admin_key.endswith("\n") else f"{admin_key}\n"))
        self._known = self._pinned({machine.name: machine.host_key for machine in machines.values()})
        self._gates: dict[str, Gate] = {}
        self._lost: dict[str, str] = {}
        """Why nothing leads to a machine, by its name."""

    def learn(self, machines: list[Machine]) -> None:
        """Ask those in between for the host keys of machines that told them there."""
        told: dict[str, str] = {}
        for jump in {machine.jump.name: machine.jump for machine in machines if machine.jump}.values():
            self.prepare(jump)
            code, out, err = self._gate(jump).ask(_HOST_KEYS)
            behind = [machine.name for machine in machines if machine.jump and machine.jump.name == jump.name]
            why = self._gate(jump).trouble or f"{jump.name} does not tell its host key: {err or f'exit code {code}'}"
            if code == 0:
                told |= json.loads(out)
                why = "its host key is not known: it has told nothing on the board, so it has not joined"
            self._lost |= {name: why for name in behind if not told.get(name)}
        if told:
            self._known = f"{self._known} {self._pinned(told)}"

    def prepare(self, machine: Machine) -> None:
        """See that the way to a machine is open, as far as that can be done before it is entered."""
        if machine.jump:
            self.prepare(machine.jump)
            gate = self._gate(machine.jump)
            if gate.trouble:
                self._lost.setdefault(machine.name, gate.trouble)
        if machine.iap and not shutil.which("gcloud"):
            self._lost[machine.name] = iap.missing()

    def argv(self, machine: Machine, words: list[str]) -> list[str]:
        """The command that runs ssh to a machine."""
        if why := self._lost.get(machine.name):
            return ["sh", "-c", f'printf "%s\\n" "$1" >&2; exit {UNREACHED}', "sh", why]
        return [self._ssh, *self._options(machine), *words]

    def _gate(self, jump: Machine) -> Gate:
        if jump.name not in self._gates:
            trouble = self._lost.get(jump.name, "")
            gate = Gate(jump.name, self.argv(jump, []), f"root@{jump.address}", trouble, lambda said: words(jump, said))
            self._gates[jump.name] = self._open.enter_context(gate.held(self._seconds + slack(jump)))
        return self._gates[jump.name]

    def _options(self, machine: Machine) -> list[str]:
        connect = min(CONNECT_SECONDS, self._seconds) + slack(machine)
        settings = {
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "PreferredAuthentications": "publickey",
            "StrictHostKeyChecking": "yes",
            # By name: machines that are made anew get addresses that others had.
            "HostKeyAlias": machine.name,
            "UserKnownHostsFile": self._known,
            "GlobalKnownHostsFile": "/dev/null",
            "UpdateHostKeys": "no",
            "ConnectTimeout": f"{connect:.0f}",
            "ServerAliveInterval": "15",
            "LogLevel": "ERROR",  # no farewell after every command; errors are still said
        }
        if machine.jump:
            settings["ProxyCommand"] = self._gate(machine.jump).forward
        elif machine.iap:
            settings["ProxyCommand"] = proxy_command(["gcloud", *machine.iap.piped()])
        given = (word for name, value in settings.items() for word in ("-o", f"{name}={value}"))
        return ["-F", "none", "-i", self._key, *given]

    def _pinned(self, keys: Mapping[str, str]) -> str:
        lines = "".join(f"{name} {key}\n" for name, key in keys.items() if key)
        return self._open.enter_context(private(lines))


def _chain(machine: Machine) -> list[Machine]:
    """A machine and those that lead to it."""
    return [machine, *(_chain(machine.jump) if machine.jump else [])]


def proxy_command(words: list[str]) -> str:
    """A command for ssh's ProxyCommand, in which % is ssh's own."""
    return shlex.join(words).replace("%", "%%")


@contextmanager
def private(text: str) -> Generator[str]:
    """A path that holds the text for the owner alone, while it is needed.

    Where the system can, it is a file in memory that is gone with this process, however that ends.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("hpc")
        try:
            os.fchmod(descriptor, 0o600)
            os.write(descriptor, text.encode())
            # ssh closes what it inherits, but may open what this process holds.
            yield f"/proc/{os.getpid()}/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory(prefix="hpc-") as folder:
        file = Path(folder) / "private"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
        yield str(file)
