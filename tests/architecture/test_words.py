"""Words that make a reader stop: docs/style.md lists them, and what to write instead."""

import ast
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache

import pytest

from tests.architecture.test_sources import PYTHON, ROOT, nodes, texts

STYLE = "docs/style.md"
NOT_READ = ("tests/", "CHANGELOG.md", STYLE)
READ = (".py", ".md", ".sh")
OF_OTHERS = re.compile(r"Wants=|\.wants\b|\.tell\(")
"""Correct in their own field: systemd's and Python's."""


@cache
def words() -> dict[str, str]:
    """Each word of the table in docs/style.md, with what to write instead."""
    section = (
        (ROOT / STYLE).read_text(encoding="utf-8").partition("## Words that stop a reader")[2].partition("\n## ")[0]
    )
    rows = re.findall(r"^\| (`.*?`) \| (.*?) \|$", section, re.MULTILINE)
    return {word: instead for row, instead in rows for word in re.findall("`(.*?)`", row)}


def uses(text: str) -> Counter[str]:
    """Return how often each word is used in a text, in names as well: `_told`, `told_once`."""
    text = OF_OTHERS.sub("", text)
    pattern = "|".join(re.escape(word).replace("\\ ", r"\s+") for word in words())
    return Counter(
        found[0].lower() for found in re.finditer(rf"(?<![A-Za-z])({pattern})(?![A-Za-z])", text, re.IGNORECASE)
    )


@cache
def found() -> dict[str, dict[str, Counter[str]]]:
    """The words of every file of the product, by folder and file."""
    folders: dict[str, dict[str, Counter[str]]] = {}
    for name, text in texts():
        if name.endswith(READ) and not name.startswith(NOT_READ) and (used := uses(text)):
            folders.setdefault(name.split("/")[0], {})[name] = used
    return folders


def test_the_table_is_read() -> None:
    assert words()["told"]
    assert uses("a board was told_once; dashboards") == {"board": 1, "told": 1}


@pytest.mark.parametrize("folder", sorted({name.split("/")[0] for name, _ in texts()}))
def test_these_words_are_not_used(folder: str) -> None:
    files = found().get(folder, {})
    assert not files, {name: {word: words()[word] for word in used} for name, used in files.items()}


FRAGMENTS = ("Those ", "What ", "Of ", "Such ")
"""Beginnings of docstrings whose subject is in the line before, or in no line."""


def fragments(module: Iterable[ast.AST]) -> list[str]:
    """Return the docstrings of a module, of its classes, functions and values, that begin as fragments."""
    return [
        node.value.value
        for node in module
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if node.value.value.startswith(FRAGMENTS)
    ]


def test_docstrings_of_the_product_are_no_fragments() -> None:
    assert fragments(ast.walk(ast.parse('A = 1\n"""Of the cluster."""\n'))) == ["Of the cluster."]
    product = [path for path in PYTHON if path.relative_to(ROOT).parts[0] != "tests"]
    found = {str(path.relative_to(ROOT)): fragments(nodes(path)) for path in product}
    assert {file: texts for file, texts in found.items() if texts} == {}


def test_no_loop_names_its_item_one() -> None:
    """Its name says what the item is."""
    loops = (ast.For, ast.comprehension)
    found = {
        f"{path.relative_to(ROOT)}:{target.lineno}"
        for path in PYTHON
        for node in nodes(path)
        if isinstance(node, loops)
        for target in ast.walk(node.target)
        if isinstance(target, ast.Name) and target.id == "one"
    }
    assert found == set()
