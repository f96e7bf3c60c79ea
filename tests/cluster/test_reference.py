"""The page that describes a stack file is what the models say now."""

from pathlib import Path

from cluster.reference import json_schema, reference

PAGE = Path(__file__).parents[2] / "docs/reference/stack-file.md"


def test_the_page_is_current():
    assert PAGE.read_text() == reference(), "bring it up to date with: ./hpc schema --write"


def test_it_has_every_key_of_every_section():
    page = reference()
    for section in json_schema()["$defs"].values():
        assert section["description"] in page
        for key in section["properties"]:
            assert f"| `{key}` |" in page
