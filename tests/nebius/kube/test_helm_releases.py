"""Helm releases by the embedded engine: real helm, a chart of our own."""

import json
import threading

import pytest

from engine import KubernetesTools
from engine.providers import helm
from engine.providers.base import Context, InputCheckError
from engine.providers.helm import Release
from engine.providers.kubernetes import Cluster
from tests import programs
from tests.nebius.kube.project import CHARTS, Project
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

RELEASE = """
release = k.helm.v3.Release("small", name="small", chart="charts/small", namespace=%(namespace)r, values=%(values)s,
    timeout=%(timeout)s, %(more)s, opts=options)
pulumi.export("status", release.status.status)
pulumi.export("revision", release.status.revision)
"""
READY = '{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}'


def release(namespace, timeout=300, more="skip_await=False", **values):
    return RELEASE % {"namespace": namespace, "values": values, "timeout": timeout, "more": more}


def revisions(kube, namespace):
    labels = "--output=jsonpath={range .items[*]}{.metadata.labels}{'\\n'}{end}"
    text = kube.kubectl("get", "secrets", "--selector=owner=helm", labels, f"--namespace={namespace}")
    return [(int(row["version"]), row["status"]) for row in map(json.loads, text.splitlines())]


def message(kube, namespace):
    return kube.get("configmap", "small-config", f"--namespace={namespace}")["data"]["message"]


def make_ready(kube, namespace, beside=""):
    """Have the chart's Pod be ready, once it is there and another than the one with the uid `beside`."""
    place = f"--namespace={namespace}"
    wait_for(
        lambda: beside != (kube.get("pod", "small-pod", place) or {"metadata": {"uid": beside}})["metadata"]["uid"]
    )
    kube.kubectl("patch", "pod", "small-pod", place, "--subresource=status", "--type=merge", f"--patch={READY}")


def test_a_release_is_installed_upgraded_and_uninstalled(project, kube, namespace):
    result = project.up(release(namespace, message="one", widget={"size": 1, "names": ["a"]}))
    assert result.ok
    assert result.outputs == {"status": "deployed", "revision": 1}
    assert message(kube, namespace) == "one"
    assert kube.get("widgets.tests.hpc", "small", f"--namespace={namespace}")["spec"] == {"size": 1, "names": ["a"]}
    assert project.up().summary == "nothing to do"
    assert project.up(release(namespace, message="two")).outputs["revision"] == 2
    assert project.ops() == {"small": "update"}
    assert message(kube, namespace) == "two"
    assert project.run("destroy").ok
    assert kube.names("configmap", namespace) == kube.names("widgets.tests.hpc", namespace) == []
    assert revisions(kube, namespace) == []


def test_a_changed_chart_is_an_upgrade(project, kube, namespace):
    assert project.up(release(namespace)).ok
    chart = project.root / "charts/small/templates/objects.yaml"
    chart.write_text(chart.read_text().replace("{message: {{ .Values.message | quote }}}", "{message: new}"))
    assert project.up().ok
    assert project.ops() == {"small": "update"}
    assert message(kube, namespace) == "new"


def test_another_name_or_namespace_is_another_release(project, kube, namespace):
    assert project.up(release(namespace, message="one")).ok
    assert project.up(release(namespace, message="one").replace('name="small"', 'name="other"')).ok
    assert project.ops() == {"small": "replace"}
    assert kube.names("configmap", namespace) == ["other-config"]


def test_the_run_waits_until_what_was_installed_is_ready(project, kube, namespace):
    thread = threading.Thread(target=make_ready, args=[kube, namespace])
    thread.start()
    assert project.up(release(namespace, pod=True)).ok
    thread.join()
    assert kube.get("pod", "small-pod", f"--namespace={namespace}")["status"]["phase"] == "Running"


def test_what_is_not_ready_in_time_fails_with_helms_message_and_the_next_run_goes_on(project, kube, namespace):
    text = release(namespace, timeout=15, pod=True)
    assert not project.up(text).ok
    assert project.failures()[0].startswith(f"helm can't install small in {namespace}: ")
    assert "context deadline exceeded" in project.failures()[0]
    assert project.state()[1] == [("creating", "small")]
    assert revisions(kube, namespace) == [(1, "failed")]
    make_ready(kube, namespace)
    assert project.up(text).ok
    assert revisions(kube, namespace) == [(1, "superseded"), (2, "deployed")]
    assert project.state()[1] == []


def test_what_failed_is_removed_by_destroy(project, kube, namespace):
    assert not project.up(release(namespace, timeout=1, pod=True)).ok
    assert project.run("destroy").ok
    assert kube.names("pods", namespace) == revisions(kube, namespace) == []
    assert project.state() == ({}, [])


def test_a_failed_upgrade_is_repeated(project, kube, namespace):
    assert project.up(release(namespace)).ok
    assert not project.up(release(namespace, timeout=1, pod=True)).ok
    assert revisions(kube, namespace) == [(1, "deployed"), (2, "failed")]
    make_ready(kube, namespace)
    assert project.up(release(namespace, timeout=300, pod=True)).ok


def test_skip_await_does_not_wait(project, namespace):
    assert project.up(release(namespace, pod=True, more="skip_await=True")).ok


