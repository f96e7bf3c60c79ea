"""The examples' folder on a cluster: writing what differs, and removing what an earlier version wrote."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from cli.cluster.jobs import Jobs
from cluster.jobs.examples import EXAMPLES, RECORD, parse_record, record

_RECORD = f"{EXAMPLES}/{RECORD}"


@dataclass(frozen=True)
class Written:
    """The files that a run changed: names, or paths of those beside the folder."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Files of an earlier version that somebody changed since."""

    def counts(self) -> list[tuple[str, list[str]]]:
        return [("new", self.new), ("changed", self.changed), ("removed", self.removed)]

    def document(self) -> dict[str, list[str]]:
        """The same as data for JSON."""
        return {**dict(self.counts()), "kept": self.kept}


def write(jobs: Jobs, files: Mapping[str, str]) -> Written:
    """Have these files on the cluster, by absolute path, and none that an earlier version wrote into EXAMPLES.

    The record has, at every moment, at least the files of ours that are there: a run that is stopped leaves none
    behind that the next one does not know.

    Raises:
        CliError: the login machine does not answer, or the folder is not root's alone.
    """
    ours = {path.removeprefix(f"{EXAMPLES}/"): text for path, text in files.items() if path.startswith(f"{EXAMPLES}/")}
    there = parse_record(jobs.run(f"cat {_RECORD} 2>/dev/null || true"))
    wanted = record(ours)
    old = {name: found for name, found in there.items() if name not in ours}
    if old or there.keys() != ours.keys():
        jobs.put({_RECORD: "".join(sorted([*wanted.splitlines(keepends=True), *_lines(old)]))})
    put = [path.removeprefix(f"{EXAMPLES}/") for path in jobs.put(files)]
    removed, kept = _remove(jobs, old)
    jobs.put({_RECORD: wanted})
    return Written(
        new=[name for name in put if name in ours and name not in there],
        changed=[name for name in put if name not in ours or name in there],
        removed=removed,
        kept=kept,
    )


def _remove(jobs: Jobs, old: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Remove files that are as they were written; also those that somebody changed since, which stay."""
    if not old:
        return [], []
    names = shlex.join(sorted(old))
    sums = parse_record(jobs.run(f"cd {EXAMPLES} && sha256sum -- {names} 2>/dev/null || true"))
    same = sorted(name for name, found in sums.items() if old.get(name) == found)
    if same:
        jobs.run(f"cd {EXAMPLES} && rm -f -- {shlex.join(same)}")
    return same, sorted(set(sums) - set(same))


def _lines(found: Mapping[str, str]) -> list[str]:
    return [f"{digest}  {name}\n" for name, digest in found.items()]
