"""Resources of a stack on Nebius over mocks: what is registered, in which order, and what nobody may read."""

import re
from functools import cache

import pytest
import yaml

from tests.components.graphs import graph
from tests.harness import FAKES, ROOT, Recording, deploy

STATUS = {
    "Cluster": {
        "control_plane": {
            "endpoints": {"public_endpoint": "https://k8s.example"},
            "auth": {"cluster_ca_certificate": "-----BEGIN CERTIFICATE-----\nfake\n"},
        }
    },
    "Allocation": {"details": {"allocated_cidr": "192.0.2.7/32"}},
    "Bucket": {"domain_name": "storage.eu-north1.nebius.cloud", "region": "eu-north1"},
    "AccessKey": {"aws_access_key_id": "AKIDFAKE"},
}
KEY = "secret-of-the-access-key"
FILE = "Pulumi.nebius.yaml"
RELEASE = "kubernetes:helm.sh/v3:Release"


def given(**changes):
    cluster = yaml.safe_load((ROOT / FILE).read_text())["config"]["hpc:cluster"]
    return {"hpc:cluster": {**cluster, **changes}}


@pytest.fixture(autouse=True)
def _fakes(monkeypatch):
    for kind, status in STATUS.items():
        secret = {"secret": KEY} if kind == "AccessKey" else {}
        monkeypatch.setitem(
            FAKES, f"pulumi-python:dynamic/nebius:{kind}", lambda i, s=status, x=secret: {**i, "status": s, **x}
        )
    monkeypatch.setitem(
        FAKES,
        "pulumi-python:dynamic/nebius:Wait",
        lambda i: {**i, "facts": {"address": "192.0.2.7", "port": 22} if i["kind"] == "login" else {}},
    )


@cache
def recorded() -> Recording:
    return deploy(given())


def release(recording, name):
    (found,) = [r for r in recording.all(RELEASE) if r.inputs.get("name") == name]
    return found


class TestOrder:
    @pytest.mark.parametrize(
        ("later", "earlier"),
        [
            ("charts-soperator", "charts-kruise"),
            ("charts-slurm-cluster-storage", "charts-soperator"),
            ("charts-slurm-cluster", "charts-slurm-cluster-storage"),
            ("charts-nodesets", "charts-slurm-cluster"),
            ("charts-soperator-activechecks", "charts-slurm-cluster"),
            ("charts-soperator", "definitions"),
            ("charts-cert-manager", "wait-api"),
            # Soperator creates the Service once the jail is populated, which takes longer than nebius.timeouts.login.
            ("wait-login", "wait-available"),
            # What Kubernetes holds is ended after charts and before nodes.
            ("charts-slurm-cluster", "teardown-volumes"),
            # Backups are deleted after all that may write them, and before the bucket and the key to it.
            ("charts-soperator-backup-config", "backups-contents"),
            ("nodes-worker-worker-0", "backups-contents"),
            ("backups-contents", "backups-bucket"),
            ("backups-contents", "backups-key"),
            ("backups-contents", "backups-permit"),
        ],
    )
    def test_one_comes_after_another(self, later, earlier):
        recording = recorded()
        charts = {f"charts-{chart.inputs['name']}": chart for chart in recording.all(RELEASE)}
        first, second = (
            charts.get(name) or recording.one(f"{recording.outputs['cluster']}-{name}") for name in (earlier, later)
        )
        assert recording.waits_for(second, first)

    def test_namespaces_that_exist_are_taken_over(self):
        recording = recorded()
        provider = recording.one(f"{recording.outputs['cluster']}-charts-provider")
        assert provider.inputs["upsertExistingObjects"] == "true"

    def test_slurm_waits_for_nodes_which_change_after_jobs_have_left_them(self):
        recording = recorded()
        name = recording.outputs["cluster"]
        assert recording.one(f"{name}-definitions").inputs["chart"]["chart"] == "helm-soperator"
        for group in recording.all("pulumi-python:dynamic/nebius:NodeGroup"):
            assert recording.waits_for(release(recording, "slurm-cluster-storage"), group)
            assert recording.waits_for(group, recording.one(f"{name}-drain"))
            assert recording.waits_for(recording.one(f"{name}-teardown-volumes"), group)
        for chart in recording.all(RELEASE):
            assert recording.waits_for(recording.one(f"{name}-teardown-charts"), chart), f"{chart.name} would go before"

    def test_checks_are_installed_after_their_user_has_an_account(self):
        """With AccountingStorageEnforce Slurm refuses jobs of a user without one, and no check is tried twice."""
        recording = recorded()
        people = recording.one(f"{recording.outputs['cluster']}-people")
        assert recording.waits_for(release(recording, "soperator-activechecks"), people)
        assert people.inputs["people"]["checks_user"] == "soperatorchecks"

    def test_everything_in_the_cloud_is_deleted_before_what_is_left_is_looked_for(self):
        recording = recorded()
        first = [recording.one(f"{recording.outputs['cluster']}-{name}") for name in ("leftovers", "chart-versions")]
        kinds = ("Filesystem", "Cluster", "NodeGroup", "Allocation", "Bucket", "GpuCluster", "FirstSubnet")
        found = [resource for kind in kinds for resource in recording.all(f"pulumi-python:dynamic/nebius:{kind}")]
        assert found
        assert all(recording.waits_for(item, earlier) for item in found for earlier in first)


