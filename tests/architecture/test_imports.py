"""Who may import whom. Data flows in one direction: config -> text -> components -> outputs -> cli. An import in the
other direction leads to a circle; an import of a heavy package in the wrong place costs a second at every start."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import programs
from tests.architecture.test_sources import ROOT, nodes

OURS = {"cli", "cluster", "components", "engine", "scripts", "tests"}

PLACES = {
    "google": "gcp",
    "requests": "gcp",
    "pulumi_gcp": "gcp",
    "cryptography": "local/host",
    "nebius": "nebius",
    "pulumi_kubernetes": "nebius",
    "grpc": "nebius",
}
"""Packages that only one platform needs, and the folder of `components`, or folders, that may import them."""

PLOTTERS = {"matplotlib"}
"""It takes half a second to import, and the first plot installs it: one file may, inside the function that plots."""

# Top-level packages that each of ours may import, besides the standard library and itself.
ALLOWED = {
    "cluster": {"scripts", "pydantic", "pydantic_core", "typing_extensions", "yaml", *PLOTTERS},
    "components": {
        "cluster",
        "scripts",
        "typing_extensions",
        "pulumi",
        "pulumi_command",
        "pulumi_random",
        "pulumi_tls",
        *PLACES,
    },
    "engine": {
        "cryptography",
        "dill",
        "google",
        "grpc",
        "pulumi",
        "scripts",
        "yaml",
    },  # dill, google and grpc are the SDK's own
    "cli": {
        "cluster",
        "components",
        "engine",
        "pulumi",
        "jinja2",  # the page of `report`
        "markupsafe",
        "rich",
        "scripts",
        "typer",
        "typing_extensions",
        "yaml",
    },
    "scripts": set[str](),
}


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level package of every import at any level; relative ones import the file's own package."""
    for node in nodes(file):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name.partition(".")[0]) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, (node.module or "").partition(".")[0]


def outside(file: Path) -> Iterator[tuple[int, str]]:
    """Imports of packages outside the standard library."""
    return ((line, name) for line, name in imports(file) if name not in sys.stdlib_module_names)


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_only_what_is_allowed(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"{package}/ is gone"
    allowed = ALLOWED[package] | {package}
    if package == "scripts":
        # Users run these with PyTorch and MPI; this program only copies them.
        files = [file for file in files if ROOT / "scripts/jobs/examples/programs" not in file.parents]
        # Each folder there is a program of its own, whose modules are its top level on the machine it runs on.
        allowed |= {path.stem for path in files} | {path.parent.name for path in files}
    strangers = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in files
        for line, name in outside(file)
        if name not in allowed
    ]
    assert not strangers


def test_packages_of_one_platform_are_imported_only_there() -> None:
    folder = ROOT / "components"
    places = {name: (place,) if isinstance(place, str) else place for name, place in PLACES.items()}
    strangers = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in folder.rglob("*.py")
        for line, name in imports(file)
        if name in places and not {folder / place for place in places[name]} & {*file.parents}
    ]
    assert not strangers


def test_plotters_are_imported_by_the_plots_only() -> None:
    users = {file for file in (ROOT / "cluster").rglob("*.py") for _, name in imports(file) if name in PLOTTERS}
    assert users == {ROOT / "cluster/report/plot.py"}


def test_reports_know_no_cluster() -> None:
    modules = {
        (str(file.relative_to(ROOT)), node.module)
        for file in (ROOT / "cluster/report").rglob("*.py")
        for node in nodes(file)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cluster")
    }
    allowed = ("cluster.catalog", "cluster.report", "cluster.findings", "cluster.printable")
    assert modules
    assert not {(file, module) for file, module in modules if not f"{module}".startswith(allowed)}


def test_heavy_packages_are_loaded_only_when_used() -> None:
    light = (
        "import cli.app",
        "import cluster.report.plot",
        "from tests.harness import deploy; deploy('dev', preview=True)",
        "import components.gcp.baked_image, components.gcp.nodes",
        "import components.nebius.resource, components.nebius.api.kinds",
    )
    clouds = {"pulumi_gcp", "pulumi_kubernetes", "google.cloud", "google.auth", "requests", "nebius"}
    program = f"import sys\nfor line in {light}:\n exec(line)\n print(line, *{clouds | PLOTTERS} & {{*sys.modules}})"
    ran = programs.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    assert [line.strip() for line in ran.stdout.splitlines()] == [*light]


def test_of_the_scripts_only_types_and_pure_functions_are_imported() -> None:
    modules = {
        f"{node.module}.{alias.name}" if node.module == "scripts.node.slurm" else str(node.module)
        for package in ("cluster", "components")
        for file in (ROOT / package).rglob("*.py")
        for node in nodes(file)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scripts")
        for alias in node.names
    }
    slurm = ("conf_changes", "hostlist", "job_reasons", "jobs", "nodes", "output", "times")
    pure = (
        "interface",
        *(f"slurm.{name}" for name in slurm),
        "health.check_kinds",
        "health.advice",
        "judge.document",
        "judge.kinds",
        "slurm.findings",
        "monitoring.tls",
    )
    assert modules <= {"scripts.hostfiles", *(f"scripts.node.{name}" for name in pure)}
    for module in modules:
        assert list(outside(ROOT / f"{module.replace('.', '/')}.py")) == []


def test_scripts_import_only_the_standard_library() -> None:
    ours = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in (ROOT / "scripts").rglob("*.py")
        for line, name in outside(file)
        if name in OURS - {"scripts"}
    ]
    assert not ours


def test_bootstrap_imports_only_the_standard_library() -> None:
    assert [name for _, name in outside(ROOT / "cli/bootstrap.py")] == []


def test_imports_inside_functions_are_found(tmp_path: Path) -> None:
    file = tmp_path / "crossing.py"
    file.write_text("def late():\n    from pulumi.automation import x\n\nimport rich.live, os\nfrom . import near\n")
    assert sorted(outside(file)) == [(2, "pulumi"), (4, "rich")]


def test_the_product_names_no_stand_in_and_no_test() -> None:
    """By import, or by a text with which it could start or read one."""
    named = re.compile(r"(tests|lab)[./]\w")
    found = {
        str(file.relative_to(ROOT))
        for package in OURS - {"tests"}
        for file in (ROOT / package).rglob("*.py")
        for node in nodes(file)
        if (isinstance(node, ast.Constant) and isinstance(node.value, str) and named.match(node.value))
        or (isinstance(node, ast.ImportFrom) and named.match(f"{node.module}.x"))
        or (isinstance(node, ast.Import) and any(named.match(f"{alias.name}.x") for alias in node.names))
    }
    assert found == {"cli/commands/test.py"}


def test_the_top_level_has_nine_folders_at_most() -> None:
    listed = programs.run(["git", "ls-files"], cwd=ROOT, check=True).stdout.splitlines()
    folders = {name.partition("/")[0] for name in listed if "/" in name}
    assert folders == OURS | {".ci", "docs"}


def test_the_engine_shares_only_files_of_this_host_with_the_rest() -> None:
    modules = {
        f"{node.module}.{alias.name}"
        for file in (ROOT / "engine").rglob("*.py")
        for node in nodes(file)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scripts")
        for alias in node.names
    }
    assert {name.rpartition(".")[0] for name in modules} == {"scripts.hostfiles"}
