"""Machines for pods: a local stack with the same host names, nodes and partitions, which `./hpc up` brings up."""

import ipaddress
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from cluster.catalog import MACHINE_TYPES
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import MEMBER, patterns
from cluster.config.partitions import Partition
from cluster.config.section import Slurm, metadata, slurm_fields
from cluster.findings import ROOT, ConfigError, Location
from cluster.load import parse
from cluster.platforms.local.address_plan import plan
from cluster.platforms.local.rehearsal import candidates
from components.local.host.network import taken_by
from components.local.host.paths import HostError, StackPaths, host_root
from components.local.host.process import Process
from hostfiles import write_atomically
from lab.soperator import jail
from lab.soperator.names import CONTROLLER_POD
from lab.soperator.pods import ACCOUNTING, LOGIN, machine_of
from lab.soperator.spec import ClusterSpec, State, Workers

STACK = "machines"
"""Name of the stack, in a state folder of its own."""
_HPC = Path(__file__).parents[2] / "cli"
_RETRY_SECONDS = 10.0
_NETWORKS = 200
"""Number of networks that are tried."""
_ROOM = 20
"""Prefix length of the machines' network: 510 pods of each nodeset."""
_LOGS = {
    "slurmctld": {"file": "/var/log/slurm/slurmctld.log"},
    "slurmd": {"file": "/var/log/slurm/slurmd.log"},
    "slurmdbd": {"file": "/var/log/slurm/slurmdbd.log"},
    "sshd": {"unit": "ssh"},
    "munge": {"unit": "munge"},
}
"""The place of each container's log in its machine, for the stand-in kubelet."""


class LocalMachines:
    """The machines of one SlurmCluster. Their state is in the folder, so that another process can continue."""

    def __init__(self, folder: Path, report: Callable[[str], None] = lambda _text: None) -> None:
        self._folder, self._report = folder, report
        self._child: subprocess.Popen[bytes] | None = None
        self._doing = self._problem = self._said = ""
        self._again = 0.0
        self._asked: tuple[ClusterSpec, Mapping[str, str]] | None = None
        """The spec and pods of the stack file `_text`."""
        self._text = ""
        self._accounts = jail.Accounts()

    @property
    def table(self) -> Path:
        """The pods and their machines, for the kubelet."""
        return self._folder / "pods.json"

    def ensure(self, spec: ClusterSpec, pods: Mapping[str, str]) -> State:
        """Start what brings these machines up: see Machines."""
        if CONTROLLER_POD not in pods or not spec.workers:
            return State(busy=f"waiting for {'NodeSets' if CONTROLLER_POD in pods else 'a node for the controller'}")
        self._collect()
        if self._asked != (spec, pods):
            try:
                section, lost = local_section(spec, pods, cidr=self._cidr(spec.name))
            except (ConfigError, HostError) as error:
                return State(problem=f"no local stack can stand for it: {error}")
            self._report_lost(lost)
            self._text, self._asked = json.dumps({"config": {ROOT: section}}, indent=1), (spec, pods)
        applied = self._section(self._applied)
        every = _addresses(json.dumps(applied)) if applied else {}
        running = {name: first for name in every if (first := _first(applied["name"], name))}
        if (
            self._child is None
            and time.monotonic() >= self._again
            and (set(every) != set(running) or not applied or self._applied.read_text() != self._text)
        ):
            write_atomically(self._file, self._text)
            self._start("up")
        addresses = {name: address for name, address in every.items() if name in running}
        self._serve(spec, running)
        self._accounts.share(running, spec.root_keys, spec.node_port if spec.service_type == "NodePort" else 0)
        return State(addresses=addresses, busy=self._doing, problem=self._problem)

    def remove(self) -> bool:
        """Start the destroy of the stack; return True when nothing is left of it."""
        if self._child is not None and self._doing != "destroy":
            self._child.send_signal(signal.SIGINT)
            self._child.wait()
            self._child = None
        self._collect()
        if not self._file.exists():
            return True
        if self._child is None and time.monotonic() >= self._again:
            self._start("destroy")
        return False

    @property
    def _file(self) -> Path:
        return self._folder / f"Pulumi.{STACK}.yaml"

    @property
    def _applied(self) -> Path:
        """The stack file of the last `up` that succeeded."""
        return self._folder / "applied.json"

    def _start(self, command: str) -> None:
        """Start `./hpc COMMAND` for the stack; the kernel ends it with the operator."""
        guard = [setpriv, "--pdeathsig", "INT", "--"] if (setpriv := shutil.which("setpriv")) else []
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PULUMI_")}
        with (self._folder / f"{command}.log").open("wb") as log:
            self._child = subprocess.Popen(
                [
                    *guard, sys.executable, str(_HPC), command, STACK, f"--config-file={self._file}", "--yes",
                    "--engine=embedded",
                ],
                env={**kept, "HPC_HOME": str(self._folder / "home")},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self._folder,
            )  # fmt: skip
        self._doing = command
        self._report(f"machines: {command} begins")

    def _collect(self) -> None:
        """Handle the end of the running command, if it has ended."""
        if self._child is None or self._child.poll() is None:
            return
        code, command = self._child.returncode, self._doing
        self._child, self._doing = None, ""
        if code:
            lines = (self._folder / f"{command}.log").read_text(errors="replace").strip().splitlines()
            self._problem = f"the machines' {command} failed: {' '.join(lines[-3:])[-500:]}"
            self._again, self._asked = time.monotonic() + _RETRY_SECONDS, None
            self._report(self._problem)
            return
        self._problem = ""
        self._report(f"machines: {command} is done")
        if command == "destroy":
            for path in (self._file, self._applied, self.table):
                path.unlink(missing_ok=True)
            shutil.rmtree(self._folder / "home", ignore_errors=True)
            self._asked = None
        else:  # if the file was changed meanwhile, the next command starts now
            write_atomically(self._applied, self._file.read_text())

    def _section(self, path: Path) -> Mapping[str, Any]:
        try:
            return json.loads(path.read_text())["config"][ROOT]
        except FileNotFoundError:
            return {}

    def _serve(self, spec: ClusterSpec, running: Mapping[str, Process]) -> None:
        """Write the kubelet's table of pods, if it differs."""
        paths = StackPaths(host_root(), spec.name)
        rows = {
            f"{spec.name}/{pod}": {
                "process": str(paths.machine(machine_of(pod)).run),
                "containers": {name: _LOGS[name] for name in (_container(pod), "munge")},
            }
            for pod in (*running, *([ACCOUNTING] if spec.accounting else []))
        }
        text = json.dumps(rows, indent=1)
        if not self.table.exists() or self.table.read_text() != text:
            write_atomically(self.table, text, mode=0o600)

    def _cidr(self, name: str) -> str:
        """Return the network of the machines, or a free one."""
        applied = self._section(self._applied)
        if applied and applied["name"] == name:
            return str(applied["network"]["cidr"])
        begun = self._section(self._file)
        first = [str(begun["network"]["cidr"])] if begun and begun["name"] == name else []
        every = (*first, *islice(candidates(_ROOM), _NETWORKS))
        networks = (network for network in every if taken_by(host_root(), name, ipaddress.IPv4Network(network)) is None)
        cidr = next(networks, None)
        if cidr is None:
            raise HostError("no private network is free on this machine")
        return cidr

    def _report_lost(self, lost: list[str]) -> None:
        text = "; ".join(lost)
        if text != self._said:
            self._said = text
            if text:
                self._report(f"left out of the machines: {text}")


