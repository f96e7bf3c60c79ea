"""Properties of a stack on Nebius: made, previewed, and with all outputs unknown."""

import json

import pytest

from cluster.load import parse_output
from cluster.platforms.nebius.node_groups import node_groups
from cluster.roster import machines
from tests.cluster import stacks
from tests.cluster.nebius.clusters import settings
from tests.contract.recorded import MODES, StackRun, components_of, record, unnamed
from tests.harness import deploy

STACK = "nebius"
DYNAMIC = "pulumi-python:dynamic/nebius:"
FILESYSTEM = f"{DYNAMIC}Filesystem"


@pytest.fixture(params=MODES)
def run(request: pytest.FixtureRequest) -> StackRun:
    return record(STACK, request.param)


def test_the_class_of_a_component_has_the_name_of_its_type() -> None:
    used = {resource.type for resource in record(STACK, "made").recording.resources if resource.type.startswith("hpc:")}
    assert unnamed(used - {"hpc:slurm:ClusterKeys"}, components_of("components.nebius")) == (set(), set())


def test_the_platform_is_the_parent_of_all_resources(run: StackRun) -> None:
    platform, *others = (
        resource for resource in run.recording.resources if resource.parent == "" or "$" not in resource.urn
    )
    assert platform.type == "hpc:nebius:NebiusPlatform"
    assert [other.type for other in others if other.type.startswith("hpc:nebius:")] == []
    parts = {
        resource.type: resource.request.aliases
        for resource in run.recording.resources
        if resource.parent == platform.urn
    }
    assert set(parts) == {"hpc:nebius:Infrastructure", "hpc:nebius:Slurm"}
    assert all(alias.spec.noParent for aliases in parts.values() for alias in aliases)
    assert all(parts.values())


def test_everything_is_part_of_a_component_that_is_complete(run: StackRun) -> None:
    own = {resource.urn: resource for resource in run.recording.resources if not resource.custom}
    for resource in run.recording.resources:
        if resource.custom:
            assert resource.parent in own, f"{resource.name} is nobody's child"
            assert resource.name.startswith(run.config.name)
        else:
            assert resource.urn in run.recording.registered_outputs, f"{resource.type} does not say that it is complete"


def test_no_token_is_in_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEBIUS_IAM_TOKEN", "token-of-a-person")
    recording = deploy(STACK)
    everything = [resource.inputs for resource in recording.resources] + [*recording.registered_outputs.values()]
    assert "token-of-a-person" not in json.dumps(everything)


@pytest.mark.parametrize("protected", [True, False])
def test_file_systems_are_protected_if_the_stack_asks_for_it(protected: bool) -> None:
    given = stacks.load(STACK)
    given["hpc:cluster"]["deletion_protection"] = protected
    recording = deploy(given)
    data = {filesystem.name for filesystem in recording.all(FILESYSTEM)}
    assert len(data) == 4
    kept = {resource.name for resource in recording.resources if resource.request.retainOnDelete}
    assert kept & data == (data if protected else set())


def test_there_is_a_node_group_for_each_of_the_plan(run: StackRun) -> None:
    groups = {node_group.name: node_group for node_group in node_groups(run.config, settings(run.config))}
    made = {group.inputs["resource_name"]: group for group in run.recording.all(f"{DYNAMIC}NodeGroup")}
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

    def test_secrets_are_a_secret_and_dashboards_config_maps(self) -> None:
        recording = deploy({**self.given(), **SECRETS})
        (secret,) = (
            secret_object
            for secret_object in recording.all("kubernetes:core/v1:Secret")
            if "hpc-alerts" in secret_object.name
        )
        assert secret.inputs["metadata"]["namespace"] == "monitoring-system"
        charts = recording.all("kubernetes:helm.sh/v3:Release")
        (stack,) = (chart for chart in charts if chart.inputs["name"] == "victoria-metrics-k8s-stack")
        assert recording.waits_for(stack, secret)
        assert "secret-of-slack" not in json.dumps([chart.inputs for chart in charts])
        maps = recording.all("kubernetes:core/v1:ConfigMap")
        assert len(maps) == 8
        for row in maps:
            ((name, text),) = row.inputs["data"].items()
            assert json.loads(text)["title"]
            assert row.inputs["metadata"]["labels"] == {"grafana_dashboard": "1"}, name
            assert len(text) < 1 << 18  # an annotation of kubectl's holds no more
        leftovers = recording.one("soperator-leftovers")
        assert leftovers.inputs["namespaces"] == ["soperator", "monitoring-system"]

    def test_a_missing_secret_stops_the_run_before_any_resource(self) -> None:
        with pytest.raises(Exception, match="hpc:slackUrl"):
            deploy(self.given())


class TestOutputs:
    def test_they_are_these(self, run: StackRun) -> None:
        common = {"admin_key", "cluster", "config", "login", "platform", "targets", "users"}
        assert common | {"kubernetes", "address", "kubeconfig", "ssh"} <= set(run.recording.outputs)

    def test_the_configuration_can_be_read_back(self, run: StackRun) -> None:
        exported = run.recording.outputs["config"]
        if exported is None:
            assert not run.known  # nothing is made yet, so nothing runs with it
            return
        assert parse_output(exported) == run.config

    def test_outputs_have_every_pod_with_its_connection(self, run: StackRun) -> None:
        targets = run.recording.outputs["targets"]
        assert set(targets) == {machine.name for machine in machines(run.config)}
        for machine in machines(run.config):
            assert targets[machine.name]["roles"] == list(machine.roles)
            assert targets[machine.name]["method"] == "kubectl"
            assert targets[machine.name]["namespace"] == run.config.name
