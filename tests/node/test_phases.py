"""Every phase of the set-up names functions that exist: they are imported when they are called, on the machine."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

MAIN = Path(__file__).parents[2] / "scripts/node/__main__.py"
TREE = ast.parse(MAIN.read_text())


def named() -> list[tuple[str, str]]:
    """Module and function of each `lazy("MODULE", "FUNCTION")`."""
    calls = (node for node in ast.walk(TREE) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lazy")
    return [tuple(ast.literal_eval(argument) for argument in call.args) for call in calls]


@pytest.mark.parametrize(("module", "function"), sorted(set(named())))
def test_the_function_of_a_phase_exists(module: str, function: str):
    assert callable(getattr(import_module(module), function))


def test_the_phases_are_those_that_the_text_describes():
    lines = (ast.get_docstring(TREE) or "").splitlines()
    described = {line.split()[2] for line in lines if line.strip().startswith("python3 FOLDER")}
    assigned = [node.value for node in TREE.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    keys = {ast.literal_eval(key) for table in assigned if isinstance(table, ast.Dict) for key in table.keys if key}
    assert {name.removeprefix("no-") for name in keys} | {"boot", "lost-jobs"} == described
