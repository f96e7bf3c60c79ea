"""Who may import whom. Data flows one way: config -> text -> components -> outputs -> cli; an import against that
direction is a cycle in the making, and one of a heavy package in the wrong place a second at every start."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"bench", "cli", "cluster", "components", "engine", "scripts", "tests"}

PLACES = {"google": "gcp", "requests": "gcp/bake", "pulumi_gcp": "gcp", "cryptography": "local/host"}
"""What one platform alone needs, and the folder of `components` that may import it."""

# Top-level packages that each of ours may import, besides the standard library and itself.
ALLOWED = {
    "cluster": {"pydantic", "pydantic_core", "typing_extensions", "yaml"},
    "components": {"cluster", "pulumi", "pulumi_command", "pulumi_random", "pulumi_tls", *PLACES},
    "engine": {"cryptography", "dill", "google", "grpc", "pulumi", "yaml"},  # dill, google and grpc are the SDK's own
    "bench": {"cluster", "components", "engine", "pulumi", "pulumi_command", "yaml"},
    "cli": {"bench", "cluster", "components", "engine", "pulumi", "rich", "typer", "typing_extensions", "yaml"},
    "scripts": set[str](),
}


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level package of every import, wherever it stands; relative ones are the file's own package."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name.partition(".")[0]) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, (node.module or "").partition(".")[0]


def outside(file: Path) -> Iterator[tuple[int, str]]:
    """The imports that are not of the standard library."""
    return ((line, name) for line, name in imports(file) if name not in sys.stdlib_module_names)


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_what_they_may(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"{package}/ is gone"
    allowed = ALLOWED[package] | {package}
    if package == "scripts":
        # Each folder there is a program of its own, whose modules are its top level on the machine it runs on.
        allowed |= {path.stem for path in files} | {path.parent.name for path in files}
    strangers = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in files
        for line, name in outside(file)
        if name not in allowed
    ]
    assert not strangers


def test_what_one_platform_needs_is_imported_there_only() -> None:
    folder = ROOT / "components"
    strangers = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in folder.rglob("*.py")
        for line, name in imports(file)
        if name in PLACES and folder / PLACES[name] not in file.parents
    ]
    assert not strangers


@pytest.mark.parametrize(
    "doing",
    [
        "import cli.app",
        "from tests.harness import deploy; deploy('dev', preview=True)",
        "import components.gcp.bake.resource, components.gcp.flex.node, components.dynamic",
    ],
)
def test_nothing_of_google_cloud_is_loaded_by_who_needs_none(doing: str) -> None:
    program = (
        f"{doing}; import sys; print(*{{'pulumi_gcp', 'google.cloud', 'google.auth', 'requests'}} & {{*sys.modules}})"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_scripts_are_for_bare_machines() -> None:
    ours = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in (ROOT / "scripts").rglob("*.py")
        for line, name in outside(file)
        if name in OURS - {"scripts"}
    ]
    assert not ours


def test_the_environment_is_made_with_the_standard_library() -> None:
    assert [name for _, name in outside(ROOT / "cli/bootstrap.py")] == []


def test_the_boundaries_are_seen_where_they_are_crossed(tmp_path: Path) -> None:
    file = tmp_path / "crossing.py"
    file.write_text("def late():\n    from pulumi.automation import x\n\nimport rich.live, os\nfrom . import near\n")
    assert sorted(outside(file)) == [(2, "pulumi"), (4, "rich")]
