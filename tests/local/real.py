"""A stack of real machines for tests, made through the same providers that a program uses."""

import ipaddress
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulumi.dynamic import DiffResult

from components.local.resources import MachineProvider, NetworkProvider, SharedFolderProvider
from tests import programs

ADMIN = "/root/.ssh/authorized_keys"


@dataclass
class RealStack:
    """A network, a shared folder and machines `m0`, `m1` ..., with the state that an engine would keep of them."""

    root: Path
    images: Path
    digest: str
    name: str
    cidr: ipaddress.IPv4Network
    key: Path
    state: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Outputs of each machine."""
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    claims: dict[str, dict[str, Any]] = field(default_factory=lambda: {"network": {}, "shared": {}})

    @classmethod
    def keygen(cls, folder: Path) -> Path:
        """A key for root's logins; its public half lies beside it."""
        key = folder / "admin"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        return key

    def address(self, machine: str) -> str:
        """Address of `m0`, `m1` ..."""
        return str(self.cidr[2 + int(machine[1:])])

    def network(self, machines: int = 2) -> dict[str, Any]:
        """The network: its inputs, and the claim to it."""
        hosts = {f"m{n}": self.address(f"m{n}") for n in range(machines)}
        return {
            "root": str(self.root), "stack": self.name, "owner": f"test/{self.name}", "cidr": str(self.cidr),
            "gateway": str(self.cidr[1]), "hosts": hosts,
            **self.claims["network"],
        }  # fmt: skip

    @property
    def shared(self) -> dict[str, Any]:
        """The shared folder: its inputs, and the claim to it."""
        inputs = {"root": str(self.root), "stack": self.name, "folder": "home", "mode": "0755", "gid": 0.0}
        return {**inputs, **self.claims["shared"]}

    def lay(self, what: str, outs: Mapping[str, Any] | None) -> None:
        """Keep the claim that a creation returned."""
        assert outs is not None
        self.claims[what] = {"claim": outs["claim"]}

    def machine(self, name: str, **changes: Any) -> dict[str, Any]:
        """Inputs of a machine."""
        return {
            "root": str(self.root), "images": str(self.images), "stack": self.name, "name": name,
            "address": self.address(name), "prefix": float(self.cidr.prefixlen), "image": self.digest,
            "authorized_keys": self.key.with_suffix(".pub").read_text(), "files": {}, "os_release": "", "devices": [],
            "orderly": False, **changes,
        }  # fmt: skip

    def up(self, *machines: Mapping[str, Any]) -> None:
        """Make the network and the folder, then the machines side by side."""
        self.lay("network", NetworkProvider().create(self.network()).outs)
        self.lay("shared", SharedFolderProvider().create(self.shared).outs)
        with ThreadPoolExecutor() as pool:
            for props, made in zip(machines, pool.map(MachineProvider().create, map(dict, machines)), strict=True):
                assert made.outs is not None
                self.state[made.outs["name"]], self.inputs[made.outs["name"]] = made.outs, dict(props)

    def update(self, name: str, **changes: Any) -> dict[str, Any]:
        """Update a machine as an engine does; returns its new state."""
        self.inputs[name] |= changes
        diff = self.diff(name)
        assert diff.changes, "nothing to update"
        assert not diff.replaces
        self.state[name] = MachineProvider().update("id", self.state[name], self.inputs[name]).outs or {}
        return self.state[name]

    def diff(self, name: str) -> DiffResult:
        """Compare a machine with its inputs, as an engine does."""
        return MachineProvider().diff("id", self.state[name], self.inputs[name])

    def down(self) -> None:
        """Remove all, in an engine's order."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda props: MachineProvider().delete("id", props), self.state.values()))
        self.state.clear()
        SharedFolderProvider().delete("id", self.shared)
        NetworkProvider().delete("id", self.network())

    def ssh(self, name: str, command: str) -> str:
        """Run a command as root over SSH, trusting only the machine's own host key."""
        known = self.root / f"known-{self.name}-{name}"
        known.write_text(f"{self.address(name)} {self.state[name]['host_key']}\n")
        done = programs.run([
                "ssh", "-F", "none", "-i", str(self.key), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes",
                "-o", f"UserKnownHostsFile={known}", "-o", "GlobalKnownHostsFile=none", "-o", "ConnectTimeout=60",
                f"root@{self.address(name)}", command,
            ])  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
