"""What `nccl run` was asked to measure, checked against the partition."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cli.commands.jobs.nccl_options import hint
from cli.errors import CliError
from cluster.catalog.nccl_tests import NCCL_TESTS
from cluster.config.cluster import ClusterConfig
from cluster.jobs.nccl import NcclRun, Over
from cluster.jobs.partition_facts import PartitionFacts
from cluster.slurm.hostlist import compress, expand

_SIZE = re.compile(r"([0-9]{1,12})([KMG]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_FOLDER = re.compile(r"/[A-Za-z0-9_./+-]*")


@dataclass(frozen=True, kw_only=True)
class Request:
    """Options as given."""

    nodes: int | None
    nodelist: str
    collective: str | None
    smallest: str | None
    largest: str
    iters: int | None
    check: bool
    over: Over | None
    binaries: str

    def checked(self, config: ClusterConfig, facts: PartitionFacts) -> NcclRun:
        """What to run.

        Raises:
            CliError: options are wrong for the partition; all of them at once.
        """
        names, problems = self._names(config, facts)
        nodes = self.nodes or len(names) or min(2, len(facts.nodes))
        collective = self.collective or facts.fabric.collective
        problems += self._problems(facts, nodes, names, collective)
        if problems:
            raise CliError("\n".join(problems))
        return NcclRun(
            partition=facts,
            nodes=nodes,
            nodelist=compress(names),
            collective=collective,
            smallest=self.smallest,
            largest=self.largest,
            iterations=self.iters,
            check=self.check,
            over=self.over,
            binaries=self.binaries.rstrip("/"),
        )

    def _names(self, config: ClusterConfig, facts: PartitionFacts) -> tuple[list[str], list[str]]:
        """The nodes of --nodelist, and what is wrong with it."""
        try:
            given = expand(self.nodelist) if self.nodelist else []
        except ValueError as error:
            return [], [f"--nodelist {self.nodelist}: {error}"]
        names, problems = [], []
        for one in given:
            whole = next((name for name in (one, f"{config.name}-{one}") if name in facts.nodes), None)
            if whole is None:
                problems.append(
                    f"--nodelist: partition {facts.name} has no node {one!r} with GPUs.{hint(one, facts.nodes)} "
                    f"There are: {compress(facts.nodes)}."
                )
            elif whole not in names:
                names.append(whole)
        return names, problems

    def _problems(self, facts: PartitionFacts, nodes: int, names: list[str], collective: str) -> Iterator[str]:
        if nodes > len(facts.nodes):
            yield f"--nodes {nodes}: partition {facts.name} has {len(facts.nodes)} with GPUs."
        if names and nodes < len(names):
            yield f"--nodes {nodes}: --nodelist names {len(names)}. Leave one of the two out."
        if collective not in NCCL_TESTS.collectives:
            yield (
                f"--collective {collective!r}: nccl-tests has none of that name."
                f"{hint(collective, NCCL_TESTS.collectives)} There are: {', '.join(NCCL_TESTS.collectives)}."
            )
        low, high = _bytes(self.smallest or "0"), _bytes(self.largest)
        for option, text, size in (("--min", self.smallest, low), ("--max", self.largest, high)):
            if size is None:
                yield f"{option} {text!r}: a number of bytes is expected, with K, M or G for their 1024s: 8M."
        if low and high and low > high:
            yield f"--min {self.smallest} is more than --max {self.largest}."
        if self.over and nodes > 1:
            yield f"--over {self.over}: on {nodes} nodes NCCL needs both; it is for --nodes 1."
        elif self.over == "fabric" and (why := facts.fabric.one_node):
            yield f"--over fabric: needs InfiniBand. {facts.fabric.name} {why}."
        if self.binaries and not _FOLDER.fullmatch(self.binaries):
            yield f"--binaries {self.binaries!r}: an absolute path of letters, digits, . _ + - is expected"


def _bytes(text: str) -> int | None:
    found = _SIZE.fullmatch(text)
    return int(found[1]) * _UNITS[found[2]] if found else None
