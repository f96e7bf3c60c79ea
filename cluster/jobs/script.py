"""Job scripts: sbatch's options, and a body that is bash."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BODIES = Path(__file__).parents[2] / "scripts" / "jobs"
"""Bodies of job scripts, in a folder for each kind of job."""
MARK = "# shellcheck shell=bash\n"
"""First line of a body, that names the shell for shellcheck without a #! line."""

Option = str | int | bool
"""The value of an option of sbatch; True for one that takes none, False for one that is left out."""
_DIRECTIVES = re.compile(r"\A(# shellcheck .*\n)+")
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_PLAIN = re.compile(r"[A-Za-z0-9_.,:/=@%+\[\]*-]+")


@dataclass(frozen=True, kw_only=True)
class JobScript:
    """A script for sbatch."""

    name: str
    """The file name: hello.sh."""
    title: str
    """The purpose, on one line."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """sbatch's long options without the dashes: {"nodes": 2, "exclusive": True}."""
    body: str
    """Bash; it runs with `set -euo pipefail`."""

    def text(self) -> str:
        """The whole file. Raises ValueError for an option that can't stand in an #SBATCH line."""
        options = "".join(f"#SBATCH {word}\n" for word in map(_quoted, words(self.options)))
        title = " ".join(self.title.split())
        return f"#!/bin/bash\n# {title}\n{options}\nset -euo pipefail\n\n{self.body.strip(chr(10))}\n"


def words(options: Mapping[str, Option]) -> list[str]:
    """Options as words of a command line: --nodes=2, --exclusive. Raises ValueError for a name that is none, and for a
    value of more than one line."""
    found: list[str] = []
    for name, value in options.items():
        if not _OPTION.fullmatch(name):
            raise ValueError(f"not a long option of sbatch: {name!r}")
        if isinstance(value, str) and not f"{value}x".isprintable():
            raise ValueError(f"the value of --{name} must be printable and on one line, not {value!r}")
        if value is not False:
            found.append(f"--{name}" if value is True else f"--{name}={value}")
    return found


def source(path: str) -> str:
    """A body from scripts/jobs, without the comments for shellcheck that it begins with. Raises ValueError: the first
    line is not MARK."""
    text = (BODIES / path).read_text(encoding="utf-8")
    if not text.startswith(MARK):
        raise ValueError(f"scripts/jobs/{path}: the first line must be {MARK.strip()!r}")
    return _DIRECTIVES.sub("", text)


def _quoted(word: str) -> str:
    """A word as sbatch reads it in an #SBATCH line: with spaces in double quotes (src/sbatch/opt.c, _get_argument)."""
    if _PLAIN.fullmatch(word):
        return word
    if '"' in word or "\\" in word:
        raise ValueError(f"an option in an #SBATCH line can hold neither double quotes nor backslashes: {word!r}")
    return f'"{word}"'


FOLDER = "/opt/apps/hpc"
"""Root's own, mode 0755; on Kubernetes in the jail."""
ENV = f"{FOLDER}/env.sh"
"""The file that jobs source; see cluster/jobs/environment.py."""
