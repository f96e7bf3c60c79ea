"""Constants of the catalogs have a source: in their text or in that of what they are made with."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outside.mutation import ROOT

CATALOG = ROOT / "cluster" / "catalog"
SOURCE = re.compile(r"\bsources?\b|\bours\b|\w\.(com|org|io)\b|\w\.[ch]\b", re.IGNORECASE)
"""The word itself, an address, or a file of C; `ours` for what no other system decides."""


def without_source(text: str) -> Iterator[str]:
    """Constants of a module with numbers or texts of their own, and without a source."""
    tree = ast.parse(text)
    if SOURCE.search(ast.get_docstring(tree) or ""):
        return
    made_with = {
        node.name: ast.get_source_segment(text, node) or ""
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None or not _has_values(node.value):
            continue
        used = {inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name)}
        said = [_with_comments(text, node, after), *(made_with.get(name, "") for name in used)]
        if not any(map(SOURCE.search, said)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name))


def _has_values(value: ast.expr) -> bool:
    """Whether it has a number or a text, other than as a type; a sum of other constants has none."""
    if isinstance(value, (ast.Subscript, ast.JoinedStr)):
        return False
    return any(isinstance(part, ast.Constant) and part.value not in (None, True, False, "") for part in ast.walk(value))


def _with_comments(text: str, node: ast.stmt, after: ast.stmt | None) -> str:
    """A statement with the comments above it and the docstring below."""
    lines, first, last = text.splitlines(), node.lineno - 1, node.end_lineno
    while first and lines[first - 1].startswith("#"):
        first -= 1
    if isinstance(after, ast.Expr):
        last = after.end_lineno
    return "\n".join(lines[first:last])


@pytest.mark.parametrize("file", sorted(CATALOG.rglob("*.py")), ids=lambda file: str(file.relative_to(CATALOG)))
def test_every_constant_has_one(file: Path) -> None:
    assert list(without_source(file.read_text())) == [], "name the source in its docstring"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("LIMIT = 8", ["LIMIT"]),
        ('LIMIT = 8\n"""Of nodes."""', ["LIMIT"]),
        ('LIMIT = 8\n"""Of nodes (example.com/quota)."""', []),
        ("# Source: slurm.h.\nLIMIT = 8", []),
        ("# slurm.h: MAX.\nLIMIT: int = 8", []),
        ('"""Limits. Source: the manual."""\nLIMIT = 8', []),
        ("A, B = 1, 2", ["A", "B"]),
        ("BOTH = A | B\nNAMES = {row.name: row for row in ROWS}\nKind = Literal['a']", []),
        ("class Row:\n    source: str\nROWS = (Row(name='a'),)", []),
        ("class Row:\n    name: str\nROWS = (Row(name='a'),)", ["ROWS"]),
    ],
)
def test_one_without_is_found(text: str, found: list[str]) -> None:
    assert list(without_source(text)) == found
