"""`customize` changes inputs of matching resources only, and unknown inputs are refused before any resource."""

from functools import cache
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.config.cluster import Customize
from cluster.platforms.gcp.checks import CUSTOMIZE_INPUTS
from components.gcp.customize import Customizer, Inputs, inputs_of, merge
from tests.clouds import google, settings
from tests.cluster import stacks
from tests.contract.recorded import record
from tests.harness import Recording, deploy

INSTANCE, FROM_TEMPLATE = "gcp:compute/instance:Instance", "gcp:compute/instanceFromTemplate:InstanceFromTemplate"
ENTRIES: list[dict[str, Any]] = [
    {
        "type": INSTANCE,
        "name": "*-login-*",
        "set": {
            "labels": {"team": "ml"},
            "description": "for people",
            "scheduling": {"min_node_cpus": 4},
            "guest_accelerators": [{"type": "nvidia-tesla-t4", "count": 1}],
        },
    },
    {"type": FROM_TEMPLATE, "name": "cloud-cpu-[0]", "set": {"metadata": {"serial-port-enable": "TRUE"}}},
    {"type": "gcp:compute/network:Network", "set": {"description": None}},
]


@cache
def made(*, customized: bool) -> Recording:
    return deploy(settings(customize=ENTRIES if customized else []), preview=False)


def inputs(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A resource's inputs without and with the entries."""
    before, after = (made(customized=customized).one(name).inputs for customized in (False, True))
    return before, after


class TestStack:
    def test_mappings_merge_and_values_replace(self):
        before, after = inputs("cloud-login-0")
        assert after["labels"] == {**before["labels"], "team": "ml"}
        assert after["description"] == "for people"
        assert after["guestAccelerators"] == [{"type": "nvidia-tesla-t4", "count": 1}]

    def test_parts_of_the_providers_own_classes_merge_too(self):
        before, after = inputs("cloud-login-0")
        assert after["scheduling"] == {**before["scheduling"], "minNodeCpus": 4}

    def test_nodes_from_a_template_match_a_pattern(self):
        before, after = inputs("cloud-cpu-0")
        assert after["metadata"] == {**before["metadata"], "serial-port-enable": "TRUE"}
        assert after.keys() == before.keys()
        before, after = inputs("cloud-cpu-1")
        assert after == before

    def test_null_removes_an_input(self):
        name = next(resource.name for resource in made(customized=True).all("gcp:compute/network:Network"))
        before, after = inputs(name)
        assert "description" in before
        assert after == {key: value for key, value in before.items() if key != "description"}

    def test_other_inputs_stay(self):
        touched = {resource.name for resource in made(customized=True).all("gcp:compute/network:Network")}
        touched |= {"cloud-login-0", "cloud-cpu-0"}
        before, after = (
            {
                (resource.type, resource.name): resource.inputs
                for resource in made(customized=value).resources
                if resource.name not in touched
            }
            for value in (False, True)
        )
        assert {key: value for key, value in after.items() if key[0].startswith("gcp:")} == {
            key: value for key, value in before.items() if key[0].startswith("gcp:")
        }

    @pytest.mark.parametrize("unknown", [False, True])
    def test_unknown_outputs_can_be_customized(self, unknown):
        recording = deploy(settings(customize=ENTRIES), preview=True, unknown=unknown)
        assert recording.one("cloud-login-0").inputs["labels"]["team"] == "ml"


class TestRefusals:
    @pytest.mark.parametrize(
        ("entry", "place", "todo"),
        [
            ({"type": "gcp:compute/instnce:Instance", "set": {"a": 1}}, "customize[0].type", f"write {INSTANCE}"),
            ({"type": INSTANCE, "set": {"labelz": {}}}, "customize[0].set.labelz", "write labels"),
            ({"type": INSTANCE, "set": {"labels": {"a": 1}}}, "customize[0].set.labels.a", 'text, e.g. "1"'),
            ({"type": INSTANCE, "set": {"labels": "a"}}, "customize[0].set.labels", "a mapping"),
            ({"type": INSTANCE, "set": {"can_ip_forward": "yes"}}, "set.can_ip_forward", "true or false"),
            ({"type": INSTANCE, "set": {"tags": "web"}}, "customize[0].set.tags", "a list"),
            ({"type": INSTANCE, "set": {"scheduling": {"preemptable": True}}}, "scheduling.preemptable", "preemptible"),
            ({"type": INSTANCE, "set": {"guest_accelerators": [{"typ": "t4"}]}}, "[0].typ", "write type"),
        ],
    )  # fmt: skip
    def test_unknown_inputs_are_refused(self, entry, place, todo):
        # Labels that are no mapping are refused by the stack's own rules as well, before any resource.
        config = google().model_copy(update={"customize": _entries(entry)})
        with pytest.raises(pulumi.RunError) as error:
            Customizer(config)
        assert place in str(error.value)
        assert todo in str(error.value)

    def test_all_errors_are_reported_at_once(self):
        config = google(customize=[{"type": INSTANCE, "set": {"labelz": 1, "descripton": "x"}}])
        with pytest.raises(pulumi.RunError, match="2 errors in the stack configuration"):
            Customizer(config)

    def test_every_input_that_is_protected_is_one_of_a_type_that_stacks_have(self):
        types = {resource.type for name in stacks.STACKS for resource in record(name, "made").recording.resources}
        known = [inputs_of(token) for token in types if token.startswith("gcp:")]
        assert {name for inputs in known if isinstance(inputs, Inputs) for name in inputs.hints} >= CUSTOMIZE_INPUTS


class TestReport:
    def warned(self, monkeypatch: pytest.MonkeyPatch, **entry: Any) -> list[str]:
        warnings: list[str] = []
        monkeypatch.setattr(pulumi.log, "warn", warnings.append)
        deploy(settings(customize=[{"set": {"description": "x"}, **entry}]))
        return warnings

    def test_a_pattern_that_matches_nothing_is_a_warning_with_the_names(self, monkeypatch):
        (text,) = self.warned(monkeypatch, type=INSTANCE, name="*-logins-*")
        assert text == (
            "hpc:cluster.customize[0] matches no resource (gcp:compute/instance:Instance, *-logins-*): names of that "
            "type: cloud-controller, cloud-login-0"
        )

    def test_a_type_without_resources_is_a_warning(self, monkeypatch):
        (text,) = self.warned(monkeypatch, type="gcp:compute/snapshot:Snapshot")
        assert "the stack has no such type" in text

    def test_a_matching_pattern_is_no_warning(self, monkeypatch):
        assert self.warned(monkeypatch, type=INSTANCE) == []


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(st.sampled_from("abcd"), PLAIN, max_size=4)


class TestMerge:
    @given(MAPPINGS, MAPPINGS)
    def test_a_change_applied_twice_is_the_same_as_once(self, old, change):
        assert merge(merge(old, change), change) == merge(old, change)

    @given(MAPPINGS, MAPPINGS)
    def test_a_merged_key_comes_from_the_change_or_from_the_old_value(self, old, change):
        merged = merge(old, change)
        assert set(merged) == (set(old) - set(change)) | {key for key, value in change.items() if value is not None}
        for key, value in merged.items():
            if key not in change:
                assert value == old[key]
            elif isinstance(change[key], dict):
                assert value == merge(old.get(key), change[key])
            else:
                assert value == change[key]

    @given(MAPPINGS)
    def test_an_empty_change_changes_nothing(self, old):
        assert merge(old, {}) == old


def _entries(*entries: dict[str, Any]) -> Any:
    return tuple(Customize.model_validate(entry) for entry in entries)
