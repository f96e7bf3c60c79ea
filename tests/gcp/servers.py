"""Helpers of tests of access: SSH servers on the loopback, each with its own host key, and a stand-in of gcloud."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import programs
from tests.lab.google import gcloud
from tests.waiting import lives, wait_for

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
FAKE = gcloud.__file__


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(host: str, port: int) -> bool:
    """Return whether a server listens at an address."""
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class SshServer:
    """An SSH server of a machine."""

    address: str
    port: int
    host_key: str

    @property
    def at(self) -> tuple[str, int]:
        """Address and port."""
        return self.address, self.port


@contextmanager
def sshd(folder: Path, name: str, address: str, port: int, **more: str) -> Iterator[SshServer]:
    """Run an SSH server that accepts the key `folder`/user. Commands there have its name in the variable SSHD."""
    for key in (name, "user"):
        if not (folder / key).exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", folder / key], check=True)
    # sshd wants a folder that only root may write to, and its own to be there.
    Path("/run/sshd").mkdir(exist_ok=True)
    options = {
        "ListenAddress": f"{address}:{port}",
        "HostKey": folder / name,
        "AuthorizedKeysFile": folder / "user.pub",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "prohibit-password",
        "SetEnv": f"SSHD={name}",
        "Subsystem": "sftp internal-sftp",
        **more,
    }
    argv = [SSHD, "-D", "-e", "-f", "/dev/null", *(w for k, v in options.items() for w in ("-o", f"{k}={v}"))]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: answers(address, port), f"sshd {name}")
            yield SshServer(address, port, (folder / f"{name}.pub").read_text().strip())
        finally:
            process.terminate()


@dataclass(frozen=True)
class Cloud:
    """The stand-in of gcloud on PATH, and its calls."""

    file: Path

    def set(self, **behaviour: object) -> None:
        """Set its behaviour."""
        self.file.write_text(json.dumps({"ports": {}, "mood": None, "boots": 0, **behaviour}))

    @property
    def calls(self) -> list[dict[str, object]]:
        """Process id and arguments of all calls."""
        log = Path(f"{self.file}.log")
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    @property
    def running(self) -> list[int]:
        """Ids of its running processes."""
        return [pid for call in self.calls if lives(pid := int(str(call["pid"])))]


def fake_gcloud(tools: Path) -> Cloud:
    """Write it into a folder. It is used if PATH has the folder and FAKE_GCLOUD is the returned file."""
    programs.write(tools / "gcloud", f'"{sys.executable}" -I "{FAKE}" "$@"')  # no exec: gcloud's own is a script too
    cloud = Cloud(tools / "behaviour.json")
    cloud.set()
    return cloud
