"""A wrong one for each assumption that an outside check holds: it counts as held only if the check fails with that.

A check that compares nothing passes as well as one that compares everything. So after its tests have passed, each
assumption is changed in a copy of this project, and the tests that hold it run there: they must fail. The change is in
the program wherever the assumption stands there, else in the statement that the check compares with the artifact.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import programs

ROOT = Path(__file__).parents[2]
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


def named_by(check: str, mutations: Mapping[str, Mutation], root: Path = ROOT) -> list[str]:
    """Return the ids of the assumptions that an outside check names."""
    text = check_file(check, root).read_text(encoding="utf-8")
    return [name for name in mutations if f'"{name}"' in text]


def check_file(check: str, root: Path = ROOT) -> Path:
    """The file of an outside check."""
    return root / "tests" / "outside" / f"check_{check.replace('-', '_')}.py"


def unnoticed(
    held: Sequence[str], mutations: Mapping[str, Mutation], check: str, artifact: str, root: Path
) -> Iterator[tuple[str, str]]:
    """Yield the assumptions of which the check accepts the wrong one too, and how that was seen."""
    with _copy(root) as copy:
        if (result := _run(copy, check, artifact, held)) != PASSED:
            yield from ((name, f"its tests end with {result} in a copy of this project") for name in held)
            return
        for name in held:
            mutation = mutations[name]
            mutation.apply(copy)
            if (result := _run(copy, check, artifact, [name])) != FAILED:
                yield name, f"its tests end with {result} where {mutation.file} has: {mutation.new}"
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


def _run(copy: Path, check: str, artifact: str, held: Sequence[str]) -> int:
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += [str(check_file(check, copy)), f"--outside={check}={artifact}", f"--assumptions={','.join(held)}"]
    return programs.run(command, cwd=copy).returncode