def test_a_chart_that_is_none_leaves_nothing_to_undo(project, kube, namespace):
    assert not project.up(release(namespace).replace("charts/small", "charts/none")).ok
    # To helm, what is no folder is a chart of a repository.
    assert project.failures() == [f"helm can't install small in {namespace}: repo charts not found"]
    assert project.state()[1] == []
    assert revisions(kube, namespace) == []


def test_values_that_the_kind_refuses_fail_with_the_servers_message(project, namespace):
    assert not project.up(release(namespace, widget={"size": -1})).ok
    assert "should be greater than or equal to 0" in project.failures()[0]


def test_what_was_uninstalled_behind_our_back_is_installed_again_after_refresh(project, kube, namespace, tmp_path):
    text = release(namespace, message="one")
    assert project.up(text).ok
    project.kube.kubectl("delete", "secrets", "--selector=owner=helm", f"--namespace={namespace}")
    assert project.run("refresh").ok
    assert project.ops() == {"small": "delete"}
    # Its objects were left: helm takes back what bears its name.
    assert project.up(text).ok
    assert project.ops() == {"small": "create"}
    project.kube.kubectl("delete", "secrets", "--selector=owner=helm", f"--namespace={namespace}")
    assert project.run("destroy").ok


def test_somebody_elses_release_is_left_alone(kube, namespace, tmp_path):
    other = Project(tmp_path / "other", kube, namespace=namespace)
    assert other.up(release(namespace, message="theirs").replace('Release("small"', 'Release("theirs"')).ok
    project = Project(tmp_path / "mine", kube, namespace=namespace)
    assert not project.up(release(namespace, message="mine")).ok
    assert "already exists" in project.failures()[0]
    assert project.run("destroy").ok
    assert message(kube, namespace) == "theirs"


def test_values_come_from_files_in_order_with_the_programs_own_above(project, kube, namespace):
    (project.root / "below.yaml").write_text("message: below\nwidget: {size: 1, names: [a]}\n")
    more = 'value_yaml_files=[pulumi.FileAsset("below.yaml"), pulumi.StringAsset("widget: {size: 2, names: [b]}")]'
    assert project.up(release(namespace, more=more, widget={"size": 3})).ok
    assert message(kube, namespace) == "below"
    found = kube.get("widgets.tests.hpc", "small", f"--namespace={namespace}")["spec"]
    assert found == {"size": 3, "names": ["b"]}


def test_secret_values_are_on_no_command_line_and_in_no_state(project, kube, namespace, tmp_path):
    log = tmp_path / "arguments"
    project.helm = str(programs.write(tmp_path / "helm", f'echo "$@" >> {log}\nexec {project.helm} "$@"'))
    text = release(namespace, message="M").replace("'M'", 'pulumi.Output.secret("swordfish-3")')
    assert project.up(text).ok
    assert message(kube, namespace) == "swordfish-3"
    files = [log, *(file for file in (project.root / "state").rglob("*") if file.is_file())]
    assert "--values=-" in log.read_text()
    assert [file for file in files if "swordfish" in file.read_text()] == []


class TestOptions:
    """The inputs as helm's options."""

    def test_each_has_its_option(self):
        inputs = {
            "chart": "operator", "version": "4.1.7", "atomic": True,
            "repositoryOpts": {"repo": "https://charts.example", "caFile": "c"},
            "createNamespace": True, "skipCrds": False, "waitForJobs": True, "maxHistory": 3.0,
        }  # fmt: skip
        assert helm.arguments(inputs) == [
            "operator", "--repo=https://charts.example", "--atomic", "--create-namespace", "--history-max=3",
            "--version=4.1.7", "--ca-file=c", "--wait", "--wait-for-jobs",
        ]  # fmt: skip

    def test_a_repository_that_the_user_added_is_named_before_the_chart(self):
        inputs = {"chart": "operator", "repositoryOpts": {"repo": "mine"}, "skipAwait": True, "waitForJobs": True}
        assert helm.arguments(inputs) == ["mine/operator"]

    def test_nulls_are_kept_as_they_remove_what_charts_have(self):
        inputs = {"values": {"a": None, "b": {"c": None, "d": 1}, "e": [None]}}
        assert json.loads(helm.values(inputs)) == inputs["values"]

    @pytest.mark.parametrize(
        "inputs", [{"replace": True}, {"disableCRDHooks": True}, {"repositoryOpts": {"password": "p"}}]
    )
    def test_what_helms_command_can_not_do_is_refused(self, inputs):
        with pytest.raises(InputCheckError, match=next(iter(inputs))):
            helm.checked({"chart": "c", **inputs}, {}, CHARTS)

    def test_no_hooks_is_said_for_installations_and_for_upgrades(self):
        inputs = {"chart": "c", "disableWebhooks": True, "disableCRDHooks": True, "skipAwait": True}
        assert inputs.items() <= helm.checked(inputs, {}, CHARTS).items()
        assert helm.arguments(inputs) == ["c", "--no-hooks"]

    def test_a_release_without_a_name_keeps_the_one_it_got(self, tmp_path):
        cluster = Cluster(tmp_path, KubernetesTools(tmp_path, tmp_path))
        provider, ctx = Release(cluster, tmp_path), Context("urn", "type", "Operator", print)
        first = provider.check(ctx, {}, {"chart": "c"})
        assert first["name"].startswith("operator-")
        assert first["namespace"] == "default"
        assert provider.check(ctx, first, {"chart": "c"}) == first
