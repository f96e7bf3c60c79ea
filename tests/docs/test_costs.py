"""README's figures and docs/reference/costs.md are what the price rows give for the shipped stacks."""

import re

import pytest

from cli.commands.installation import SHIPPED
from cluster.cost.estimate import estimate
from tests.cluster import stacks
from tests.docs.commands import ROOT

FOUND = {name: estimate(stacks.config(name)) for name in SHIPPED}
PAGE = (ROOT / "docs/reference/costs.md").read_text()


def test_readme_has_the_maximum_of_the_shipped_stacks():
    text = " ".join((ROOT / "README.md").read_text().split())
    figures = re.search(r"the others \$(\d+) to \$(\d+) an hour .*?`([\w-]+)` at most \$([\d,]+)", text)
    assert figures
    least, always, stack, most = figures.groups()
    known = {name: found for name, found in FOUND.items() if name != "a4"}  # whose machines have no list price
    assert int(least) == round(min(found.always for found in known.values()))
    assert int(always) >= max(found.always for found in known.values()) > int(always) - 1
    assert (f"{round(max(found.most for found in FOUND.values())):,}", stack) == (
        most,
        max(FOUND, key=lambda name: FOUND[name].most),
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_the_page_names_what_has_no_price(name: str):
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
    for part in FOUND[name].unknown:
        assert f"`{part.item}`" in line.split("|")[-2]


def test_every_stack_on_a_cloud_is_on_the_page():
    clouds = {
        path.name.split(".")[1]
        for path in ROOT.glob("Pulumi.*.yaml")
        if not re.search(r"^ +platform: local", path.read_text(), re.MULTILINE)
    }
    assert clouds == set(SHIPPED)