class TestSecrets:
    def test_none_is_in_clear(self):
        recording = recorded()
        for resource in recording.resources:
            assert KEY not in str(resource.shown), resource.name
        secret = recording.one(f"{recording.outputs['cluster']}-charts-jail-backup")
        assert secret.secret("stringData")

    def test_how_kubernetes_is_reached_names_a_command_and_no_token(self):
        access = recorded().outputs["kubernetes"]
        assert set(access) == {"server", "certificate_authority", "command", "context", "namespace"}
        assert access["command"] == [], "this program, wherever it is"
        assert str(ROOT) not in str([resource.shown for resource in recorded().resources])


class TestCharts:
    def test_only_another_cluster_replaces_what_is_in_it(self):
        """Without its identity, a new certificate, or a cluster that is only updated, would replace every chart; and a
        login that has expired would remove them from the state at a refresh."""
        recording = recorded()
        inputs = recording.one(f"{recording.outputs['cluster']}-charts-provider").inputs
        assert inputs["clusterIdentifier"] == f"{recording.outputs['cluster']}-kubernetes-mk8s-id"
        assert not inputs.get("deleteUnreachable")

    def test_hooks_that_are_off_are_off_for_upgrades_too(self):
        for resource in recorded().all(RELEASE):
            off = resource.inputs["name"] == "soperator-activechecks"
            assert (resource.inputs["disableWebhooks"], resource.inputs["disableCRDHooks"]) == (off, off), resource.name


class TestBackups:
    def test_names_are_the_states_own(self):
        """Buckets' names are unique among all customers, groups' in a tenant, and a bucket may outlive its stack."""
        recording = recorded()
        cluster = recording.outputs["cluster"]
        owner = recording.one(f"{cluster}-backups-bucket").inputs["owner"]
        names = {item: recording.one(f"{cluster}-backups-{item}").inputs for item in ("bucket", "group", "key")}
        assert {name["resource_name"] for name in names.values()} == {f"{cluster}-backups-{owner[:8]}"}
        values = release(recording, "soperator-backup-config").inputs["values"]
        assert names["bucket"]["resource_name"] in str(values)


class TestOutputs:
    def test_targets_are_pods(self):
        targets = recorded().outputs["targets"]
        assert targets["controller-0"]["container"] == "slurmctld"
        assert targets["login-0"] == {
            "method": "kubectl", "roles": ["login"], "pod": "login-0", "container": "sshd",
            "namespace": recorded().outputs["cluster"], "jail": "/mnt/jail",
        }  # fmt: skip

    def test_the_address_is_that_of_the_login_service(self):
        outputs = recorded().outputs
        assert (outputs["address"], outputs["ssh"]) == ("192.0.2.7", "ssh root@192.0.2.7")

    def test_the_kubeconfig_is_a_file_s_text_whose_credential_is_this_program_s(self):
        found = yaml.safe_load(recorded().outputs["kubeconfig"])
        assert "nebius-token" in found["users"][0]["user"]["exec"]["args"][1]
        assert found["contexts"][0]["context"]["namespace"] == recorded().outputs["cluster"]


def test_an_existing_file_system_is_only_attached():
    nebius = dict(given()["hpc:cluster"]["nebius"])
    spool = {"controller_spool": {"existing": "computefilesystem-e1"}}
    recording = deploy(given(nebius={**nebius, "filesystems": {**nebius.get("filesystems", {}), **spool}}))
    names = {resource.name for resource in recording.all("pulumi-python:dynamic/nebius:Filesystem")}
    assert f"{recording.outputs['cluster']}-fs-controller-spool" not in names
    groups = recording.all("pulumi-python:dynamic/nebius:NodeGroup")
    (group,) = [group for group in groups if group.inputs["resource_name"] == "controller"]
    rows = group.inputs["spec"]["template"]["filesystems"]
    tags = {row["mount_tag"]: row["existing_filesystem"]["id"] for row in rows}
    assert tags["controller-spool"] == "computefilesystem-e1"


def test_all_of_it_was_reviewed(golden):
    """Values of charts have golden files of their own."""
    recording = recorded()
    lines = []
    for resource in recording.resources:
        if resource.type == RELEASE:
            after = sorted(urn.rpartition("::")[2] for urn in resource.request.dependencies)
            lines.append(f"{resource.name} {resource.inputs['version']}  after={', '.join(after)}\n")
    text = graph(recording, lambda one: one.type != RELEASE) + "".join(sorted(lines))
    # A hash of the program that makes users, which changes with every edit of the set-up.
    text = re.sub(r"program=[0-9a-f]{16}", "program=(its hash)", text)
    golden("nebius/stack.txt", text)
