"""The cluster of by-hand.sh."""

import sys
from pathlib import Path

from bench.cluster import free_network
from bench.environment import Environment

SCRIPT = Path(__file__).with_name("by-hand.sh")


class ManualCluster:
    """A cluster like `dev`, set up by the script. `down` removes it, whatever there is of it."""

    def __init__(self, environment: Environment, name: str = "hand") -> None:
        self._environment, self.name = environment, name
        self._arguments = [str(environment.root), name, free_network(name)]

    def up(self) -> float:
        """Make it; the seconds it took."""
        return self._call("up")

    def down(self) -> None:
        """Remove it."""
        self._call("down")

    def shell(self, machine: str, script: str) -> str:
        """What a shell script prints that root runs on a machine."""
        work = self._environment.root / f"{self.name}-manual"
        lines = (line.split() for line in (work / "machines").read_text().splitlines())
        address = next(fields[1] for fields in lines if fields[0] == f"{self.name}-{machine}")
        options = [f"UserKnownHostsFile={work}/known_hosts", "BatchMode=yes", "LogLevel=ERROR"]
        ssh = ["ssh", "-F", "none", "-i", str(work / "key"), *(word for one in options for word in ("-o", one))]
        return self._environment.call([*ssh, f"root@{address}", "sh -s"], given=script).strip()

    def _call(self, action: str) -> float:
        return self._environment.timed([str(SCRIPT), action, *self._arguments], env={"PYTHON": sys.executable})[0]