@cache
def _addresses(section: str) -> Mapping[str, str]:
    """Return the addresses of a stack's machines; the stack is given as JSON."""
    return plan(parse({ROOT: json.loads(section)})).of


def _first(stack: str, machine: str) -> Process | None:
    """Return the first process of a machine, if it runs."""
    process = Process.load(StackPaths(host_root(), stack).machine(machine).run)
    if process is None or not process.alive():
        return None
    children = filter(None, map(Process.of, process.children()))
    return next((child for child in children if child.is_first_of_namespace()), None)


def _container(pod: str) -> str:
    if pod == CONTROLLER_POD:
        return "slurmctld"
    if pod == ACCOUNTING:
        return "slurmdbd"
    return "sshd" if pod.startswith(f"{LOGIN}-") else "slurmd"


BASE = "debian-13"
"""Operating system of the machines: its Slurm is the newest that local machines can have."""
SHARED = ("/home", "/opt/apps", "/var/mail")
"""Folders of the jail that machines share; all others are each machine's own."""
_UNKNOWN_TYPE = "local-2c"
"""Machine type of a nodeset whose own the catalog does not have."""
_SIZES = {"cpus": "CPUs", "sockets": "Sockets", "corespersocket": "CoresPerSocket", "threadspercore": "ThreadsPerCore"}
_MEBIBYTES = {"Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
_EVERYWHERE = frozenset({"state"})
"""Parameters of partitions that all local stacks have."""
_TRIES = 50

Section = dict[str, Any]


def local_section(spec: ClusterSpec, pods: Mapping[str, str], *, cidr: str) -> tuple[Section, list[str]]:
    """Return `hpc:cluster` of the stack, and a line for each setting of the SlurmCluster that it can't have.

    `pods` are the pods that have a node, with the machine type of the node, which may be empty.
    """
    nodesets = {worker.name: _nodeset(worker, pods) for worker in spec.workers}
    section: Section = {
        "platform": "local",
        "name": spec.name,
        "host_names": "pods",
        "network": {"cidr": cidr},
        "storage": {"shared": [*SHARED, *(mount for mount in spec.mounts if mount not in SHARED)]},
        "image": {"base": BASE},
        "login": {"count": _consecutive(pods, LOGIN, spec.login)},
        "nodesets": nodesets,
        "partitions": _partitions(spec, list(nodesets)),
        "slurm": {},
        "deletion_protection": False,
    }
    for name, value in _lines(spec.custom):
        _set(section, name, value)
    return section, list(_remove_unsupported(section))


def _nodeset(workers: Workers, pods: Mapping[str, str]) -> Section:
    words = {name.lower(): value for name, value in _words(workers.settings)}
    if "socketsperboard" in words:
        words["sockets"] = str(int(words["socketsperboard"]) * int(words.get("boards", 1)))
    conf = {written: int(words[key]) for key, written in _SIZES.items() if key in words}
    memory = _mebibytes(workers.memory)
    if memory:
        conf["RealMemory"] = memory
    kind = pods.get(f"{workers.name}-0", "")
    return {
        "count": _consecutive(pods, workers.name, workers.count),
        "machine_type": kind if kind in MACHINE_TYPES else _UNKNOWN_TYPE,
        **({"features": list(workers.features)} if workers.features else {}),
        **({"node_conf": conf} if conf else {}),
    }


def _consecutive(pods: Mapping[str, str], name: str, count: int) -> int:
    """Return the number of pods of a kind without a gap, because counts change at the end."""
    return next((index for index in range(count) if f"{name}-{index}" not in pods), count)


def _partitions(spec: ClusterSpec, nodesets: list[str]) -> dict[str, Section]:
    partitions = {name: _partition(text, nodesets) for name, text in spec.partitions}
    kept = {name: partition for name, partition in partitions.items() if partition["nodesets"]}
    defaults = [name for name, partition in kept.items() if partition.get("default")]
    for name, partition in kept.items():
        partition["default"] = name == (defaults or list(kept))[0]
    return kept


def _partition(text: str, nodesets: list[str]) -> Section:
    owned = {setting.parameter.lower(): (key, setting.written) for key, setting in slurm_fields(Partition)}
    section: Section = {"nodesets": nodesets}
    conf: dict[str, str] = {}
    for name, value in _words(text):
        key, written = owned.get(name.lower(), ("", {}))
        if key == "nodesets":
            section[key] = (
                nodesets if value.upper() == "ALL" else [word for word in value.split(",") if word in nodesets]
            )
        elif not key:
            conf.update({} if name.lower() in _EVERYWHERE else {name: value})
        elif written:
            section[key] = value.upper() in map(str, written.values())
        elif key.startswith("allow_"):
            section[key] = value.split(",")
        else:
            section[key] = int(value) if value.isdecimal() else value
    return {**section, **({"conf": conf} if conf else {})}


@cache
def _owners() -> Mapping[str, tuple[tuple[str, ...], Slurm, bool]]:
    """Return path and annotation of the field of each slurm.conf parameter (lower case), and if it is a list."""
    return {
        setting.parameter.lower(): (tuple(pattern.split(".")), setting, isinstance(_default(info), tuple))
        for pattern, info in patterns(ClusterConfig)
        if MEMBER not in pattern and (setting := metadata(info, Slurm))
    }


def _default(info: Any) -> Any:  # noqa: ANN401 - a field may be anything
    return info.get_default(call_default_factory=True, validated_data={})


def _set(section: Section, name: str, value: str) -> None:
    """Set a parameter of slurm.conf: by its field, else in `slurm.extra`."""
    if name.lower() not in _owners():
        section["slurm"].setdefault("extra", {})[name] = value
        return
    (*above, last), setting, is_list = _owners()[name.lower()]
    inner = section
    for step in above:
        inner = inner.setdefault(step, {})
    meaning = {str(written): given for given, written in setting.written.items()}
    plain = value.removeprefix(setting.form.partition("{}")[0])
    if is_list:
        inner[last] = plain.split(",")
    else:
        inner[last] = meaning.get(value, int(plain) if plain.isdecimal() else plain)


def _words(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of the `Name=value` words of a line of slurm.conf."""
    for word in text.split():
        name, equals, value = word.partition("=")
        if equals:
            yield name, value


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of the `Name=value` lines of slurm.conf."""
    for line in text.splitlines():
        name, equals, value = line.partition("#")[0].strip().partition("=")
        if equals and value.strip():
            yield name.strip(), value.strip()


def _mebibytes(quantity: str) -> int:
    match = re.fullmatch("([0-9]+)([KMGT]i)", quantity)
    return int(int(match[1]) * _MEBIBYTES[match[2]]) if match else 0


def _remove_unsupported(section: Section) -> Iterator[str]:
    """Remove settings that local machines can't have until the rest is valid; yield a line for each."""
    for _ in range(_TRIES):
        try:
            parse({ROOT: section})
        except ConfigError as error:
            removed = [
                finding for finding in error.findings if isinstance(finding.at, tuple) and _remove(section, finding.at)
            ]
            if not removed:
                raise
            yield from (f"{finding.where} = {finding.given} is left out: {finding.allowed}" for finding in removed)
        else:
            return


def _remove(section: Section, at: Location) -> bool:
    """Remove the value at a location, if there is one; a location in a list means the whole list."""
    *above, last = at
    inner: Any = section
    for position, step in enumerate(above):
        if isinstance(inner, list):
            return _remove(section, tuple(at[: position - 1]))
        if not isinstance(inner, dict) or step not in inner:
            return False
        inner = inner[step]
    if isinstance(inner, list):
        return _remove(section, tuple(above))
    return isinstance(inner, dict) and inner.pop(last, None) is not None
