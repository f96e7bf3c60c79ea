"""What the project's files may contain."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests import programs

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.txt", "requirements-dev.txt", "requirements-tools.txt")


def project_files() -> list[Path]:
    """Files that git tracks or would track; without git, all files but the environment."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = programs.run(command, cwd=ROOT)
    names = [ROOT / name for name in listed.stdout.split("\0") if name]
    if listed.returncode:
        names = [path for path in ROOT.rglob("*") if not {".venv", "__pycache__", ".git"} & set(path.parts)]
    return sorted(path for path in names if path.is_file())


@cache
def texts() -> list[tuple[str, str]]:
    """Path and text of every file; bytes that are not text are replaced."""
    return [
        (str(path.relative_to(ROOT)), path.read_text(encoding="utf-8", errors="replace")) for path in project_files()
    ]


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module's syntax."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))))


# Assembled, so that this file does not hold what it looks for.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"), ("files", "pythonhosted", "org"), ("deb", "debian", "org"), ("archive", "ubuntu", "com"),
        ("security", "debian", "org"), ("snapshot", "debian", "org"), ("registry", "npmjs", "org"),
    )
]  # fmt: skip

PYTHON = [path for path in project_files() if path.suffix == ".py"]


def forwards(text: str) -> bool:
    """Return whether a module of under 30 lines has only imports, and other names for what it imports."""
    if len(text.splitlines()) >= 30:
        return False
    body = [node for node in ast.parse(text).body if not isinstance(node, ast.Expr)]
    given = (ast.Name, ast.Attribute)
    return any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in body) and all(
        isinstance(node, (ast.Import, ast.ImportFrom))
        or (isinstance(node, ast.Assign) and (isinstance(node.value, given) or "__all__" in ast.unparse(node)))
        for node in body
    )


class TestSize:
    def test_no_module_is_over_800_lines(self) -> None:
        long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in PYTHON}
        assert {name: lines for name, lines in long.items() if lines > 800} == {}

    def test_no_module_is_deeper_than_four_folders(self) -> None:
        deep = {str(path.parent.relative_to(ROOT)) for path in PYTHON if len(path.relative_to(ROOT).parts) > 5}
        assert deep == set()

    def test_no_small_module_only_forwards(self) -> None:
        assert [
            str(path.relative_to(ROOT)) for path in PYTHON if path.name != "__init__.py" and forwards(path.read_text())
        ] == []

    def test_modules_that_only_forward_are_found(self) -> None:
        assert forwards('"""Names."""\n\nfrom a import b\n\n__all__ = ["b"]\n')
        assert forwards("import a\n\nb = a.b\n")
        assert not forwards("import a\n\nb = a.b()\n")
        assert not forwards('"""A package."""\n')

    def test_the_program_is_under_60_lines(self) -> None:
        assert len((ROOT / "__main__.py").read_text().splitlines()) < 60


class TestPortability:
    @pytest.mark.parametrize("host", HOSTS)
    def test_no_registry_is_named(self, host: str) -> None:
        assert [name for name, text in texts() if host in text] == []

    def test_no_path_of_a_checkout_is_named(self) -> None:
        here = re.compile(rf"(?<![\w/.-]){re.escape(str(ROOT))}(?![\w.-])")
        assert [name for name, text in texts() if here.search(text)] == []

    def test_no_private_key_is_kept(self) -> None:
        key = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s*(?:[A-Za-z0-9+/=]{50,}\s*){2}")
        assert [name for name, text in texts() if key.search(text)] == []


class TestLocks:
    @pytest.mark.parametrize("name", LOCKS)
    def test_every_requirement_is_pinned_with_hashes_and_names_no_host(self, name: str) -> None:
        text = (ROOT / name).read_text()
        assert "://" not in text
        lines = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
        requirements = "\n".join(lines).replace("\\\n", " ").splitlines()
        assert requirements
        unpinned = [
            row for row in requirements if not re.match(r"[A-Za-z0-9_.-]+==\S+.*--hash=sha256:[0-9a-f]{64}", row)
        ]
        assert unpinned == []

    def test_the_one_for_tests_holds_all_of_the_one_for_running(self) -> None:
        run, dev = (set(re.findall(r"^\S+==\S+", (ROOT / name).read_text(), re.MULTILINE)) for name in LOCKS[:2])
        assert run
        assert run <= dev


def test_no_file_is_exempt_from_the_rules() -> None:
    exempt = re.compile(
        r"^\s*#\s*(ruff|flake8|pyrefly|type):\s*(noqa|ignore)\s*$|^#\s*pyrefly:\s*ignore-errors", re.MULTILINE
    )
    assert [str(path.relative_to(ROOT)) for path in PYTHON if exempt.search(path.read_text())] == []


def test_locks_are_opened_where_no_other_user_can_open_them() -> None:
    """flock(2) needs no write permission: whoever can open a file can keep its lock for ever. `open_lock` and
    `hostfiles.locked` open files of mode 0600; the engine locks a folder in the state dir, which has mode 0700."""
    found = {
        name
        for name, text in texts()
        if name.partition("/")[0] in ("cli", "cluster", "components", "engine", "scripts")
        if re.search(r"fcntl\.(flock|lockf)|(?<![-_(\w])flock (-|[0-9])", text)
    }
    assert found == {
        "cli/bootstrap.py",
        "engine/state/lock.py",
        "scripts/hostfiles.py",
        "scripts/image/runner.sh",
        "scripts/node/jobs/gpu_jobs.sh",
        "scripts/node/jobs/warm_up.sh",
        "scripts/node/system/locks.py",
    }
    opened = re.compile(r"[Ll][Oo][Cc][Kk][\w\")]*\.open\(")
    assert [name for name, text in texts() if name.startswith("scripts/") and opened.search(text)] == []
