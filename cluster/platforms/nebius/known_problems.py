"""Known problems of Soperator that show only once a cluster is up: their symptoms, what they are, what to do.

Numbers are those of docs/reference/nebius-known-problems.md. Problems that are prevented, or waited for, are not here.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One known problem that a text reveals."""

    number: int
    symptom: re.Pattern[str]
    """What a line of a log, a reason or a message of a check says."""
    what: str
    """A sentence without its end, which goes on from the name of a pod or node."""
    todo: str
    """A command, with STACK and NAME for those; or what to do, in words."""
    fixed: str
    """Version of Soperator that has it no more; empty if none has."""
    source: str


PROBLEMS: Sequence[Problem] = (
    Problem(
        number=7,
        symptom=re.compile(
            r"couldn't find libnvidia-ml\.so library|libnvidia-ml\.so(\.1)?: cannot open shared object|"
            r"load library failed: libnvidia-ml\.so"
        ),
        what="containers with GPUs find no NVIDIA libraries: the jail's ld.so.cache has none of them",
        todo="./hpc ssh STACK login-0 -- ldconfig",
        fixed="",
        source="soperator issue 2468",
    ),
    Problem(
        number=9,
        symptom=re.compile(r"Switch configuration \S+ has invalid child \(\S*?[0-9]{19,}\)|"
                           r"Switch configuration \S*?[0-9]{19,} has invalid child"),
        what="slurmctld does not start: names of InfiniBand switches end in more digits than Slurm can read",
        todo="set nebius.values: {slurm-cluster: {slurmConfig: {topologyPlugin: topology/default}}} in the stack file, "
        "then: ./hpc up STACK",
        fixed="5.0.0",
        source="soperator pull request 2623",
    ),
    Problem(
        number=14,
        symptom=re.compile(r"\[user_problem\] boot_disk_full|of node boot disk is used"),
        what="its boot disk is full of containers and caches, so it takes no jobs",
        todo="./hpc ssh STACK NAME -- 'enroot list; docker ps --all; /opt/soperator_utils/fs_usage.sh -l'",
        fixed="",
        source="soperator issue 1468; helm/slurm-cluster/slurm_scripts/boot_disk_full.sh",
    ),
)  # fmt: skip
BRING_UP, VANISHED = 16, 17
"""Numbers of the problems that objects reveal, not texts: see `blocking` and `vanished`."""


def recognized(texts: Iterable[str]) -> Iterator[Problem]:
    """The known problems that these texts reveal, each once."""
    every = "\n".join(texts)
    yield from (problem for problem in PROBLEMS if problem.symptom.search(every))


@dataclass(frozen=True, kw_only=True)
class Gate:
    """An active check, as far as others wait for it."""

    name: str
    failed: bool
    drains: bool
    """Whether its failure drains nodes."""
    done: bool
    """Whether it has completed once."""
    needs: tuple[str, ...] = ()


def blocking(gates: Iterable[Gate]) -> dict[str, tuple[str, ...]]:
    """Failed checks that only comment on nodes, with the checks that wait for them and have never run (16).

    Soperator runs checks in the order of `dependsOn`, and tries none twice: one that fails for a passing reason holds
    up all that depend on it (pull request 2132, issue 1203).
    """
    every = list(gates)
    names = [gate.name for gate in every if gate.failed and not gate.drains]
    waiting = {name: tuple(gate.name for gate in every if name in gate.needs and not gate.done) for name in names}
    return {name: found for name, found in waiting.items() if found}


def vanished(nodes: Iterable[str], pods: Iterable[str]) -> list[str]:
    """Nodes that slurmctld still lists although they have no pod, after a nodeset became smaller (17).

    Nodes are dynamic: slurmctld keeps one until it is deleted (docs/limitations.md of soperator).
    """
    there = set(pods)
    return [name for name in nodes if name not in there]
