"""What holds for a stack on Nebius: made, previewed, and with everything unknown."""

import json

import pytest

from cluster.load import parse_output
from cluster.platforms.nebius.node_groups import node_groups
from cluster.roster import machines
from tests.cluster import stacks
from tests.cluster.nebius.clusters import settings
from tests.contract.seen import MODES, Seen, components_of, record
from tests.harness import deploy

STACK = "nebius"
DYNAMIC = "pulumi-python:dynamic/nebius:"
FILESYSTEM = f"{DYNAMIC}Filesystem"


@pytest.fixture(params=MODES)
def seen(request: pytest.FixtureRequest) -> Seen:
    return record(STACK, request.param)


def test_components_are_named_after_their_class() -> None:
    own = {f"hpc:nebius:{one.__name__}" for one in components_of("components.nebius")}
    used = {one.type for one in record(STACK, "made").recording.resources if one.type.startswith("hpc:")}
    assert own
    assert used <= own | {"hpc:slurm:ClusterKeys"}


def test_the_platform_is_the_parent_of_all_and_replaces_nothing_of_a_cluster_that_is_up(seen: Seen) -> None:
    platform, *others = (one for one in seen.recording.resources if one.parent == "" or "$" not in one.urn)
    assert platform.type == "hpc:nebius:NebiusPlatform"
    assert [one.type for one in others if one.type.startswith("hpc:nebius:")] == []
    parts = {one.type: one.request.aliases for one in seen.recording.resources if one.parent == platform.urn}
    assert set(parts) == {"hpc:nebius:Infrastructure", "hpc:nebius:Slurm"}
    assert all(alias.spec.noParent for aliases in parts.values() for alias in aliases)
    assert all(parts.values())


def test_everything_is_part_of_a_component_that_is_complete(seen: Seen) -> None:
    own = {one.urn: one for one in seen.recording.resources if not one.custom}
    for one in seen.recording.resources:
        if one.custom:
            assert one.parent in own, f"{one.name} is nobody's child"
            assert one.name.startswith(seen.config.name)
        else:
            assert one.urn in seen.recording.registered_outputs, f"{one.type} does not say that it is complete"


def test_no_token_is_in_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEBIUS_IAM_TOKEN", "token-of-a-person")
    recording = deploy(STACK)
    everything = [one.inputs for one in recording.resources] + [*recording.registered_outputs.values()]
    assert "token-of-a-person" not in json.dumps(everything)


@pytest.mark.parametrize("protected", [True, False])
def test_file_systems_are_kept_where_the_stack_says_so(protected: bool) -> None:
    given = stacks.load(STACK)
    given["hpc:cluster"]["deletion_protection"] = protected
    recording = deploy(given)
    data = {one.name for one in recording.all(FILESYSTEM)}
    assert len(data) == 4
    kept = {one.name for one in recording.resources if one.request.retainOnDelete}
    assert kept & data == (data if protected else set())


def test_there_is_a_node_group_for_each_of_the_plan(seen: Seen) -> None:
    groups = {one.name: one for one in node_groups(seen.config, settings(seen.config))}
    made = {one.inputs["resource_name"]: one for one in seen.recording.all(f"{DYNAMIC}NodeGroup")}
    assert set(made) == set(groups)
    for name, group in groups.items():
        spec = made[name].inputs["spec"]
        assert spec["template"]["resources"] == {"platform": group.platform, "preset": group.preset}
        assert spec.get("fixed_node_count") == group.count
        strategy = {"max_unavailable": {"count": group.unavailable}, "max_surge": {"count": 0}, "drain_timeout": "600s"}
        assert spec["strategy"] == strategy


SECRETS = {"hpc:slackUrl": "https://hooks.example.org/secret-of-slack", "hpc:webhookUrl": "https://example.org/hook"}


class TestMonitoring:
    def given(self) -> dict[str, object]:
        given = stacks.load(STACK)
        given["hpc:cluster"]["monitoring"] = {"receivers": {"slack": "#alerts", "webhook": True}}
        return given

    def test_its_secrets_are_a_secret_and_its_dashboards_config_maps(self) -> None:
        recording = deploy({**self.given(), **SECRETS})
        (secret,) = (one for one in recording.all("kubernetes:core/v1:Secret") if "hpc-alerts" in one.name)
        assert secret.inputs["metadata"]["namespace"] == "monitoring-system"
        charts = recording.all("kubernetes:helm.sh/v3:Release")
        (stack,) = (one for one in charts if one.inputs["name"] == "victoria-metrics-k8s-stack")
        assert recording.waits_for(stack, secret)
        assert "secret-of-slack" not in json.dumps([one.inputs for one in charts])
        maps = recording.all("kubernetes:core/v1:ConfigMap")
        assert len(maps) == 8
        for one in maps:
            ((name, text),) = one.inputs["data"].items()
            assert json.loads(text)["title"]
            assert one.inputs["metadata"]["labels"] == {"grafana_dashboard": "1"}, name
            assert len(text) < 1 << 18  # an annotation of kubectl's holds no more
        leftovers = recording.one("soperator-leftovers")
        assert leftovers.inputs["namespaces"] == ["soperator", "monitoring-system"]

    def test_a_secret_that_is_missing_stops_the_run_before_anything_is_made(self) -> None:
        with pytest.raises(Exception, match="hpc:slackUrl"):
            deploy(self.given())


class TestOutputs:
    def test_they_are_these(self, seen: Seen) -> None:
        common = {"admin_key", "cluster", "config", "login", "platform", "targets", "users"}
        assert common | {"kubernetes", "address", "kubeconfig", "ssh"} <= set(seen.recording.outputs)

    def test_the_configuration_can_be_read_back(self, seen: Seen) -> None:
        exported = seen.recording.outputs["config"]
        if exported is None:
            assert not seen.known  # nothing is made yet, so nothing runs with it
            return
        assert parse_output(exported) == seen.config

    def test_every_pod_is_there_with_how_to_reach_it(self, seen: Seen) -> None:
        targets = seen.recording.outputs["targets"]
        assert set(targets) == {one.name for one in machines(seen.config)}
        for machine in machines(seen.config):
            assert targets[machine.name]["roles"] == list(machine.roles)
            assert targets[machine.name]["method"] == "kubectl"
            assert targets[machine.name]["namespace"] == seen.config.name
