"""The schema that editors read is the models' own, and says of every key what it is for."""

import json
from pathlib import Path

import pytest

from cluster.catalog import MACHINE_TYPES
from cluster.config.section import Section
from cluster.reference import json_schema, reference, schema_text
from tests.cluster.stacks import ROOT

PATH = ROOT / "docs" / "schema" / "cluster.schema.json"
SCHEMA = json_schema()
KEYS = [(section, key) for section, definition in SCHEMA["$defs"].items() for key in definition["properties"]]


def test_the_file_is_current():
    assert PATH.read_text() == schema_text(), "write it with `./hpc schema --write`"


def test_every_stack_file_refers_to_it_in_its_first_line():
    stacks = sorted(ROOT.glob("Pulumi.*.yaml"))
    assert stacks
    for path in stacks:
        first = path.read_text().splitlines()[0]
        assert first == f"# yaml-language-server: $schema={PATH.relative_to(ROOT)}"


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_every_key_says_what_it_is_for(section, key):
    found = SCHEMA["$defs"][section]["properties"][key]
    described = found.get("description") or SCHEMA["$defs"][found["$ref"].rpartition("/")[2]]["description"]
    assert described.strip().endswith(".")


def below(section: type[Section]) -> set[type[Section]]:
    """Every section that is derived from one, directly or not."""
    return {one for child in section.__subclasses__() for one in (child, *below(child))}


def test_every_section_refuses_keys_that_it_does_not_know():
    assert all(definition["additionalProperties"] is False for definition in SCHEMA["$defs"].values())
    assert {one.__name__ for one in below(Section)} >= set(SCHEMA["$defs"])


def test_what_a_platform_fills_in_is_not_asked_for():
    assert SCHEMA["$defs"]["ClusterConfig"]["required"] == ["platform", "name", "nodesets", "partitions"]
    assert "required" not in SCHEMA["$defs"]["Controller"]
    assert "required" not in SCHEMA["$defs"]["Network"]


def test_editors_complete_platforms_that_can_be_built_and_machine_types():
    properties = SCHEMA["$defs"]["ClusterConfig"]["properties"]
    assert properties["platform"]["enum"] == ["local", "gcp", "nebius"]
    assert SCHEMA["$defs"]["Nodeset"]["properties"]["machine_type"]["enum"] == list(MACHINE_TYPES)


def test_pulumis_own_keys_stand_beside_ours():
    assert set(SCHEMA["properties"]) == {"config", "encryptionsalt", "encryptedkey", "secretsprovider", "environment"}
    assert SCHEMA["additionalProperties"] is False


def test_every_reference_leads_somewhere():
    text = json.dumps(SCHEMA)
    named = {part.split('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert named <= set(SCHEMA["$defs"])


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
