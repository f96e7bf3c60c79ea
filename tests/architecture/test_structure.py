"""How product code is laid out: no circle of files, no hidden import, no platform's name outside its own folders."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache

import pytest

from cluster import findings
from cluster.load import provider_keys
from tests.architecture.test_sources import ROOT, nodes

PACKAGES = ("cli", "cluster", "components", "engine")
CONFIG_IMPORTS = ("cluster.catalog", "cluster.config", "cluster.findings", "cluster.printable")
PLATFORMS = {"gcp", "local", "nebius"}


Nodes = Sequence[ast.AST]
"""Those of a file's syntax."""


@cache
def _trees() -> dict[str, Nodes]:
    files = [file for package in (*PACKAGES, "scripts") for file in sorted((ROOT / package).rglob("*.py"))]
    return {str(file.relative_to(ROOT)): nodes(file) for file in files}


def _modules() -> dict[str, Nodes]:
    return {
        name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): tree for name, tree in _trees().items()
    }


def _imports(tree: Nodes, modules: dict[str, Nodes]) -> Iterator[str]:
    """Modules that a file imports, wherever the import stands."""
    for node in tree:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module


def circles(graph: dict[str, set[str]]) -> list[str]:
    """Return what is left of a graph once all are taken out that lead nowhere, or that nothing leads to."""
    left = {name: set(targets) for name, targets in graph.items()}
    while True:
        reached = {target for targets in left.values() for target in targets}
        kept = {name for name, targets in left.items() if targets & left.keys() and name in reached}
        if kept == left.keys():
            return sorted(left)
        left = {name: left[name] & kept for name in kept}


def test_no_circle_of_files() -> None:
    modules = _modules()
    graph = {name: {*_imports(tree, modules)} & (modules.keys() - {name}) for name, tree in modules.items()}
    assert circles(graph) == []


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str]()}
    assert circles(graph) == ["b", "c"]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_the_models_import_only_what_is_below_them() -> None:
    modules = _modules()
    strangers = {
        (name, imported)
        for name, tree in modules.items()
        if f"{name}.".startswith("cluster.config.")
        for imported in _imports(tree, modules)
        if imported.startswith("cluster") and not f"{imported}.".startswith(tuple(f"{top}." for top in CONFIG_IMPORTS))
    }
    assert strangers == set()


def test_the_catalog_imports_nothing_of_the_program() -> None:
    modules = _modules()
    imported = {
        target
        for name, tree in modules.items()
        if f"{name}.".startswith("cluster.catalog.")
        for target in _imports(tree, modules)
        if target.startswith("cluster.")
    }
    assert imported
    assert {name for name in imported if not f"{name}.".startswith("cluster.catalog.")} == set()


def test_no_circle_of_rooms() -> None:
    """Each folder and file right below `cluster` stands above or below each other one."""
    modules = {name: tree for name, tree in _modules().items() if name.startswith("cluster.")}
    graph: dict[str, set[str]] = {}
    for name, tree in modules.items():
        targets = {_room(target) for target in _imports(tree, modules) if target.startswith("cluster.")}
        graph.setdefault(_room(name), set()).update(targets - {_room(name)})
    assert "load" in graph
    assert circles(graph) == []


def _room(module: str) -> str:
    return module.split(".")[1]


def test_no_import_is_hidden_from_the_interpreter() -> None:
    hidden = {
        file
        for file, tree in _trees().items()
        for node in tree
        if isinstance(node, ast.Name) and node.id == "TYPE_CHECKING"
    }
    assert hidden == set()


def test_a_public_class_name_means_one_thing() -> None:
    files: dict[str, list[str]] = {}
    for file, tree in _trees().items():
        for node in tree:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files.setdefault(node.name, []).append(file)
    assert len(files) > 500
    assert {name: where for name, where in files.items() if len(where) > 1} == {}


def test_no_platform_is_asked_for_by_name_outside_its_folders() -> None:
    found = {file: _comparisons(tree) for file, tree in _trees().items() if not _of_a_platform(file)}
    assert {file: count for file, count in found.items() if count} == {}


def _of_a_platform(file: str) -> bool:
    return file.startswith(("cluster/platforms/", "scripts/", *(f"components/{name}/" for name in PLATFORMS)))


def _comparisons(tree: Nodes) -> int:
    return sum(
        (isinstance(node, ast.Compare) and _asks_for_platform(node)) or _looks_up_platform(node) for node in tree
    )


def _looks_up_platform(node: ast.AST) -> bool:
    """`TABLE["gcp"]` and `table.get("gcp")`."""
    if isinstance(node, ast.Subscript):
        return _is_platform(node.slice)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"get", "pop"}:
        return any(map(_is_platform, node.args[:1]))
    return False


