"""Pages on Nebius and on state: known problems and the tests of each; only fields and variables that there are."""

import ast
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from cluster.load import parse
from cluster.platforms.nebius.stack_file_fields import Nebius
from components import state_bucket
from components.gcp import environment as google
from components.nebius import environment as nebius

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/nebius-known-problems.md"
PROBLEMS = 33
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
            found |= {f"{node.name}::{method.name}" for method in node.body if isinstance(method, ast.FunctionDef)}
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


DOCS = Path(__file__).parents[2] / "docs"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFjY2VwdGVkLWJ5LW5vYm9keS1hdC1hbGwtLS0t alice@laptop"


def test_the_stack_file_of_the_page_has_no_errors() -> None:
    (block,) = re.findall(r"```yaml\n(config:.*?)```", (DOCS / "guides/nebius.md").read_text(), re.DOTALL)
    config = parse(yaml.safe_load(block.replace("ssh-ed25519 AAAA...", KEY))["config"])
    assert config.platform == "nebius"
    assert config.nodesets["worker"].count == 2


def fields(page: str) -> list[str]:
    """Fields of the section that a page names."""
    found = re.findall(r"`nebius\.([a-z_.]+[a-z])[`:]", (DOCS / page).read_text())
    return sorted(set(found) - {"com"})


@pytest.mark.parametrize(
    ("page", "field"),
    [
        (page, field)
        for page in ("guides/nebius.md", "reference/nebius-known-problems.md", "guides/state.md")
        for field in fields(page)
    ],
)
def test_fields_that_are_named_exist(page: str, field: str) -> None:
    model: Any = Nebius
    for name in field.split("."):
        assert name in model.model_fields, field
        kinds = [model.model_fields[name].annotation, *get_args(model.model_fields[name].annotation)]
        model: Any = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def test_the_variables_of_the_page_are_those_that_env_sets() -> None:
    text = (DOCS / "guides/state.md").read_text()
    table = text.partition("| variable | value |")[2].partition("\n\n")[0]
    names = {name for line in table.splitlines() for name in re.findall(r"`([A-Z_]{5,})`", line.split(" | ")[0])}
    state = {"PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE_FILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    assert names == {*google.VARIABLES, *nebius.VARIABLES, *state_bucket.VARIABLES, *state}
