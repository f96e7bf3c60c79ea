"""A status as people read it: one sentence, what is wrong, then what there is."""

import shutil
import sys
import textwrap
import time

from cli import console
from cli.status import tables, words
from cluster.observe.health.finding import ClusterFinding
from cluster.observe.observation import ClusterObservation
from cluster.slurm.hostlist import compress

WIDTH = 100
"""Of paragraphs, at most; tables are as wide as they are."""


def show(seen: ClusterObservation, found: list[ClusterFinding]) -> None:
    """Print the status on standard output."""
    now = time.time()
    show_findings(seen, found, now)
    every = [
        tables.nodes(seen), tables.partitions(seen), tables.queue(seen), tables.daemons(seen, now),
        tables.storage(seen), tables.versions(seen),
    ]  # fmt: skip
    for table in filter(None, every):
        console.line()
        console.table(table)


def show_findings(seen: ClusterObservation, found: list[ClusterFinding], now: float) -> None:
    """Print the first line, and what is wrong."""
    console.line(sentence(seen, found), style="bold red" if found else "bold green")
    for one in found:
        console.line()
        show_finding(one, now)


def sentence(seen: ClusterObservation, found: list[ClusterFinding]) -> str:
    """The first line."""
    verdict = "all is well" if not found else f"{words.counted(len(found), 'thing')} to look at"
    return f"{seen.stack}: {verdict}: {tables.states(seen)}, {tables.jobs(seen)}."


def show_finding(one: ClusterFinding, now: float) -> None:
    """Print one finding, with its command."""
    since = f", for {words.ago(now - one.since)}" if one.since else ""
    console.line(f"{compress(one.where)}: {one.id}{since}", style="bold")
    for text in paragraph(f"{one.what}."):
        console.line(text)
    # A command is typed as it stands: it is never broken.
    console.line(f"    > {one.todo}", style="cyan")
    for text in paragraph(one.note) if one.note else ():
        console.line(text)


def paragraph(text: str) -> list[str]:
    """Indented lines; on a terminal none is wider than it."""
    if not sys.stdout.isatty():
        return [f"    {text}"]
    width = min(WIDTH, shutil.get_terminal_size().columns)
    return textwrap.wrap(
        text, width, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
