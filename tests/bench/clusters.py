"""The clusters of the bench, and the commands that are measured on them."""

import ipaddress
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml

from components.local.host import bridge, network
from components.local.host.paths import images_root

ROOT = Path(__file__).resolve().parents[2]
BASE = "debian-12"
"""The image of both sides of a comparison."""
T = TypeVar("T")


class Goal(NamedTuple):
    """A goal of a case: `value` is below `limit`."""

    what: str
    value: float
    limit: float
    unit: str = "s"

    @property
    def met(self) -> bool:
        return self.value < self.limit

    @property
    def outcome(self) -> str:
        return "met" if self.met else "MISSED"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median ratio of the rounds, so that a temporary load of the machine affects both sides."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


class Bench:
    """The place of the clusters of a run, and its commands."""

    def __init__(self, root: Path, *, quick: bool) -> None:
        """`quick` has one round and small clusters: a test that the cases work, without useful figures."""
        self.root, self._quick = root, quick

    def rounds(self, full: int) -> range:
        return range(1 if self._quick else full)

    def pick(self, full: T, quick: T) -> T:
        return quick if self._quick else full

    def call(self, *command: str, stdin: str = "", **variables: str) -> tuple[float, str]:
        """Run a command without the user's own settings; return the seconds that it took, and its standard output.

        Raises RuntimeError with the end of its output if it fails. It ends with this process.
        """
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PULUMI_", "HPC_"))}
        # Python stores what it compiles, as it does by default: else each command would compile this program.
        env |= {"PYTHONDONTWRITEBYTECODE": "", "HPC_ENGINE": "embedded", "HPC_HOME": str(self.root / "home")}
        env |= {"HPC_LOCAL_ROOT": str(self.root), "HPC_LOCAL_IMAGES": str(images_root()), **variables}
        began = time.perf_counter()
        done = subprocess.run(
            ["setpriv", "--pdeathsig", "TERM", *command],
            cwd=ROOT, env=env, text=True, capture_output=True, input=stdin, check=False,
        )  # fmt: skip
        took = time.perf_counter() - began
        if done.returncode:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
            raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}):\n{tail}")
        return took, done.stdout


class Cluster:
    """A stack of the bench."""

    def __init__(self, name: str, bench: Bench, /, **sections: Any) -> None:
        self.name, self._bench = name, bench
        self.file = bench.root / f"files/Pulumi.{name}.yaml"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        own = {"platform": "local", "name": name, "image": {"base": BASE}, "network": {"cidr": free_network(name)}}
        self.config: dict[str, Any] = {**sections, **own}

    def up(self) -> float:
        """Run `./hpc up` for its configuration; return the seconds that it took."""
        self.write()
        return self.hpc("up", "--config-file", str(self.file))

    def write(self) -> None:
        """Write its configuration to the stack file."""
        self.file.write_text(yaml.safe_dump({"config": {"hpc:cluster": self.config}}))

    def hpc(self, command: str, *arguments: str) -> float:
        """Run `./hpc COMMAND` for this stack; return the seconds that it took."""
        return self._bench.call(str(ROOT / "hpc"), command, self.name, *arguments)[0]

    def shell(self, machine: str, script: str) -> str:
        """Run a shell script as root on a machine; return its output."""
        command = [str(ROOT / "hpc"), "ssh", self.name, machine, "--", "sh", "-s"]
        return self._bench.call(*command, stdin=script)[1].strip()

    def remove(self) -> None:
        """Remove everything of it, its state included."""
        network.sweep(self._bench.root, self.name)
        for file in (self._bench.root / "home/.pulumi").rglob(f"{self.name}.json*"):
            file.unlink()


def sized(nodes: int) -> dict[str, Any]:
    """Return the sections of a cluster with a login machine and one partition of so many nodes."""
    return {
        "nodesets": {"cpu": {"count": nodes}},
        "partitions": {"every": {"nodesets": ["cpu"], "default": True}},
        "users": [{"name": "alice", "uid": 2001}],
    }


def free_network(name: str) -> str:
    """Return a network that nothing on this host uses, a different one for each name."""
    blocks = list(ipaddress.IPv4Network("172.16.0.0/12").subnets(new_prefix=20))
    start = (os.getpid() + sum(name.encode())) % len(blocks)
    return str(next(block for block in blocks[start:] + blocks[:start] if not bridge.taken_by(block, but="")))