def _is_platform(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in PLATFORMS


def _asks_for_platform(node: ast.Compare) -> bool:
    """`config.platform == "gcp"`, and the like with `in`."""
    sides = [node.left, *node.comparators]
    named = any(isinstance(part, ast.expr) and _is_platform(part) for side in sides for part in ast.walk(side))
    return named and any("platform" in ast.unparse(side) for side in sides)


def test_comparisons_are_counted() -> None:
    compared = "a.platform == 'gcp'\nplatform in (None, 'local')\nkey == 'gcp'\nplatform == name"
    assert _comparisons([*ast.walk(ast.parse(compared))]) == 2
    assert _comparisons([*ast.walk(ast.parse("table['gcp']\ntable.get('local')\ntable[key]"))]) == 2


TABLES = (
    "cluster/catalog/prices.py",
    "cluster/platforms/dashboards.py",
    "cluster/platforms/observers.py",
    "cluster/platforms/registry.py",
    "components/clouds.py",
    "components/platforms.py",
)
"""Tables with a row for each platform."""
WORDS = {"gcp": ("gcp", "google", "gcloud"), "nebius": ("nebius", "soperator")}
"""What names a platform in code, by the platform: imports, other names, and texts that are no docstrings."""
ALLOWED: dict[str, dict[str, int]] = {
    "gcp": {
        "cli/access/ssh.py": 4,
        "cli/app.py": 2,
        "cli/commands/config.py": 2,
        "cli/commands/rehearse.py": 1,
        "cluster/catalog/base_system.py": 1,
        "cluster/catalog/bounds.py": 1,
        "cluster/catalog/fabrics.py": 4,
        "cluster/catalog/floors.py": 2,
        "cluster/catalog/machine_families.py": 3,
        "cluster/catalog/machine_types.py": 26,
        "cluster/catalog/nccl.py": 2,
        "cluster/catalog/prologs.py": 1,
        "cluster/catalog/recipes.py": 8,
        "cluster/catalog/storage.py": 1,
        "cluster/config/capacity.py": 2,
        "cluster/config/cluster.py": 3,
        "cluster/config/image.py": 1,
        "cluster/config/storage.py": 1,
        "cluster/config/validators.py": 2,
        "cluster/findings.py": 1,
        "cluster/observe/status_findings_machines.py": 1,
        "cluster/observe/status_findings_nodes.py": 1,
        "cluster/platforms/local/rehearsal.py": 2,
        "cluster/stack_file_reference.py": 1,
        "engine/core/program.py": 1,
        "engine/values.py": 1,
        "scripts/node/jobs/rxdm.py": 1,
        "scripts/node/judge/machine.py": 1,
        "scripts/node/reconcile/compute_engine.py": 4,
        "scripts/node/system/google_api.py": 1,
    },
    "nebius": {
        "cli/access/kubectl.py": 2,
        # Examples of commands.
        "cli/app.py": 11,
        "cli/commands/backend.py": 5,
        "cli/commands/installation.py": 1,  # a stack's name
        "cli/commands/nebius_token.py": 5,
        "cli/error_handler.py": 1,
        # Sources of figures; rows that the platform gives to the catalog.
        "cluster/catalog/fabrics.py": 1,
        "cluster/catalog/machine_families.py": 4,
        "cluster/catalog/images.py": 2,
        "cluster/catalog/machine_types.py": 3,
        "cluster/catalog/nebius_machine_types.py": 15,
        "cluster/catalog/mlperf.py": 4,
        "cluster/catalog/nccl.py": 3,
    },
}
"""How often files outside a platform's own may name it. A number only becomes smaller."""


@pytest.mark.parametrize("platform", WORDS)
def test_a_platform_is_named_in_its_own_folders(platform: str) -> None:
    folders = (f"{above}/{platform}/" for above in ("cluster/platforms", "components", "scripts"))
    own = (*folders, *TABLES, "components/local/compute_engine/")
    words = re.compile("|".join(WORDS[platform]), re.IGNORECASE)
    found = {file: _named(tree, words) for file, tree in _trees().items() if not file.startswith(own)}
    allowed = ALLOWED[platform]
    assert {file: count for file, count in found.items() if count > allowed.get(file, 0)} == {}
    assert {file: count for file, count in allowed.items() if found.get(file, 0) < count} == {}, (
        "write the lower number"
    )


def _named(tree: Nodes, words: re.Pattern[str]) -> int:
    """Lines that name a platform."""
    docstrings = {
        id(body.value)
        for node in tree
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for body in node.body
        if isinstance(body, ast.Expr) and isinstance(body.value, ast.Constant)
    }
    texts = {(getattr(node, "lineno", 0), text) for node in tree if id(node) not in docstrings for text in _texts(node)}
    return len({line for line, text in texts if words.search(text)})


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for field in ("id", "attr", "name", "arg", "module", "asname"):
        if isinstance(value := getattr(node, field, None), str):
            yield value


def test_sections_of_providers_are_those_that_platforms_have() -> None:
    """Findings import no platform, and so have the names a second time."""
    assert set(findings.PROVIDERS) == set(provider_keys())
