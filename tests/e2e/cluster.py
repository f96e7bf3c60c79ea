"""A cluster as its user has it: a stack file, and the ./hpc command."""

import copy
import ipaddress
import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import yaml

from cli.access.ssh import shell_line
from cli.cluster.cluster import Cluster as There
from cli.cluster.cluster import from_outputs
from components.local.host import bridge
from components.local.host.machine import bare, running, stop
from components.local.host.namespaces import AS_ROOT, command, inside
from components.local.host.paths import MachinePaths, images_root
from tests.e2e.forked import PASSPHRASE, Program
from tests.waiting import PATIENCE, patience

ROOT = Path(__file__).parents[2]
LONG = 1800.0
"""Seconds that a command of ./hpc may take: some take minutes alone."""
LATE = ("--timeout", "60")
"""Of `status` and `drift`: machines of a busy host answer late, which would be a finding."""
BASE = "debian-13"
"""What clusters run unless they say otherwise; some say debian-12, so that both releases of Slurm are seen at work."""


class Cluster:
    """One stack with a state of its own. `edit` changes its file; nothing else is changed behind ./hpc's back."""

    def __init__(self, name: str, *, program: Program, home: Path, root: Path, sections: dict[str, Any]) -> None:
        self.name = name
        self._program = program
        self.root = root
        self.file = home / f"Pulumi.{name}.yaml"
        self.config: dict[str, Any] = {
            "platform": "local",
            "name": name,
            "network": {"cidr": free(name)},
            "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
            "users": [{"name": "alice", "uid": 2001}],
            **sections,
            "image": {"base": BASE, **sections.get("image", {})},
        }
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "HPC_"))}
        self._read, self._outputs = (0, 0, 0), dict[str, Any]()
        self.env = {
            **inherited,
            "HPC_HOME": str(home),
            "HPC_ENGINE": "embedded",
            "HPC_LOCAL_IMAGES": str(images_root()),
            "HPC_LOCAL_ROOT": str(root),
        }
        self._programs: dict[tuple[str, str], subprocess.Popen[str]] = {}
        self.settings: dict[str, str] = {}
        """Settings of the file beside hpc:cluster."""
        passphrase = home / "passphrase"
        passphrase.touch(mode=0o600)
        passphrase.write_text(f"{PASSPHRASE}\n")
        self._write()

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Let `change` alter the configuration in place, and write the file."""
        change(self.config)
        self._write()

    def copy(self) -> dict[str, Any]:
        """The configuration now, to go back to."""
        return copy.deepcopy(self.config)

    def revert(self, config: dict[str, Any]) -> None:
        """Go back to a configuration."""
        self.config = copy.deepcopy(config)
        self._write()

    def _write(self) -> None:
        self.file.write_text(yaml.safe_dump({"config": {**self.settings, "hpc:cluster": self.config}}))

    def hpc(
        self, command: str, *arguments: str, check: bool = True, timeout: float = LONG
    ) -> subprocess.CompletedProcess[str]:
        """./hpc COMMAND NAME --config-file FILE ARGUMENTS, without a terminal."""
        return self._call(
            [command, self.name, "--config-file", str(self.file), *arguments], check=check, timeout=timeout
        )

    def run(self, *words: str, user: str | None = None, check: bool = True) -> str:
        """What a command prints that a user runs on the login machine."""
        there = self._there()
        return self.inside(there.login, shell_line(there.user(user), words, terminal=False), check=check)

    def inside(self, machine: str, script: str, *, check: bool = True) -> str:
        """What a shell script prints that root runs on a machine.

        It enters the machine's namespaces: a process of `./hpc ssh` takes 0.6 s of a processor.
        """
        return inside(self._paths(machine), script, check=check)

    def answer(self, machine: str, program: str, question: str) -> str:
        """The line with which a Python program answers another one. It runs on a machine, as root, from the first
        question on: to start it for each takes a tenth of a second of a processor."""
        process = self._programs.get((machine, program))
        if process is None or process.poll() is not None:
            words = command(self._paths(machine), f"exec python3 -c {shlex.quote(program)}")
            # systemd stops all processes as it ends, and nsenter with them: this one ends with the tests.
            words = ["setpriv", "--pdeathsig", "KILL", *words]
            process = subprocess.Popen(words, env=AS_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._programs[machine, program] = process
        with suppress(BrokenPipeError):
            print(question, file=process.stdin, flush=True)
        if not (line := process.stdout.readline() if process.stdout else ""):
            raise RuntimeError(f"{self.name}-{machine}: the program has ended")
        return line

    def _paths(self, machine: str) -> MachinePaths:
        there = self._there()
        return bare(self.root, there.name, there.target(machine).name).paths

    def _there(self) -> There:
        return from_outputs(self.name, self.outputs())

    def submit(self, script: str, *options: str, user: str | None = None) -> str:
        """The number of a new job of a user's."""
        words = ["sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *options, "--wrap", script]
        return self.run(*words, user=user)

    def job(self, script: str, *options: str, user: str | None = None) -> str:
        """The number of a new job of a user's, which runs."""
        number = self.submit(script, *options, user=user)
        eventually(lambda: self.state(number) == "RUNNING", what=f"the start of job {number}")
        return number

    def state(self, number: str) -> str:
        """A job's state, as squeue has it; empty once slurmctld has forgotten it."""
        return self.inside(
            "controller", f"squeue --noheader --states=all --jobs={number} --format=%T 2>/dev/null; true"
        )

    def start(self, *words: str, out: IO[bytes] | int = subprocess.PIPE) -> "subprocess.Popen[str]":
        """./hpc with these words, which runs on; standard error goes where standard output does."""
        command = ["setpriv", "--pdeathsig", "KILL", str(ROOT / "hpc"), *words]
        return subprocess.Popen(
            command, env=self.env, text=True, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )

    def reachable(self, machine: str) -> bool:
        """Whether a machine lets root in."""
        return self._call(["ssh", self.name, machine, "--", "true"], check=False).returncode == 0

    def log_in(self, user: str, key: Path, machine: str, command: str, *, display: str = "") -> str:
        """What ssh prints when a user logs in from outside, with a key of their own and the machine's pinned one.

        With `display`, X11 of what runs there comes back to that one.
        """
        program = ["ssh", *(["-Y"] if display else [])]
        done = subprocess.run(
            [*program, *self._as_user(key, machine), f"{user}@{self._address(machine)}", command],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
            env={**os.environ, "DISPLAY": display},
        )  # fmt: skip
        return done.stdout + done.stderr

    def sftp(self, user: str, key: Path, machine: str, commands: str) -> subprocess.CompletedProcess[str]:
        """What becomes of commands that a user gives to sftp, as scp and editors do, up to the first that fails."""
        return subprocess.run(
            ["sftp", "-q", "-b", "-", *self._as_user(key, machine), f"{user}@{self._address(machine)}"],
            input=commands, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip

    def _address(self, machine: str) -> str:
        return str(self.outputs()["machines"][f"{self.name}-{machine}"]["address"])

    def _as_user(self, key: Path, machine: str) -> list[str]:
        """Options of ssh and sftp: a user's own key, and the machine's pinned one."""
        known = self.file.with_name("known_hosts")
        pinned = self.outputs()["machines"][f"{self.name}-{machine}"]["host_key"]
        known.write_text(f"{self._address(machine)} {pinned}\n")
        options = ["BatchMode=yes", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={known}", "IdentitiesOnly=yes"]
        return ["-F", "none", "-i", str(key), *(word for option in options for word in ("-o", option))]

    def runs(self, machine: str) -> bool:
        """Whether a machine runs."""
        return running(bare(self.root, self.name, f"{self.name}-{machine}").paths) is not None

    def cut_power(self, machine: str) -> None:
        """End a machine as a power failure does; its disk stays."""
        stop(bare(self.root, self.name, f"{self.name}-{machine}"), orderly=False)

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs, from its state; secrets are encrypted.

        They are kept for as long as the state is the same: to read its two megabytes takes longer than most commands.
        """
        file = self.file.parent / f".pulumi/stacks/hpc/{self.name}.json"
        version = file.stat()
        if (there := (version.st_ino, version.st_mtime_ns, version.st_size)) != self._read:
            rows = json.loads(file.read_text())["checkpoint"]["latest"]["resources"]
            self._outputs = next(row["outputs"] for row in rows if row["type"] == "pulumi:pulumi:Stack")
            self._read = there
        return self._outputs

    def boots(self) -> dict[str, str]:
        """For each machine a word that changes with every boot."""
        return {name: self.inside(name, "cat /run/hpc/boot-id") for name in self.outputs()["machines"]}

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
        named: dict[str, dict[str, str]] = {}
        for finding in found:
            for machine in finding["where"]:
                texts = named.setdefault(finding["id"], {})
                name = machine.removeprefix(f"{self.name}-")
                texts[name] = f"{texts[name]}; {finding['what']}" if name in texts else finding["what"]
        return named

    def said(self, *words: str, code: int = 0) -> str:
        """What ./hpc COMMAND STACK ... prints, on both streams, when it ends with this code."""
        command = 2 if words[0] == "accounting" else 1
        done = self.call(*words[:command], self.name, *words[command:])
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """./hpc with these words, however it ends."""
        return self._call(list(words), check=False)

    def _call(
        self, arguments: list[str], *, check: bool = True, timeout: float = LONG
    ) -> subprocess.CompletedProcess[str]:
        if arguments[0] in {"status", "drift"}:
            arguments = [*arguments, *LATE]
        done = self._program.run(arguments, self.env, timeout)
        assert not check or done.returncode == 0, f"./hpc {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stdout + done.stderr
        assert "\x1b[" not in done.stdout, "a pipe got colour codes"
        return done


def eventually(test: Callable[[], bool], *, what: str) -> None:
    """Wait until `test()` is true. The longer it takes the less often it is tried, and a test that takes long is tried
    a third of the time at most: one costs 0.1 to 2 s of a processor. One that fails is tried again as well: on a busy
    host a daemon or a machine may not answer in time."""
    began = asked = time.monotonic()
    while True:
        failed: Exception | None = None
        try:
            if test():
                return
        except (AssertionError, LookupError, RuntimeError) as error:
            failed = error
        answered = time.monotonic()
        waited = answered - began
        if waited > patience():
            raise AssertionError(f"{what} did not come true within {waited:.0f} s") from failed
        time.sleep(min(max(0.3, 2 * (answered - asked), waited / 10), 5.0))
        asked = time.monotonic()


def free(name: str) -> str:
    """A network that nobody on this host uses, another one for each name and each process of a run."""
    start, here = sum(name.encode()) + os.getpid(), 4 * (os.getpid() % 64)
    for n in range(90):
        network = ipaddress.IPv4Network(f"10.{100 + (start + n) % 90}.{here}.0/22")
        if bridge.taken_by(network, but="") is None:
            return str(network)
    raise AssertionError("every network of 10.100 to 10.189 is in use on this host")
