"""Inputs and diffs of Kubernetes objects and Helm releases. Tests on a cluster are in tests/nebius/kube."""

from dataclasses import replace

import pytest

from engine.core.run import with_outputs
from engine.errors import EngineError
from engine.project import KubernetesTools
from engine.providers import Providers, helm, kubernetes
from engine.providers.base import Context, Foreign, ProviderResource
from engine.providers.helm import Release
from engine.providers.kubernetes import Object
from engine.providers.process import Outcome
from engine.state.resource import Resource
from engine.values import UNKNOWN, plain, secret


def ctx(name="res", **settings):
    return Context(f"urn:{name}", "type", name, print, settings=lambda: settings)


def obj(kind="ConfigMap", name="n", **fields):
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


class TestTypes:
    @pytest.mark.parametrize(
        ("type_", "provider"),
        [
            ("kubernetes:core/v1:Namespace", Object),
            ("kubernetes:slurm.nebius.ai/v1:SlurmCluster", Object),
            ("kubernetes:helm.sh/v3:Release", Release),
            ("kubernetes:helm.sh/v4:Chart", Foreign),
            ("kubernetes:core/v1:ConfigMapPatch", Foreign),
            ("kubernetes:core/v1:ConfigMapList", Foreign),
            ("kubernetes:yaml/v2:ConfigFile", Foreign),
            ("pulumi:providers:kubernetes", ProviderResource),
            ("pulumi:providers:gcp", Foreign),
        ],
    )
    def test_objects_and_releases_are_embedded_where_the_tools_are_given(self, tmp_path, type_, provider):
        tools = KubernetesTools(tmp_path / "kubectl", tmp_path / "helm")
        assert type(Providers(tmp_path, {}, "p", tools).of(type_)) is provider
        assert isinstance(Providers(tmp_path, {}, "p").of(type_), Foreign)


class TestReplacing:
    @pytest.mark.parametrize(
        ("old", "new", "replaces"),
        [
            (obj(), obj(name="m"), ["metadata.name"]),
            (obj(data={"a": "1"}), obj(data={"a": "2"}), ["data.a"]),
            (obj(data={"a": "1"}), obj(data={"a": "1", "b": "1"}), ["data.b"]),
            (obj("Secret", stringData={"a": "1"}), obj("Secret", stringData={"a": "2"}), ["stringData.a"]),
            (obj("Widget", spec={"a": 1}), obj("Widget", spec={"a": 2}), []),
            (obj("Job", spec={"template": 1, "ttl": 1}), obj("Job", spec={"template": 2, "ttl": 2}), ["spec.template"]),
            (obj("Service", spec={"ports": [1]}), obj("Service", spec={"ports": [2]}), []),
            ({**obj("W"), "apiVersion": "a/v1beta1"}, {**obj("W"), "apiVersion": "a/v1"}, []),
            ({**obj("W"), "apiVersion": "a/v1"}, {**obj("W"), "apiVersion": "b/v1"}, ["apiVersion"]),
        ],
    )
    def test_immutable_fields_replace_the_object(self, old, new, replaces):
        assert list(kubernetes.replacing(ctx(), old, new)) == replaces

    def test_data_is_updated_in_place_with_the_providers_setting(self):
        old, new = obj(data={"a": "1"}), obj(data={"a": "2"})
        assert kubernetes.replacing(ctx(enableConfigMapMutable="true"), old, new) == ()
        assert kubernetes.replacing(ctx(enableConfigMapMutable="true"), {**old, "immutable": True}, new) != ()
        assert kubernetes.replacing(ctx(enableSecretMutable="true"), old, new) != ()

    def test_an_object_that_keeps_its_name_is_deleted_first(self, tmp_path):
        provider = Object(kubernetes.Cluster(tmp_path, KubernetesTools(tmp_path, tmp_path)))
        old, new = obj(data={"a": "1"}), obj(data={"a": "2"})
        assert provider.diff(ctx(), "n", old, {}, new).delete_first
        assert not provider.diff(ctx(), "n", old, {}, obj(name="m")).delete_first
        named = kubernetes.named(ctx(), {}, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}})
        again = kubernetes.named(ctx(), named, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "2"}})
        assert again["metadata"] == named["metadata"]
        diff = provider.diff(ctx(), "n", named, {}, again)
        assert diff.replaces
        assert not diff.delete_first


class TestIdentity:
    @pytest.mark.parametrize(
        ("type_", "id_", "inputs", "found"),
        [
            ("kubernetes:core/v1:Service", "ns/n", {}, ("v1", "Service", {"name": "n", "namespace": "ns"})),
            ("kubernetes:apps/v1:Deployment", "n", {}, ("apps/v1", "Deployment", {"name": "n"})),
            ("kubernetes:core/v1:ConfigMap", "", obj(), ("v1", "ConfigMap", {"name": "n"})),
        ],
    )
    def test_an_object_is_identified_by_its_inputs_or_its_type_and_id(self, type_, id_, inputs, found):
        named = kubernetes.identity(type_, id_, inputs)
        assert (named["apiVersion"], named["kind"], named["metadata"]) == found

    def test_each_resource_has_a_field_manager_of_its_own_and_keeps_the_recorded_one(self):
        assert kubernetes.field_manager(ctx("a"), {}) != kubernetes.field_manager(ctx("b"), {})
        assert kubernetes.field_manager(ctx("a"), {}) == kubernetes.field_manager(ctx("a"), {})
        assert kubernetes.field_manager(ctx("a"), {"__fieldManager": "of-the-cli"}) == "of-the-cli"


def test_fields_that_the_server_adds_are_no_difference():
    inputs = {"spec": {"a": 1, "list": [{"x": 1}], "gone": 1}}
    live = {"spec": {"a": 2, "list": [{"x": 1, "default": True}], "more": 1}, "status": {}}
    assert kubernetes.actual_inputs(inputs, live) == {"spec": {"a": 2, "list": [{"x": 1}]}}


