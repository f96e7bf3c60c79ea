"""Specs: plain JSON to the SDK's messages and back, what the API does not have, and what differs."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import KINDS
from components.nebius.api.specs import (
    MAPS,
    canonical,
    differing_paths,
    merge_specs,
    message_class,
    observed_spec,
    same,
    spec_message,
    to_full_json,
    to_json,
    value_at,
)

SPECS: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[2] / "golden" / "nebius" / "specs.yaml").read_text()
)
"""A spec of every kind, in the API's JSON form: the shapes that the components send."""


def test_there_is_a_sample_of_every_kind() -> None:
    assert SPECS.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", SPECS)
class TestShapes:
    def test_a_spec_comes_back_as_it_was(self, kind: str) -> None:
        message = spec_message(KINDS[kind], SPECS[kind])
        assert same(to_full_json(message), SPECS[kind])
        again = type(message).FromString(message.SerializeToString())
        assert same(to_full_json(again), SPECS[kind])

    def test_the_state_s_numbers_are_floating_point_and_make_no_difference(self, kind: str) -> None:
        def floats(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: floats(item) for name, item in value.items()}
            if isinstance(value, list):
                return [floats(item) for item in value]
            return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

        wanted = floats(SPECS[kind])
        assert same(wanted, SPECS[kind])
        assert to_full_json(spec_message(KINDS[kind], wanted)) == to_full_json(spec_message(KINDS[kind], SPECS[kind]))

    def test_immutable_fields_are_those_of_the_api(self, kind: str) -> None:
        """And what we know beside that: a subnet stays in its network, an allocation in its pool."""
        told = {path.removesuffix(".cidr") for path in _immutable(message_class(KINDS[kind], f"{kind}Spec"))}
        told = {path.removesuffix(".filesystem_id").removesuffix(".directory") for path in told}
        assert told <= {*KINDS[kind].immutable}
        assert {*KINDS[kind].immutable} - told <= {"network_id"}

    def test_its_maps_are_known(self, kind: str) -> None:
        assert _maps(message_class(KINDS[kind], f"{kind}Spec")) <= MAPS

    def test_clients_and_requests_exist(self, kind: str) -> None:
        row = KINDS[kind]
        client = message_class(row, f"{kind}ServiceClient")
        verbs = ["Create", "Get", "Delete", *(["Update"] if row.updatable else [])]
        assert all(message_class(row, f"{verb}{kind}Request") for verb in verbs)
        assert hasattr(client, row.list_method)
        assert hasattr(client, "update") == row.updatable
        method = client.get_descriptor().FindMethodByName("".join(part.title() for part in row.list_method.split("_")))
        assert method.input_type.name == row.listing
        answer = client.__registry__.message_class(method.output_type.full_name)
        assert row.items in {field.proto_name for field in answer.__FIELDS__}

    def test_states_are_the_api_s(self, kind: str) -> None:
        row = KINDS[kind]
        status: Any = getattr(message_class(row, kind)(), "status", None)
        states: Any = type(status.state) if hasattr(status, "state") else ()
        named = {member.name for member in states}
        assert row.ready | row.failed <= named
        assert not named or row.ready


def _maps(cls: Any, depth: int = 0) -> set[str]:
    found = {field.proto_name for field in cls.__FIELDS__ if field.map}
    for field in cls.__FIELDS__ if depth < 5 else ():
        if field.message and not field.map:
            found |= _maps(type(field.codec.default()), depth + 1)
    return found


def _immutable(cls: Any, path: str = "") -> set[str]:
    found: set[str] = set()
    for field in cls.__FIELDS__:
        here = f"{path}{field.proto_name}"
        if field.immutable or field.immutable_oneof:
            found.add(here)
        if field.message and not field.map and len(path.split(".")) < 4:
            found |= _immutable(type(field.codec.default()), f"{here}.")
    return found


