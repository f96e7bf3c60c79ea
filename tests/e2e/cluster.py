"""A cluster as its user has it: a stack file, and the ./hpc command."""

import copy
import ipaddress
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from components.local.host import bridge
from components.local.host.machine import bare, stop
from components.local.host.paths import images_root

ROOT = Path(__file__).parents[2]
BASE = "debian-13"
"""What clusters run unless they say otherwise; some say debian-12, so that both releases of Slurm are seen at work."""


class Cluster:
    """One stack with a state of its own. `edit` changes its file; nothing else is changed behind ./hpc's back."""

    def __init__(self, name: str, *, home: Path, root: Path, sections: dict[str, Any]) -> None:
        self.name = name
        self.root = root
        self.file = home / f"Pulumi.{name}.yaml"
        self.config: dict[str, Any] = {
            "platform": "local", "name": name, "network": {"cidr": free(name)}, **sections,
            "image": {"base": BASE, **sections.get("image", {})},
        }  # fmt: skip
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "HPC_"))}
        self.env = {
            **inherited,
            "HPC_HOME": str(home),
            "HPC_ENGINE": "embedded",
            "HPC_LOCAL_IMAGES": str(images_root()),
            "HPC_LOCAL_ROOT": str(root),
        }
        self._write()

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Let `change` alter the configuration in place, and write the file."""
        change(self.config)
        self._write()

    def copy(self) -> dict[str, Any]:
        """The configuration now, to go back to."""
        return copy.deepcopy(self.config)

    def _write(self) -> None:
        self.file.write_text(yaml.safe_dump({"config": {"hpc:cluster": self.config}}))

    def hpc(
        self, command: str, *arguments: str, check: bool = True, timeout: float = 900
    ) -> subprocess.CompletedProcess[str]:
        """./hpc COMMAND NAME --config-file FILE ARGUMENTS, without a terminal."""
        return self._call(
            [command, self.name, "--config-file", str(self.file), *arguments], check=check, timeout=timeout
        )

    def run(self, *words: str, user: str | None = None, check: bool = True) -> str:
        """What a command prints that a user runs on the login machine."""
        who = ["--as", user] if user else []
        return self._call(["run", self.name, *who, "--", *words], check=check).stdout.strip()

    def ssh(self, machine: str, script: str) -> str:
        """What a shell script prints that root runs on a machine."""
        return self._call(["ssh", self.name, machine, "--", "sh", "-c", script]).stdout.strip()

    def reachable(self, machine: str) -> bool:
        """Whether a machine lets root in."""
        return self._call(["ssh", self.name, machine, "--", "true"], check=False).returncode == 0

    def log_in(self, user: str, key: Path, machine: str, command: str, *, display: str = "") -> str:
        """What ssh prints when a user logs in from outside, with a key of their own and the machine's pinned one.

        With `display`, X11 of what runs there comes back to that one.
        """
        there = self.outputs()["machines"][f"{self.name}-{machine}"]
        known = self.file.with_name("known_hosts")
        known.write_text(f"{there['address']} {there['host_key']}\n")
        options = ["BatchMode=yes", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={known}", "IdentitiesOnly=yes"]
        done = subprocess.run(
            [
                "ssh", "-F", "none", *(["-Y"] if display else []), "-i", str(key),
                *(word for option in options for word in ("-o", option)),
                f"{user}@{there['address']}", command,
            ],
            capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "DISPLAY": display},
        )  # fmt: skip
        return done.stdout + done.stderr

    def cut_power(self, machine: str) -> None:
        """End a machine as a power failure does; its disk stays."""
        stop(bare(self.root, self.name, f"{self.name}-{machine}"), orderly=False)

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs."""
        return json.loads(self._call(["outputs", self.name, "--json"]).stdout)

    def boots(self) -> dict[str, str]:
        """For each machine a word that changes with every boot."""
        return {name: self.ssh(name, "cat /run/hpc/boot-id") for name in self.outputs()["machines"]}

    def up(self) -> str:
        """Bring the cluster to what its file says; what was printed."""
        return self.hpc("up").stdout

    def preview(self) -> dict[str, Any]:
        """The preview, as programs read it."""
        return json.loads(self.hpc("preview", "--json").stdout)

    def command(self, name: str, *arguments: str) -> str:
        """What ./hpc NAME STACK ARGUMENTS prints, of a command that reads no stack file."""
        return self._call([name, self.name, *arguments]).stdout

    def findings(self) -> dict[str, dict[str, str]]:
        """What ./hpc status finds wrong: for each id, what it says of each machine, by its name in the cluster."""
        found = json.loads(self._call(["status", self.name, "--json"], check=False).stdout)["findings"]
        said: dict[str, dict[str, str]] = {}
        for one in found:
            machines = [name.removeprefix(f"{self.name}-") for name in one["where"]]
            for name in machines:
                told = said.setdefault(one["id"], {})
                told[name] = f"{told[name]}; {one['what']}" if name in told else one["what"]
        return said

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """./hpc with these words, however it ends."""
        return self._call(list(words), check=False)

    def _call(
        self, arguments: list[str], *, check: bool = True, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(ROOT / "hpc"), *arguments],
            env=self.env, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"./hpc {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stdout + done.stderr
        assert "\x1b[" not in done.stdout, "a pipe got colour codes"
        return done


def eventually(test: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait until `test()` is true."""
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, f"{what} did not come true within {seconds} s"
        time.sleep(0.3)


def free(name: str) -> str:
    """A network that nobody on this host uses, another one for each name and each process of a run."""
    start, here = sum(name.encode()) + os.getpid(), 4 * (os.getpid() % 64)
    for n in range(90):
        network = ipaddress.IPv4Network(f"10.{100 + (start + n) % 90}.{here}.0/22")
        if bridge.taken_by(network, but="") is None:
            return str(network)
    raise AssertionError("every network of 10.100 to 10.189 is in use on this host")