@pytest.mark.parametrize(
    ("stderr", "shown"),
    [
        ("W0101 noise\nWarning: old\nerror: a\nb\n", "a\nb"),
        ("Error: chart not found\n", "chart not found"),
        ("error: Apply failed with 1 conflict: x\nPlease review the fields above--they\n* advice\n", None),
        ("", "exit status 1, without a message"),
    ],
)
def test_errors_are_shown_without_warnings_and_advice(stderr, shown):
    assert kubernetes.failure(Outcome(1, "", stderr), ctx()) == (shown or "Apply failed with 1 conflict: x")


def test_a_provider_without_a_kubeconfig_uses_no_cluster_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "users"))
    provider = Object(kubernetes.Cluster(tmp_path, KubernetesTools(tmp_path, tmp_path)))
    with pytest.raises(EngineError, match="has no kubeconfig"):
        provider.create(replace(ctx(), type="kubernetes:core/v1:ConfigMap"), obj())


class TestForm:
    """The inputs as pulumi-kubernetes keeps them (4.34.2; 4.32.0 has no takeOwnership)."""

    GIVEN = {  # noqa: RUF012
        "name": "soperator", "namespace": "soperator-system", "chart": "oci://example.com/helm-soperator",
        "version": "4.1.7", "values": {"a": 1}, "timeout": 1200, "atomic": False, "cleanupOnFail": False,
        "waitForJobs": True, "disableWebhooks": False, "disableCRDHooks": False, "compat": "true",
    }  # fmt: skip
    KEPT = {  # noqa: RUF012
        **{key: value for key, value in GIVEN.items() if key != "compat"}, "allowNullValues": False,
        "createNamespace": False, "dependencyUpdate": False, "description": "", "devel": False,
        "disableOpenapiValidation": False, "forceUpdate": False, "keyring": "", "lint": False, "postrender": "",
        "recreatePods": False, "renderSubchartNotes": False, "replace": False, "resetValues": False,
        "reuseValues": False, "skipAwait": False, "skipCrds": False, "takeOwnership": False, "verify": False,
    }  # fmt: skip

    @pytest.fixture(params=["here", "previewed"])
    def providers(self, request, tmp_path):
        tools = KubernetesTools(tmp_path / "kubectl", tmp_path / "helm") if request.param == "here" else None
        return Providers(tmp_path, {}, "p", tools)

    def test_a_release_has_all_defaults(self, providers):
        release = providers.of("kubernetes:helm.sh/v3:Release")
        assert release.check(ctx(), {}, self.GIVEN) == self.KEPT
        with_repository = release.check(ctx(), {}, {**self.GIVEN, "repositoryOpts": {"repo": "https://example.com"}})
        assert with_repository["repositoryOpts"] == {
            "repo": "https://example.com", "caFile": "", "certFile": "", "keyFile": "", "password": "", "username": "",
        }  # fmt: skip

    def test_inputs_of_other_provider_versions_are_no_change(self, providers):
        release = providers.of("kubernetes:helm.sh/v3:Release")
        newer = {**self.KEPT, "serverSide": False}
        older = {key: value for key, value in self.KEPT.items() if key != "allowNullValues"}
        assert release.check(ctx(), newer, self.GIVEN) == newer
        assert release.check(ctx(), older, self.GIVEN) == older

    def test_an_input_that_the_program_drops_is_a_change(self, providers):
        release = providers.of("kubernetes:helm.sh/v3:Release")
        before = {**self.KEPT, "skipCrds": True, "maxHistory": 5, "checksum": "abc"}
        assert release.check(ctx(), before, self.GIVEN) == self.KEPT

    def test_string_data_of_a_secret_is_data(self, providers):
        found = providers.of("kubernetes:core/v1:Secret").check(
            ctx(), {}, obj("Secret", stringData={"a": "one"}, data={"b": "dHdv"})
        )
        assert found == obj("Secret", data=secret({"a": "b25l", "b": "dHdv"}))

    def test_unknown_string_data_stays(self, providers):
        given = obj("Secret", stringData={"a": UNKNOWN})
        assert providers.of("kubernetes:core/v1:Secret").check(ctx(), {}, given) == given

    def test_a_local_chart_sets_the_version(self, providers, tmp_path):
        (tmp_path / "chart").mkdir()
        (tmp_path / "chart" / "Chart.yaml").write_text("name: c\nversion: 0.1.0\n")
        release = providers.of("kubernetes:helm.sh/v3:Release")
        found = release.check(ctx(), {}, {**self.GIVEN, "chart": "chart"})
        assert found["version"] == "0.1.0"
        assert "checksum" not in found

    def test_a_changed_local_chart_is_an_update(self, providers, tmp_path):
        (tmp_path / "chart").mkdir()
        (tmp_path / "chart" / "Chart.yaml").write_text("name: c\nversion: 0.1.0\n")
        release, news = providers.of("kubernetes:helm.sh/v3:Release"), {**self.KEPT, "chart": "chart"}
        state = {**news, "__checksum": helm.checksum(news, tmp_path)}
        assert release.diff(ctx(), "id", news, state, news).changes is None
        (tmp_path / "chart" / "values.yaml").write_text("a: 2\n")
        assert release.diff(ctx(), "id", news, state, news).changes


def test_repeated_inputs_are_as_secret_as_the_inputs():
    inputs = obj(data=secret({"k": "v"}))
    done = with_outputs(
        Resource(urn="urn", type="t", custom=True), "id", {**plain(inputs), "__inputs": plain(inputs)}, inputs
    )
    assert done.outputs["__inputs"] == inputs
