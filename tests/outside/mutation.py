"""A wrong belief for each row that an outside check holds: a row counts as held only if its check fails with it.

A check that compares nothing passes as well as one that compares everything. So after its tests have passed, each row's
belief is changed in a copy of this project, and the tests that hold the row run there: they must fail. The change is in
the program wherever the belief stands there, else in the statement that the check compares with the artifact.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import programs
from tests.outside.ledger import check_file

PASSED, FAILED = 0, 1
"""Results of pytest."""


@dataclass(frozen=True)
class Mutation:
    """A text of a file of this project, which occurs there once, and what it becomes."""

    file: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Change the file below `root`. Raises ValueError if it does not have the text once."""
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.file} has {text.count(self.old)} times: {self.old}")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


def unnoticed(
    rows: Sequence[str], mutations: Mapping[str, Mutation], check: str, artifact: str, root: Path
) -> Iterator[tuple[str, str]]:
    """Yield the rows with whose wrong belief the check passes, and why they count as such."""
    with _copy(root) as copy:
        if (result := _run(copy, check, artifact, rows)) != PASSED:
            yield from ((row, f"its tests end with {result} in a copy of this project") for row in rows)
            return
        for row in rows:
            if row not in mutations:
                yield row, "it has no wrong belief in tests/outside/mutations.py"
                continue
            mutation = mutations[row]
            mutation.apply(copy)
            if (result := _run(copy, check, artifact, [row])) != FAILED:
                yield row, f"its tests end with {result} where {mutation.file} has: {mutation.new}"
            shutil.copy(root / mutation.file, copy / mutation.file)


@contextmanager
def _copy(root: Path) -> Iterator[Path]:
    """Copy the project's own files into a folder that is removed afterwards."""
    listed = programs.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    names = listed.stdout.split("\0")
    if listed.returncode:  # no checkout
        names = [str(path.relative_to(root)) for path in root.rglob("*") if "__pycache__" not in path.parts]
    with tempfile.TemporaryDirectory(prefix="hpc-mutated-") as folder:
        for name in filter(None, names):
            if (source := root / name).is_file():
                (target := Path(folder, name)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        yield Path(folder)


def _run(copy: Path, check: str, artifact: str, rows: Sequence[str]) -> int:
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += [str(check_file(check, copy)), f"--outside={check}={artifact}", f"--rows={','.join(rows)}"]
    return programs.run(command, cwd=copy).returncode
