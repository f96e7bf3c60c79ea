"""A cluster of a case: a stack file, and `./hpc` for it."""

import copy
import ipaddress
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import yaml

from bench.machines import BASE
from components.local.host import bridge

HPC = str(Path(__file__).resolve().parent.parent / "hpc")
DEV: Mapping[str, Any] = yaml.safe_load((Path(HPC).parent / "Pulumi.dev.yaml").read_text())["config"]["hpc:cluster"]


def sized(nodes: int) -> dict[str, Any]:
    """Sections of a cluster with a login machine and one partition of so many nodes."""
    return {
        "nodesets": {"cpu": {"count": nodes}},
        "partitions": {"every": {"nodesets": ["cpu"], "default": True}},
        "users": [{"name": "alice", "uid": 2001}],
    }


class Call(Protocol):
    """Runs a command; what it printed."""

    def __call__(self, command: list[str], *, given: str = "") -> str: ...


class Cluster:
    """One stack of a bench."""

    def __init__(self, name: str, *, folder: Path, sections: Mapping[str, object], call: Call) -> None:
        self.name, self._call = name, call
        self.file = folder / f"Pulumi.{name}.yaml"
        self.config: dict[str, Any] = copy.deepcopy({"platform": "local", **sections, "name": name})
        self.config["image"] = {"base": BASE}
        self.config["network"] = {"cidr": free_network(name)}
        self.write()

    def write(self) -> None:
        """Put the configuration into the stack file."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(yaml.safe_dump({"config": {"hpc:cluster": self.config}}))

    def hpc(self, command: str, *arguments: str) -> float:
        """Run `./hpc COMMAND` for this stack; the seconds it took."""
        began = time.perf_counter()
        self._call([HPC, command, self.name, "--config-file", str(self.file), *arguments])
        return time.perf_counter() - began

    def shell(self, machine: str, script: str) -> str:
        """What a shell script prints that root runs on a machine."""
        return self._call([HPC, "ssh", self.name, machine, "--", "sh", "-s"], given=script).strip()


def free_network(name: str) -> str:
    """Addresses that nobody on this host uses, others for each name."""
    blocks = list(ipaddress.IPv4Network("172.16.0.0/12").subnets(new_prefix=20))
    start = os.getpid() + sum(name.encode())
    free = (
        block for n in range(len(blocks)) if not bridge.taken_by(block := blocks[(start + n) % len(blocks)], but="")
    )
    return str(next(free))
