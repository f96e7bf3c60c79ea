"""The checks of `./hpc test`: how each is started."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cli import console
from cli.checks.suite import Check
from cli.errors import CliError
from cli.stack import project

CLUSTERS = "tests/e2e"
"""Whole clusters, through the command."""
SECOND = tuple(f"{CLUSTERS}/test_{name}.py" for name in ("changes", "day_two", "faults", "status"))
"""Those of a second process, which takes about as long as the rest. Files that share a cluster are in one process."""
THIRD = tuple(
    f"{CLUSTERS}/test_{name}.py" for name in ("containers", "examples", "health", "mlperf", "quickcheck", "user")
)
"""Those of a third: what users do, most of it on the cluster `lab`."""
PODS = "tests/nebius"
"""Kubernetes' API servers and charts, which wait as much as they work."""
SLOW = "tests/slow.txt"
"""Files and tests that a fast run leaves out, by measured cost: four fifths of the time of all tests but clusters."""
OUTSIDE = "tests/outside"
"""Checks against artifacts of others, `check_NAME.py`: run by name alone, with the artifact."""
NAMES = ("format", "lint", "shell", "schema", "types", "tests")
_ENV = {"PYTHONDONTWRITEBYTECODE": ""}
"""Checks start Python a thousand times: what it compiles is kept, also where the environment says otherwise."""
_SHELLS = (b"sh", b"bash", b"dash")
_BUILD_FIRST = 'nice -n 19 "$0" -c "from lab.kubernetes import binaries; binaries.ensure(print)"; exec "$0" "$@"'
"""Builds etcd, kube-apiserver and Helm where neither PATH nor the cache has them, beside tests that need none of them:
nine minutes of a processor. Tests that start meanwhile and need one wait for its lock."""


def checks(only: Sequence[str], *, fast: bool = False) -> list[Check]:
    """Everything but the tests.

    A fast run checks the types of the files that differ from the last commit, since all of them take 20 seconds.
    """
    python, tools = sys.executable, Path(sys.executable).parent
    # With the library that the image's steps source: they lie in folders beside it.
    shell = [tools / "shellcheck", "-x", "-P", "scripts/image", *shell_scripts(project.ROOT)]
    changed = _changed(project.ROOT) if fast else []
    commands = {
        "format": [tools / "ruff", "format", "--check"],
        "lint": [tools / "ruff", "check"],
        "shell": shell,
        "schema": [python, "cli", "schema", "--check"],
        "types": [python, "-m", "basedpyright", *changed] if changed or not fast else [],
    }
    chosen = {name: command for name, command in commands.items() if name in only and command}
    return [Check(name=name, command=[*map(str, command)], env=_ENV) for name, command in chosen.items()]


def tests(arguments: Sequence[str], *, fast: bool) -> list[Check]:
    """Pytest, with the user's arguments last so that they win.

    A fast run leaves out whole clusters and what is SLOW. Whole clusters wait for machines more than they work: they
    run in three processes beside all other tests, and PODS in one, unless the arguments choose some. They are no
    workers of pytest-xdist, which get no Ctrl-C: their machines would stay.
    """
    colour = console.stdout().is_terminal and "NO_COLOR" not in os.environ
    pytest = [sys.executable, "-m", "pytest", f"--color={'yes' if colour else 'no'}"]
    if fast:
        slow = [] if arguments else (project.ROOT / SLOW).read_text(encoding="utf-8").split()
        left_out = [f"--{'deselect' if '::' in name else 'ignore'}={name}" for name in slow]
        options = ["-m", "not e2e and not slow", "-n", "2", "--dist", "worksteal", *left_out]
        return [Check(name="tests", command=[*pytest, *options, *arguments], env=_ENV)]
    if arguments:
        return [Check(name="tests", command=[*pytest, *arguments], env=_ENV)]
    runs = {
        "clusters": [CLUSTERS, *(f"--ignore={file}" for file in (*SECOND, *THIRD))],
        "more clusters": SECOND,
        "jobs": THIRD,
        "pods": [PODS],
        "tests": [f"--ignore={CLUSTERS}", f"--ignore={PODS}"],
    }
    first = {"pods": ["sh", "-c", _BUILD_FIRST]}
    return [
        Check(name=name, command=[*first.get(name, []), *pytest, "--durations=20", *options], env=_ENV)
        for name, options in runs.items()
    ]


def outside(pairs: Sequence[str], arguments: Sequence[str]) -> Check:
    """The checks NAME=PATH against outside artifacts, and nothing else. Raises CliError for what is not there."""
    files = {
        file.stem.removeprefix("check_").replace("_", "-"): f"{OUTSIDE}/{file.name}"
        for file in project.ROOT.glob(f"{OUTSIDE}/check_*.py")
    }
    chosen, options = [], []
    for pair in pairs:
        name, _, path = pair.partition("=")
        artifact = Path(path).expanduser().resolve()
        if name not in files:
            raise CliError(
                f"--outside: there is no such check\n  given: {pair}\n  allowed: NAME=PATH, NAME one of "
                f"{', '.join(sorted(files))}\n  to do: name one of these, with the folder or file it is run on"
            )
        if not path or not artifact.exists():
            raise CliError(
                f"--outside {name}: there is no such file or folder\n  given: {path or 'no path'}\n  allowed: what the "
                f"check is run on: see the head of {files[name]}\n  to do: download it, "
                f"and give its path: --outside {name}=PATH"
            )
        chosen.append(files[name])
        options += ["--outside", f"{name}={artifact}"]
    pytest = [sys.executable, "-m", "pytest", "--disable-warnings"]
    return Check(name="outside", command=[*pytest, *chosen, *options, *arguments], env=_ENV)


def shell_scripts(root: Path) -> list[Path]:
    """Files of the project that begin with the name of a shell: those that git tracks or would, else all there are."""
    listed = _git(root, "ls-files", "--cached", "--others", "--exclude-standard")
    files = [path for path in root.rglob("*") if ".venv" not in path.parts] if listed is None else listed
    return sorted({path.relative_to(root) for path in files if path.is_file() and _is_shell(path)})


def _changed(root: Path) -> list[str]:
    """Python files that differ from the last commit, or that git does not know yet."""
    new = _git(root, "ls-files", "--others", "--exclude-standard", "*.py") or []
    changed = _git(root, "diff", "--name-only", "HEAD", "--", "*.py") or []
    return sorted({str(path.relative_to(root)) for path in (*new, *changed) if path.is_file()})


def _git(root: Path, command: str, *options: str) -> list[Path] | None:
    """The files that git lists; None where this is no repository."""
    done = subprocess.run(["git", command, "-z", *options], cwd=root, capture_output=True, check=False)
    return None if done.returncode else [root / os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _is_shell(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(200)
    words = first[2:].split() if first.startswith(b"#!") else []
    program = words[1] if len(words) > 1 and words[0].endswith(b"/env") else words[0] if words else b""
    return program.rpartition(b"/")[2] in _SHELLS
