"""Commands to slurmctld, run on the controller: list nodes and jobs, set states, reboot."""

import re
import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cli import console
from cli.access import remote
from cli.cluster.cluster import Cluster
from cli.errors import CliError, hint
from scripts.node.slurm import jobs, nodes
from scripts.node.slurm.hostlist import compress
from scripts.node.slurm.jobs import Job
from scripts.node.slurm.nodes import Node, select

_SECONDS = 60
"""Time limit of a command: slurmctld's own timeout (MessageTimeout) is 30."""
_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_ABSENT_SECONDS = 120.0
"""Time for which a wait goes on without an answer of the controller: it may be busy, or slurmctld restarts."""


@dataclass(frozen=True)
class Scheduler:
    """Runs commands of Slurm on the controller of a cluster that is up."""

    cluster: Cluster

    def nodes(self) -> dict[str, Node]:
        """Return every node with the jobs on it, in slurmctld's order.

        Raises:
            CliError: slurmctld does not answer.
        """
        mark = secrets.token_hex(8)
        list_nodes = shlex.join(nodes.COMMAND)
        list_jobs = shlex.join(jobs.command(mark, "--all", f"--states={jobs.HOLDING}"))
        text, _, queue = self.run(f"{list_nodes} && echo {mark} && {list_jobs}").partition(f"{mark}\n")
        return nodes.parse(text, jobs.parse(queue, mark))

    def nodes_with_retries(self) -> dict[str, Node]:
        """Return every node as `nodes` does, but try again while the controller does not answer.

        Raises:
            CliError: there was no answer for two minutes.
        """
        deadline, printed = time.monotonic() + _ABSENT_SECONDS, ""
        while True:
            try:
                return self.nodes()
            except CliError as error:
                if time.monotonic() > deadline:
                    raise
                if str(error) != printed:
                    printed = str(error)
                    console.note(f"{printed}; asking again ...")
            time.sleep(_PAUSE)

    def find_nodes(self, hostlists: Sequence[str]) -> list[Node]:
        """Return the nodes in host lists, whose names may lack the cluster's name in front.

        Raises:
            CliError: a host list is not valid, or there are no such nodes: all of them, each with the nearest name.
        """
        nodes = self.nodes()
        try:
            named, unknown = select(hostlists, nodes, self.cluster.name)
        except ValueError as error:
            raise CliError(str(error)) from None
        if unknown:
            known = f"There are: {compress(nodes)}." if nodes else "It has none."
            raise CliError("\n".join([*(_unknown_node(self.cluster.name, name, nodes) for name in unknown), known]))
        return named

    def set(self, nodes: Iterable[Node | str], state: str, reason: str = "") -> None:
        """Set the state of nodes, with a reason if one is given.

        Raises:
            CliError: slurmctld refused; with its error.
        """
        names = compress(node if isinstance(node, str) else node.name for node in nodes)
        words = ["scontrol", "update", f"NodeName={names}", f"State={state}", *([f"Reason={reason}"] if reason else [])]
        self.run(shlex.join(words))

    def resume(self, names: Sequence[str]) -> None:
        """Resume nodes. Nodes that slurmctld has meanwhile resumed by itself are skipped.

        Raises:
            CliError: slurmctld refused one that is still drained or down; with its error.
        """
        try:
            self.set(names, "RESUME")
        except CliError:
            # slurmctld refuses to resume a node in service, such as one that was down and has just registered.
            nodes = self.nodes()
            held = [name for name in names if name in nodes and nodes[name].held]
            if held:
                self.set(held, "RESUME")

    def has_reboot_program(self) -> bool:
        """Return whether slurm.conf has a RebootProgram; a cluster of an earlier version has none until its next `up`.

        Raises:
            CliError: slurmctld does not answer.
        """
        match = re.search(r"^RebootProgram\s*= *(.*)$", self.run("scontrol show config"), re.MULTILINE)
        return match is not None and match[1].startswith("/")

    def reboot(self, names: Sequence[str], reason: str = "") -> None:
        """Have slurmctld reboot nodes as soon as nothing runs on them, and resume them.

        Without a reason, drained nodes stay drained, with their reason.

        Raises:
            CliError: slurmctld refused; with its error.
        """
        asap = ["ASAP", "nextstate=RESUME", f"reason={reason}"] if reason else []
        self.run(shlex.join(["scontrol", "reboot", *asap, compress(names)]))

    def requeue(self, jobs: Iterable[Job]) -> None:
        """Requeue jobs; cancel those that can't be requeued."""
        for job in jobs:
            number = shlex.quote(job.id)
            self.run(f"scontrol requeue {number} 2>/dev/null || scancel {number}")

    def run(self, line: str, *, seconds: float = _SECONDS) -> str:
        """Run a line as root on the controller, and return its standard output.

        Raises:
            CliError: it failed, or the controller does not answer.
        """
        return remote.output(self.cluster.controller, self.cluster.admin_key, line, seconds=seconds)

    def wait(
        self,
        names: Iterable[str],
        done: Callable[[Node], bool],
        *,
        describe: Callable[[list[Node]], str],
        seconds: float | None = None,
    ) -> list[Node]:
        """Wait until `done` is true of all these nodes, or for so many seconds. Returns the nodes of which it is not.

        `describe` returns the text about pending nodes, which is printed whenever it changes.
        """
        names = list(names)
        start, printed, pause = time.monotonic(), "", _PAUSE
        while True:
            nodes = self.nodes_with_retries()
            # A node that slurmctld no longer has is not waited for.
            pending = [nodes[name] for name in names if name in nodes and not done(nodes[name])]
            if not pending or (seconds is not None and time.monotonic() - start > seconds):
                return pending
            text = describe(pending)
            if text != printed:
                console.note(text)
                printed = text
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 1.2)


def busy_lines(nodes: Iterable[Node]) -> list[str]:
    """Return a line for each running job on these nodes."""
    return [f"  {node.name}: {job}" for node in nodes for job in node.busy]


def _unknown_node(cluster: str, name: str, nodes: Mapping[str, Node]) -> str:
    return f"cluster {cluster} has no node {name!r}.{hint(name, nodes) or hint(f'{cluster}-{name}', nodes)}"
