"""The schema that editors read and the reference pages equal the models, and describe every key."""

import json
from pathlib import Path

import pytest

from cluster.catalog import MACHINE_TYPES
from cluster.config.section import Section
from cluster.stack_file_reference import json_schema, reference, schema_text
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
def test_every_key_has_a_description(section, key):
    found = SCHEMA["$defs"][section]["properties"][key]
    described = found.get("description") or SCHEMA["$defs"][found["$ref"].rpartition("/")[2]]["description"]
    assert described.strip().endswith(".")


def below(section: type[Section]) -> set[type[Section]]:
    """Return all subclasses of a section, direct and indirect."""
    return {kind for child in section.__subclasses__() for kind in (child, *below(child))}


def test_every_section_refuses_unknown_keys():
    assert all(definition["additionalProperties"] is False for definition in SCHEMA["$defs"].values())
    assert {kind.__name__ for kind in below(Section)} >= set(SCHEMA["$defs"])


def test_keys_with_a_platforms_default_are_not_required():
    assert SCHEMA["$defs"]["ClusterConfig"]["required"] == ["platform", "name", "nodesets", "partitions"]
    assert "required" not in SCHEMA["$defs"]["Controller"]
    assert "required" not in SCHEMA["$defs"]["Network"]


def test_platforms_and_machine_types_are_enumerated():
    properties = SCHEMA["$defs"]["ClusterConfig"]["properties"]
    assert properties["platform"]["enum"] == ["local", "gcp", "nebius"]
    assert SCHEMA["$defs"]["Nodeset"]["properties"]["machine_type"]["enum"] == list(MACHINE_TYPES)


def test_the_schema_has_pulumis_own_keys():
    assert set(SCHEMA["properties"]) == {"config", "encryptionsalt", "encryptedkey", "secretsprovider", "environment"}
    assert SCHEMA["additionalProperties"] is False


def test_every_reference_of_the_schema_has_a_definition():
    text = json.dumps(SCHEMA)
    named = {part.split('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert named <= set(SCHEMA["$defs"])


PAGES = Path(__file__).parents[2] / "docs/reference/stack-file"


def test_the_pages_are_current():
    assert {page.name: page.read_text() for page in PAGES.iterdir()} == reference(), (
        "bring it up to date with: ./hpc schema --write"
    )


def test_the_pages_have_every_key_of_every_section():
    page = "".join(reference().values())
    for section in json_schema()["$defs"].values():
        assert section["description"] in page
        for key in section["properties"]:
            assert f"| `{key}` |" in page
