"""What the pages on Nebius and on state say of fields, variables and stack files is so."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from cli.backends import buckets
from cluster.load.parse import parse
from cluster.platforms.nebius.section import Nebius
from components.gcp import environment as google
from components.nebius import environment as nebius

DOCS = Path(__file__).parents[3] / "docs"
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
        model = next((one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel)), None)


def test_the_variables_of_the_page_are_those_that_env_sets() -> None:
    text = (DOCS / "guides/state.md").read_text()
    table = text.partition("| variable | value |")[2].partition("\n\n")[0]
    names = {name for line in table.splitlines() for name in re.findall(r"`([A-Z_]{5,})`", line.split(" | ")[0])}
    state = {"PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE_FILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    assert names == {*google.VARIABLES, *nebius.VARIABLES, *buckets.VARIABLES, *state}
