"""Commands to slurmctld, run on the controller: list nodes and jobs, set states, reboot."""

import difflib
import re
import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cli import console
from cli.access import remote
from cli.cluster.cluster import Cluster
from cli.errors import CliError
from cluster.observe.nodes import NODES, Job, Node, chosen, jobs_asked, parse_jobs, parse_nodes
from scripts.node.slurm.hostlist import compress

_SECONDS = 60
"""Time limit of slurmctld's answer: its own timeout (MessageTimeout) is 30."""
_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_ABSENT_SECONDS = 120.0
"""Time for which a wait goes on although the controller gives no answer: it may be busy, or slurmctld restarts."""


@dataclass(frozen=True)
class Scheduler:
    """slurmctld of a cluster that is up."""

    cluster: Cluster
    stack: str
    """The stack's name in commands."""

    def nodes(self) -> dict[str, Node]:
        """Every node with the jobs on it, in slurmctld's order.

        Raises:
            CliError: slurmctld does not answer.
        """
        mark = secrets.token_hex(8)
        nodes, _, jobs = self.run(f"{NODES} && echo {mark} && {jobs_asked(mark)}").partition(f"{mark}\n")
        return parse_nodes(nodes, parse_jobs(jobs, mark))

    def nodes_with_retries(self) -> dict[str, Node]:
        """Return what `nodes` does, while something is waited for: a controller that gives no answer is asked again.

        Raises:
            CliError: there was no answer for two minutes.
        """
        end, shown = time.monotonic() + _ABSENT_SECONDS, ""
        while True:
            try:
                return self.nodes()
            except CliError as error:
                if time.monotonic() > end:
                    raise
                if str(error) != shown:
                    shown = str(error)
                    console.note(f"{shown}; asking again ...")
            time.sleep(_PAUSE)

    def find_nodes(self, given: Sequence[str]) -> list[Node]:
        """The nodes that host lists name, with or without the cluster's name in front.

        Raises:
            CliError: a list is none, or names are of no node; all of them at once, each with the nearest.
        """
        nodes = self.nodes()
        try:
            found, unknown = chosen(given, nodes, self.cluster.name)
        except ValueError as error:
            raise CliError(str(error)) from None
        if unknown:
            there = f"There are: {compress(nodes)}." if nodes else "It has none."
            raise CliError("\n".join([*(_unknown_node(self.cluster.name, name, nodes) for name in unknown), there]))
        return found

    def set(self, nodes: Iterable[Node | str], state: str, reason: str = "") -> None:
        """Set the state of nodes, with a reason if one is given.

        Raises:
            CliError: slurmctld refused; with its error.
        """
        names = compress(node if isinstance(node, str) else node.name for node in nodes)
        words = ["scontrol", "update", f"NodeName={names}", f"State={state}", *([f"Reason={reason}"] if reason else [])]
        self.run(shlex.join(words))

    def resume(self, names: Sequence[str]) -> None:
        """Resume nodes; those that slurmctld has resumed by itself meanwhile are skipped.

        Raises:
            CliError: slurmctld refused one that is still drained or down; with its error.
        """
        try:
            self.set(names, "RESUME")
        except CliError:
            # It answers so for a node that is in service, as one is that was down and has just registered.
            now = self.nodes()
            held = [name for name in names if name in now and now[name].held]
            if held:
                self.set(held, "RESUME")

    def reboots(self) -> bool:
        """Return whether slurm.conf has a RebootProgram; a cluster of an earlier version has none until its next `up`.

        Raises:
            CliError: slurmctld does not answer.
        """
        found = re.search(r"^RebootProgram\s*= *(.*)$", self.run("scontrol show config"), re.MULTILINE)
        return found is not None and found[1].startswith("/")

    def reboot(self, names: Sequence[str], reason: str = "") -> None:
        """Have slurmctld reboot nodes as soon as nothing runs on them, and resume them.

        Without a reason, drained nodes stay drained, with their reason.

        Raises:
            CliError: slurmctld refused; with its error.
        """
        asap = ["ASAP", "nextstate=RESUME", f"reason={reason}"] if reason else []
        self.run(shlex.join(["scontrol", "reboot", *asap, compress(names)]))

    def end(self, jobs: Iterable[Job]) -> None:
        """Requeue jobs; cancel those that can't be requeued."""
        for job in jobs:
            number = shlex.quote(job.number)
            self.run(f"scontrol requeue {number} 2>/dev/null || scancel {number}")

    def run(self, line: str, *, seconds: float = _SECONDS) -> str:
        """Run a line as root on the controller; its standard output.

        Raises:
            CliError: it failed, or the controller does not answer.
        """
        return remote.output(self.cluster.controller, self.cluster.admin_key, line, seconds=seconds)

    def wait(
        self,
        names: Iterable[str],
        done: Callable[[Node], bool],
        *,
        say: Callable[[list[Node]], str],
        seconds: float | None = None,
    ) -> list[Node]:
        """Wait until `done` is true of all these nodes; those of which it is not after `seconds`, if given.

        The text that `say` makes of the nodes that are waited for is printed whenever it changes.
        """
        wanted = list(names)
        start, shown, pause = time.monotonic(), "", _PAUSE
        while True:
            nodes = self.nodes_with_retries()
            # A node that slurmctld does not know any more is not waited for.
            pending = [nodes[name] for name in wanted if name in nodes and not done(nodes[name])]
            passed = time.monotonic() - start
            if not pending or (seconds is not None and passed > seconds):
                return pending
            text = say(pending)
            if text != shown:
                console.note(text)
                shown = text
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 1.2)


def busy_lines(nodes: Iterable[Node]) -> list[str]:
    """A line for each running job on these nodes."""
    return [f"  {node.name}: {job}" for node in nodes for job in node.busy]


def _unknown_node(cluster: str, name: str, nodes: Mapping[str, Node]) -> str:
    near = difflib.get_close_matches(name, nodes, n=1) or difflib.get_close_matches(f"{cluster}-{name}", nodes, n=1)
    return f"cluster {cluster} has no node {name!r}." + (f" Did you mean {near[0]}?" if near else "")
