"""The environment of a case: a root for its machines, a state dir, clusters, and commands that end with it."""

import copy
import ipaddress
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench.machines import BASE
from components.local.host import bridge, network
from components.local.host.paths import images_root

ROOT = Path(__file__).resolve().parent.parent
DEV: Mapping[str, Any] = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]["hpc:cluster"]
PLACE = Path("/var/tmp/hpc-bench")  # noqa: S108 - root's own folder, made on use; layers must lie on a disk
_STREAMS = ("stdin", "stdout", "stderr")
_GRACE = 30.0
"""Seconds that an interrupted command has to end by itself."""


class CommandError(Exception):
    """A command of a case failed; the text has the end of what it printed."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The place, the commands and the progress that the cases of one run share."""

    root: Path
    quick: bool
    """Fewer rounds and smaller clusters: to see that all works, not how fast."""
    say: Callable[[str], None]
    running: set["subprocess.Popen[str]"] = field(default_factory=set)
    """Commands at work."""

    def rounds(self, full: int) -> range:
        """The rounds of a case: one if it is to be quick."""
        return range(1 if self.quick else full)

    def pick(self, full: Sequence[int], quick: Sequence[int]) -> Sequence[int]:
        """The sizes of a case."""
        return quick if self.quick else full

    @property
    def env(self) -> dict[str, str]:
        """The environment of `./hpc` here: nothing of the user's own settings."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PULUMI_", "HPC_"))}
        return {
            **inherited,
            "HPC_HOME": str(self.root / "home"),
            "HPC_ENGINE": "embedded",
            "HPC_LOCAL_ROOT": str(self.root),
            "HPC_LOCAL_IMAGES": str(images_root()),
        }

    def sweep(self, name: str) -> None:
        """Remove all of a cluster, whatever made it, its state included; not part of any time that is measured."""
        network.sweep(self.root, name)
        for file in (self.root / "home/.pulumi").rglob(f"{name}.json*"):
            file.unlink()

    def call(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, given: str = "") -> str:
        """Run a command to its end; what it printed on standard output.

        Raises:
            CommandError: it failed.
        """
        return self.timed(command, env=env, given=given)[1]

    def timed(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, given: str = ""
    ) -> tuple[float, str]:
        """Run a command as `call` does; the seconds that it took, and its output."""
        began = time.perf_counter()
        # A session of its own: a Ctrl-C in the terminal is ours to pass on. If we are killed it gets SIGTERM as well.
        guarded = ["setpriv", "--pdeathsig", "TERM", *command]
        pipes: dict[str, Any] = dict.fromkeys(_STREAMS, subprocess.PIPE)
        own = {**self.env, **(env or {})}
        with subprocess.Popen(guarded, cwd=ROOT, env=own, text=True, start_new_session=True, **pipes) as process:
            self.running.add(process)
            try:
                out, err = process.communicate(given)
            except BaseException:
                _end(process)
                raise
            finally:
                self.running.discard(process)
        took = time.perf_counter() - began
        if process.returncode:
            tail = "\n".join((out + err).strip().splitlines()[-15:])
            raise CommandError(f"{' '.join(command)} failed ({process.returncode}):\n{tail}")
        return took, out


def _end(process: "subprocess.Popen[str]") -> None:
    """Interrupt a command and let it end; kill it if it does not."""
    try:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=_GRACE)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def environment(*, quick: bool, say: Callable[[str], None]) -> Iterator[Environment]:
    """An environment that is swept at the end; what killed runs left of theirs is swept first."""
    with network.own_root(PLACE, "bench") as root:
        here = Environment(root=root, quick=quick, say=say)
        try:
            yield here
        finally:
            for process in tuple(here.running):
                _end(process)


def sized(nodes: int) -> dict[str, Any]:
    """Sections of a cluster with a login machine and one partition of so many nodes."""
    return {
        "nodesets": {"cpu": {"count": nodes}},
        "partitions": {"every": {"nodesets": ["cpu"], "default": True}},
        "users": [{"name": "alice", "uid": 2001}],
    }


class Cluster:
    """A stack of the bench."""

    def __init__(self, name: str, environment: "Environment", sections: Mapping[str, object]) -> None:
        self.name, self._call = name, environment.call
        self.file = environment.root / f"files/Pulumi.{name}.yaml"
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
        self._call([str(ROOT / "hpc"), command, self.name, "--config-file", str(self.file), *arguments])
        return time.perf_counter() - began

    def asked(self, command: str, *arguments: str) -> float:
        """Run `./hpc COMMAND`, which reads no stack file, for this stack; the seconds it took."""
        began = time.perf_counter()
        self._call([str(ROOT / "hpc"), command, self.name, *arguments])
        return time.perf_counter() - began

    def shell(self, machine: str, script: str) -> str:
        """Run a shell script as root on a machine; its output."""
        return self._call([str(ROOT / "hpc"), "ssh", self.name, machine, "--", "sh", "-s"], given=script).strip()


class ManualCluster:
    """A cluster like `dev`, set up by by-hand.sh. `down` removes it, whatever there is of it."""

    def __init__(self, environment: "Environment") -> None:
        self._environment = environment
        self._arguments = [str(environment.root), "hand", free_network("hand")]

    def up(self) -> float:
        """Make it; the seconds it took."""
        return self._call("up")

    def down(self) -> None:
        self._call("down")

    def _call(self, action: str) -> float:
        script = str(Path(__file__).with_name("by-hand.sh"))
        return self._environment.timed([script, action, *self._arguments], env={"PYTHON": sys.executable})[0]


def free_network(name: str) -> str:
    """Addresses that nobody on this host uses, others for each name."""
    blocks = list(ipaddress.IPv4Network("172.16.0.0/12").subnets(new_prefix=20))
    start = os.getpid() + sum(name.encode())
    free = (
        block for n in range(len(blocks)) if not bridge.taken_by(block := blocks[(start + n) % len(blocks)], but="")
    )
    return str(next(free))
