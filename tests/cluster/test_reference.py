"""The pages that describe a stack file are what the models say now."""

from pathlib import Path

from cluster.reference import json_schema, reference

PAGES = Path(__file__).parents[2] / "docs/reference/stack-file"


def test_the_pages_are_current():
    assert {page.name: page.read_text() for page in PAGES.iterdir()} == reference(), (
        "bring it up to date with: ./hpc schema --write"
    )


def test_it_has_every_key_of_every_section():
    page = "".join(reference().values())
    for section in json_schema()["$defs"].values():
        assert section["description"] in page
        for key in section["properties"]:
            assert f"| `{key}` |" in page
