"""Backend URLs by version of the Pulumi CLI, and what else a version needs."""

from urllib.parse import parse_qs, urlsplit

import pytest

from components import state_bucket
from components.nebius.state import backend_url, default_name

OLD = "s3://b?region=eu-north1&endpoint=https%3A%2F%2Fstorage.eu-north1.nebius.cloud%3A443&s3ForcePathStyle=true"
CHECKED = f"{OLD}&request_checksum_calculation=when_required&response_checksum_validation=when_required"
SET = {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required", "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required"}


@pytest.mark.parametrize(
    ("version", "url", "variables"),
    [
        ("v3.100.0", OLD, {}),
        ("3.244.0", OLD, {}),
        ("v3.245.0", CHECKED, SET),
        ("3.255.1", CHECKED, SET),
        ("3.256.0", CHECKED, SET),
        ("v3.272.0", CHECKED, SET),
        ("3.273.0-alpha.1+dirty", CHECKED, SET),
        ("v4.0.0", CHECKED, SET),
    ],
)
def test_each_version_gets_what_it_reads(version: str, url: str, variables: dict[str, str]) -> None:
    cli = state_bucket.parse_version(version)
    assert backend_url("b", "eu-north1", cli) == url
    assert state_bucket.variables(cli) == variables
    assert set(variables) <= {*state_bucket.VARIABLES}


def test_the_endpoint_survives_the_url() -> None:
    query = parse_qs(urlsplit(backend_url("b", "uk-south1", (3, 272))).query)
    assert query["endpoint"] == ["https://storage.uk-south1.nebius.cloud:443"]
    assert query["region"] == ["uk-south1"]


def test_versions_that_may_not_write_are_named() -> None:
    named = [minor for minor in range(240, 275) if state_bucket.defect((3, minor))]
    assert named == [256, 257]
    assert "./hpc install-pulumi" in state_bucket.defect((3, 256))


@pytest.mark.parametrize("text", ["", "v3", "three.four", "pulumi: not found"])
def test_text_that_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal"):
        state_bucket.parse_version(text)


def test_a_projects_bucket_has_the_recipes_hash() -> None:
    # echo -n tenant-e00abc-project-e00def | md5sum
    assert default_name("tenant-e00abc", "project-e00def") == "pulumi-slurm-5c1db113d64732dae00943fb1efef321"
