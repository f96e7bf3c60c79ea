"""docs/reference/nebius-known-problems.md has every known problem, and the tests that it names exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/reference/nebius-known-problems.md"
PROBLEMS = 28
"""Known problems of Soperator, its recipe and Nebius that this program was built with in mind."""
TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def table() -> dict[int, list[str]]:
    """Cells of each row, by its number."""
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.read_text().splitlines() if "|" in line
    ]
    return {int(row[0]): row for row in cells if row[0].isdecimal()}


def names(file: Path) -> set[str]:
    """Tests of a file: `test_x`, `TestClass::test_x`."""
    tree = ast.parse(file.read_text())
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


def test_every_problem_is_there_once() -> None:
    assert list(table()) == list(range(1, PROBLEMS + 1))


@pytest.mark.parametrize("number", range(1, PROBLEMS + 1))
def test_each_says_what_happens_here_and_which_test_proves_it(number: int) -> None:
    row = table()[number]
    assert len(row) == 5
    assert re.match(r"(Prevented|Waited for|Named|Does not occur)\b", row[3])
    assert TEST.findall(row[4])


@pytest.mark.parametrize("number", range(1, PROBLEMS + 1))
def test_the_tests_exist(number: int) -> None:
    missing = [
        f"{file}::{name}"
        for file, name in TEST.findall(table()[number][4])
        if not (ROOT / file).exists() or name not in names(ROOT / file)
    ]
    assert missing == []


def test_a_test_that_does_not_exist_is_found() -> None:
    here = names(Path(__file__))
    assert "test_the_tests_exist" in here
    assert "test_that_is_nowhere" not in here
    assert "table" not in here
