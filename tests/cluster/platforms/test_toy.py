"""One line registers a platform: load, checks, impact, schema, reference and preview summary work on it."""

from collections.abc import Iterator
from typing import Any

import pytest

from cluster.config.cluster import ClusterConfig
from cluster.config.impact import Effect
from cluster.findings import ConfigError
from cluster.impact.table import effects
from cluster.load import find_warnings, parse, parse_output
from cluster.platforms import registry
from cluster.reference import json_schema, reference
from tests.cluster.platforms import toy
from tests.cluster.stacks import cloud_findings, findings_of, local


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with registry.registered("toy", toy.MODULE):
        yield


def stack(pods: object = None, **changes: Any) -> dict[str, Any]:
    given = {"project": "mine"} if pods is None else pods
    return {"hpc:cluster": local(platform="toy", pods=given, **changes)}


def test_the_section_is_read_with_the_platforms_defaults() -> None:
    config = parse(stack())
    assert config.section(toy.Pods) == toy.Pods(project="mine")
    assert config.network.cidr == "10.90.0.0/20"
    assert isinstance(config, ClusterConfig)


def test_the_output_is_read_as_it_was_given() -> None:
    config = parse(stack())
    assert parse_output(config.model_dump_json(exclude_unset=True)) == config


@pytest.mark.parametrize(
    ("pods", "where", "id_"),
    [
        ({"project": "mine", "replicas": 4}, "pods.replicas", "pods-replicas"),
        ({}, "pods.project", "value-missing"),
        ({"project": "mine", "replica": 2}, "pods.replica", "key-unknown"),
    ],
)
def test_errors_of_the_section_are_found(pods: dict[str, Any], where: str, id_: str) -> None:
    assert {place: one.id for place, one in findings_of(stack(pods)).items()} == {where: id_}


def test_fields_of_other_platforms_are_refused_from_the_lists() -> None:
    found = findings_of(
        stack(storage={"filestore": {"mount": "/data"}}, nodesets={"cpu": {"addresses": "10.90.8.0/24"}})
    )
    assert {place: one.allowed for place, one in found.items()} == {
        "storage.filestore": "nothing on toy: filestore is for Google Cloud",
        "nodesets.cpu.addresses": "nothing on toy: addresses is for local machines",
    }


def test_the_section_is_refused_on_other_platforms() -> None:
    on_local = findings_of({"hpc:cluster": local(pods={"project": "mine"})})
    on_cloud = cloud_findings({"pods": {"project": "mine"}})
    assert [one.allowed for one in (*on_local.values(), *on_cloud.values())] == [
        "nothing on local: pods is for Toy",
        "nothing on gcp: pods is for Toy",
    ]


def test_warnings_and_the_summary_are_the_platforms() -> None:
    assert [one.id for one in find_warnings(parse(stack(login={"count": 2})))] == ["pods-login"]
    assert registry.get("toy").summary(parse(stack())) == ["pods of mine"]


def test_impacts_are_those_of_the_field_and_of_the_platform() -> None:
    changes = effects(parse(stack()), parse(stack({"project": "other", "replicas": 2})), "toy")
    assert [(one.path, one.effect) for one in changes] == [
        ("pods.project", Effect.REPLACE),
        ("pods.replicas", Effect.NOTHING),
    ]


def test_schema_and_reference_have_the_section() -> None:
    cluster = json_schema()["$defs"]["ClusterConfig"]["properties"]
    assert cluster["platform"]["enum"] == ["local", "gcp", "nebius", "toy"]
    assert cluster["pods"]["$ref"] == "#/$defs/Pods"
    assert "| `replicas` | Copies of each pod." in "".join(reference().values())


def test_nothing_is_left_of_a_platform_that_is_no_longer_registered() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(registry.MODULES, "toy")
        with pytest.raises(ConfigError, match="local, gcp"):
            parse(stack())
        assert "pods" not in json_schema()["$defs"]["ClusterConfig"]["properties"]
