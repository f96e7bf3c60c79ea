"""Transcripts of docs/guides/user-guide.md: what their commands print on a cluster, compared with the page.

A block is marked by a comment before it:

    <!-- lab: alice -->
    ```console
    $ COMMAND
    what it prints
    ```

Commands of all blocks run one after the other in one shell of that user. Numbers, ranges of nodes and how many spaces
there are may differ: ids of jobs, times and widths of columns do. The id of a job in a command is that of the job that
the page says was submitted. `pytest --update-golden` writes what is printed into the page.
"""

import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.e2e.cluster import PATIENCE, ROOT, Cluster

PAGE = ROOT / "docs/guides/user-guide.md"
_BLOCK = re.compile(
    r"(?P<head><!-- lab: (?P<name>[a-z]+) -->\n```[a-z]+\n)(?P<text>.*?)(?=^```$)", re.DOTALL | re.MULTILINE
)
_SUBMITTED = re.compile(r"Submitted batch job ([0-9]+)")
_ID = re.compile(r"(?<=scancel )[0-9]+|(?<=-j )[0-9]+|(?<=hpc-job )[0-9]+|(?<=-)[0-9]+(?=[._])")
"""A job's id in a command: of scancel, hpc-job and sacct, and in the name of an output file."""
_READS = ("cat ", "hpc-job ", "sacct ", "sed ", "sinfo", "sort ", "squeue ")
"""Commands that may be repeated until what they read is there."""
_WAITED = re.compile(r"^srun: job [0-9]+ (queued and waiting for|has been allocated) resources\n", re.MULTILINE)
"""What srun prints if a job before has not quite ended."""
_END = "%%%"


@dataclass
class Entry:
    """A command and what it prints."""

    command: str
    printed: str


def blocks(name: str) -> list[str]:
    """Texts of the blocks of that name."""
    return [found["text"] for found in _BLOCK.finditer(PAGE.read_text()) if found["name"] == name]


def replace(name: str, texts: list[str]) -> None:
    """Write blocks into the page."""
    rest = iter(texts)
    page = _BLOCK.sub(
        lambda found: found["head"] + (next(rest) if found["name"] == name else found["text"]), PAGE.read_text()
    )
    PAGE.write_text(page)


def entries(block: str) -> list[Entry]:
    """Commands of a block with what they print."""
    found: list[Entry] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Entry(line[2:], ""))
        else:
            found[-1].printed += f"{line}\n"
    return found


def text(found: list[Entry]) -> str:
    """A block."""
    return "".join(f"$ {transcript.command}\n{transcript.printed}" for transcript in found)


def alike(printed: str) -> list[str]:
    """Lines as far as they are the same on each run."""
    changes = {r"\[[0-9,-]+\]": "[0]", r"[0-9]+": "0", r"-{3,}": "---", r"\s+": " "}
    lines = printed.splitlines()
    for pattern, same in changes.items():
        lines = [re.sub(pattern, same, line).strip() for line in lines]
    return [line for line in lines if line]


class Shell:
    """A shell of a user on the login machine."""

    def __init__(self, cluster: Cluster, user: str) -> None:
        self._process = subprocess.Popen(
            [str(ROOT / "hpc"), "run", cluster.name, "--as", user, "--", "bash"],
            env=cluster.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def ask(self, command: str) -> str:
        """What a command prints."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{{ {command}\n}} </dev/null 2>&1; echo {_END}\n")
        self._process.stdin.flush()
        return _WAITED.sub("", "".join(iter(self._line, f"{_END}\n")))

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=PATIENCE)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the shell ended"
        return line


def played(cluster: Cluster, user: str, *, update: bool) -> Iterator[tuple[Entry, Entry]]:
    """Each entry of the user's blocks, and the same as it is on the cluster."""
    shell = Shell(cluster, user)
    ids: dict[str, str] = {}
    for block in blocks(user):
        for entry in entries(block):
            yield entry, _play(shell, entry, ids, update=update)
    shell.close()


def _play(shell: Shell, entry: Entry, ids: dict[str, str], *, update: bool) -> Entry:
    command = _ID.sub(lambda found: ids.get(found[0], found[0]), entry.command)
    reads, end = command.startswith(_READS), time.monotonic() + PATIENCE
    if update and reads:
        time.sleep(5)
    printed = shell.ask(command)
    while reads and not update and alike(printed) != alike(entry.printed) and time.monotonic() < end:
        time.sleep(0.5)
        printed = shell.ask(command)
    there, here = _SUBMITTED.search(entry.printed), _SUBMITTED.search(printed)
    if here:
        ids[there[1] if there else "1"] = here[1]
    return Entry(command, printed)