@st.composite
def _parts(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A kind, and a part of its sample with other figures."""

    def part(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            names = [name for name in value if draw(st.integers(0, 3))]
            return {name: part(value[name], f"{path}.{name}") for name in names}
        if isinstance(value, list):
            return [part(item, path) for item in value for _ in range(draw(st.integers(1, 2)))]
        if isinstance(value, int) and not isinstance(value, bool):
            return draw(st.integers(0, 2**31))
        return value

    kind = draw(st.sampled_from(sorted(SPECS)))
    return kind, part(SPECS[kind], kind)


@given(_parts())
def test_parts_of_specs_come_back_as_they_were(given_: tuple[str, dict[str, Any]]) -> None:
    kind, spec = given_
    message = spec_message(KINDS[kind], spec)
    assert same(to_full_json(type(message).FromString(message.SerializeToString())), spec)
    assert spec_message(KINDS[kind], to_full_json(message)).SerializeToString() == message.SerializeToString()
    assert to_full_json(merge_specs(message, spec, spec)) == to_full_json(message)


class TestRefused:
    @pytest.mark.parametrize(
        ("kind", "spec", "said"),
        [
            ("NodeGroup", {"template": {"taints": [{"keyy": "x"}]}}, "keyy"),
            ("Filesystem", {"type": "NETWORK_XSSD"}, "NETWORK_XSSD"),
            ("Filesystem", {"size_gibibytes": 1, "size_bytes": 5}, "size"),
            ("Filesystem", {"size_gibibytes": "much"}, "integer"),
            ("NodeGroup", {"strategy": {"drain_timeout": "10 minutes"}}, "10 minutes"),
        ],
    )
    def test_values_that_do_not_fit(self, kind: str, spec: dict[str, Any], said: str) -> None:
        with pytest.raises(NebiusError, match=said):
            spec_message(KINDS[kind], spec)


_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-(10**18), 10**18), st.text(max_size=5), st.just({}))
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)),
    max_leaves=12,
)
_SPECS = st.dictionaries(st.sampled_from("abcd"), _VALUES, max_size=4)


class TestCompare:
    @given(_SPECS)
    def test_a_spec_is_itself_after_the_state_had_it(self, spec: dict[str, Any]) -> None:
        assert same(spec, json.loads(json.dumps(spec)))
        assert canonical(canonical(spec)) == canonical(spec)

    @given(_SPECS, _SPECS)
    def test_fields_that_the_api_fills_in_are_no_difference(self, spec: dict[str, Any], more: dict[str, Any]) -> None:
        seen = {**{name.upper(): item for name, item in more.items()}, **spec}
        assert same(observed_spec(spec, seen), spec)

    @given(_SPECS, _SPECS)
    def test_observed_values_are_the_actual_ones(self, wanted: dict[str, Any], seen: dict[str, Any]) -> None:
        result = observed_spec(wanted, seen)
        for name, value in wanted.items():
            if not isinstance(value, (dict, list)):
                assert same(result[name], seen.get(name))

    @pytest.mark.parametrize(
        ("one", "other", "equal"),
        [
            ({"a": 2}, {"a": 2.0}, True),
            ({"a": 2}, {"a": "2"}, True),
            ({"a": [1, {"b": 2}]}, {"a": [{"b": "2"}, 1]}, True),
            ({"a": None, "b": False, "c": [], "d": 0, "e": ""}, {}, True),
            ({"a": {}}, {}, False),
            ({"labels": {}}, {}, True),
            ({"a": "02"}, {"a": 2}, False),
            ({"a": True}, {"a": False}, False),
            ({"a": [1, 1]}, {"a": [1]}, False),
        ],
    )
    def test_equal_settings_are_the_same(self, one: Any, other: Any, equal: bool) -> None:
        assert same(one, other) is equal

    def test_observed_items_keep_their_places(self) -> None:
        wanted = [{"subnet_id": "a"}, {"subnet_id": "b"}]
        assert observed_spec(wanted, [{"subnet_id": "b", "dns": "x"}, {"subnet_id": "a", "dns": "y"}]) == wanted
        assert observed_spec(wanted, [{"subnet_id": "a"}, {"subnet_id": "c"}])[1] == {"subnet_id": "c"}
        assert observed_spec(wanted, [{"subnet_id": "a"}]) == [{"subnet_id": "a"}]

    def test_paths(self) -> None:
        olds, news = {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}
        assert differing_paths(olds, news, ("a.b", "a.c", "a.d")) == ["a.c"]
        assert value_at(olds, "a.b.c") is None


class TestMerge:
    def test_fields_that_are_not_named_stay(self) -> None:
        kind = KINDS["NodeGroup"]
        base = spec_message(kind, SPECS["NodeGroup"])
        result = to_full_json(merge_specs(base, {"fixed_node_count": 2}, {"fixed_node_count": 3}))
        assert result == {**to_full_json(base), "fixed_node_count": "3"}

    def test_a_oneof_field_replaces_the_other_one(self) -> None:
        base = spec_message(KINDS["NodeGroup"], {"fixed_node_count": 2})
        news = {"autoscaling": {"min_node_count": 1, "max_node_count": 3}}
        assert same(to_json(merge_specs(base, {}, news)), news)

    def test_removed_fields_are_reset_and_items_keep_fields_of_the_api(self) -> None:
        base = spec_message(
            KINDS["NodeGroup"],
            {"template": {"max_pods": 32, "network_interfaces": [{"subnet_id": "a", "public_ip_address": {}}]}},
        )
        olds = {"template": {"max_pods": 32, "network_interfaces": [{"subnet_id": "a"}]}}
        news = {"template": {"network_interfaces": [{"subnet_id": "b"}, {"subnet_id": "a"}]}}
        merged = {"template": {"network_interfaces": [{"subnet_id": "b"}, {"subnet_id": "a", "public_ip_address": {}}]}}
        assert same(to_json(merge_specs(base, olds, news)), merged)


def test_secrets_are_not_shown() -> None:
    status = message_class(KINDS["AccessKey"], "AccessKeyStatus")(secret="s3cr3t", aws_access_key_id="NAKI")
    assert to_json(status) == {"aws_access_key_id": "NAKI"}
    assert to_full_json(status)["secret"] == "s3cr3t"
