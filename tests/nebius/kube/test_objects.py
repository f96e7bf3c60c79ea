"""Objects by server-side apply: what is there is what the program says, and nothing of others is touched."""

import base64

import pytest

from engine import NotRunnableError, Workspace
from tests import programs
from tests.nebius.kube.project import Project

pytestmark = pytest.mark.slow

CONFIG = """
k.core.v1.ConfigMap("config", metadata={"name": "config", "labels": {"a": "%s"}}, data={"key": "%s"}, opts=options)
"""
WIDGET = """
crd = k.apiextensions.v1.CustomResourceDefinition("crd",
    metadata={"name": "gadgets.%(group)s"},
    spec={"group": "%(group)s", "scope": "Namespaced", "names": {"kind": "Gadget", "plural": "gadgets"},
          "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
              "type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}
          }}}]}, opts=options)
k.apiextensions.CustomResource("gadget", api_version="%(group)s/v1", kind="Gadget", metadata={"name": "one"},
    spec={"size": %(size)s}, opts=pulumi.ResourceOptions(provider=cluster, depends_on=[crd]))
"""


def test_an_object_is_created_changed_replaced_and_deleted(project, kube, namespace):
    assert project.up(CONFIG % ("x", "1")).ok
    first = kube.get("configmap", "config", f"--namespace={namespace}")
    assert first["data"] == {"key": "1"}
    assert project.state() == ({"cluster": project.state()[0]["cluster"], "config": f"{namespace}/config"}, [])

    assert project.up(CONFIG % ("y", "1")).ok
    assert project.ops() == {"config": "update"}
    second = kube.get("configmap", "config", f"--namespace={namespace}")
    assert second["metadata"]["labels"] == {"a": "y"}
    assert second["metadata"]["uid"] == first["metadata"]["uid"]

    assert project.up(CONFIG % ("y", "2")).ok
    assert project.ops() == {"config": "replace"}
    third = kube.get("configmap", "config", f"--namespace={namespace}")
    assert third["data"] == {"key": "2"}
    assert third["metadata"]["uid"] != first["metadata"]["uid"]

    assert project.up().summary == "nothing to do"
    assert project.run("destroy").ok
    assert kube.names("configmap", namespace) == []


def test_an_object_without_a_name_gets_one_and_is_replaced_beside_the_old_one(project, kube, namespace):
    text = 'k.core.v1.ConfigMap("config", data={"key": "%s"}, opts=options)'
    assert project.up(text % "1").ok
    (name,) = kube.names("configmap", namespace)
    assert name.startswith("config-")
    assert project.up(text % "1").summary == "nothing to do"
    assert project.up(text % "2").ok
    (other,) = kube.names("configmap", namespace)
    assert other != name
    steps = [e.op for e in project.events if type(e).__name__ == "StepDone"]
    assert steps == ["replace", "delete-replaced"]


def test_what_the_provider_allows_to_change_is_changed_in_place(kube, namespace, tmp_path):
    project = Project(tmp_path / "p", kube, namespace=namespace, enable_config_map_mutable=True)
    assert project.up(CONFIG % ("x", "1")).ok
    assert project.up(CONFIG % ("x", "2")).ok
    assert project.ops() == {"config": "update"}


def test_a_kind_of_its_own_is_established_before_objects_of_it_are_made(project, kube, namespace):
    group = f"{namespace}.tests"
    assert project.up(WIDGET % {"group": group, "size": 3}).ok
    assert project.up(WIDGET % {"group": group, "size": 4}).ok
    assert kube.get(f"gadgets.{group}", "one", f"--namespace={namespace}")["spec"] == {"size": 4}
    assert project.run("destroy").ok
    assert kube.get("crd", f"gadgets.{group}") is None


def test_an_object_whose_kind_is_gone_is_gone(project, kube, namespace):
    group = f"{namespace}.tests"
    assert project.up(WIDGET % {"group": group, "size": 3}).ok
    kube.kubectl("delete", "crd", f"gadgets.{group}")
    assert project.run("destroy").ok


def test_a_field_that_the_kind_does_not_have_is_refused_by_name(project, namespace):
    group = f"{namespace}.tests"
    assert not project.up((WIDGET % {"group": group, "size": 3}).replace('{"size": 3}', '{"sise": 3}')).ok
    (message,) = project.failures()
    assert message.startswith("Gadget one: ")
    assert ".spec.sise: field not declared in schema" in message
    assert "Traceback" not in message
    # Nothing was left: no note of it either.
    assert project.state()[1] == []


def test_secrets_are_on_no_command_line_and_in_no_state(project, kube, namespace, tmp_path):
    log = tmp_path / "arguments"
    project.kubectl = str(programs.write(tmp_path / "kubectl", f'echo "$@" >> {log}\nexec {project.kubectl} "$@"'))
    text = """
k.core.v1.Secret("hidden", metadata={"name": "hidden"}, string_data={"password": "swordfish-1"}, opts=options)
k.core.v1.ConfigMap("config", metadata={"name": "c"}, data={"k": pulumi.Output.secret("swordfish-2")}, opts=options)
"""
    assert project.up(text).ok
    data = kube.get("secret", "hidden", f"--namespace={namespace}")["data"]
    assert base64.b64decode(data["password"]) == b"swordfish-1"
    assert project.run("refresh").ok
    assert "--filename=-" in log.read_text()
    files = [log, *(file for file in (project.root / "state").rglob("*") if file.is_file())]
    shown = [str(event) for event in project.events]
    token = kube.access.token
    for word in ("swordfish", base64.b64encode(b"swordfish-1").decode(), token):
        assert [file for file in files if word in file.read_text()] == []
        assert [text for text in shown if word in text] == []


def test_what_others_have_made_is_not_taken_over_unless_the_provider_says_so(kube, namespace, tmp_path):
    kube.kubectl("create", "configmap", "config", f"--namespace={namespace}", "--from-literal=mine=1")
    project = Project(tmp_path / "p", kube, namespace=namespace)
    assert not project.up(CONFIG % ("x", "1")).ok
    assert "already exists" in project.failures()[0]
    assert project.run("destroy").ok
    assert kube.get("configmap", "config", f"--namespace={namespace}")["data"] == {"mine": "1"}
    project = Project(tmp_path / "q", kube, namespace=namespace, upsert_existing_objects=True)
    assert project.up(CONFIG % ("x", "1")).ok
    assert kube.get("configmap", "config", f"--namespace={namespace}")["data"] == {"mine": "1", "key": "1"}


def test_a_change_behind_our_back_is_seen_by_refresh_and_undone_by_up(project, kube, namespace):
    text = CONFIG % ("x", "1")
    assert project.up(text).ok
    kube.kubectl("label", "--overwrite", "configmap", "config", f"--namespace={namespace}", "a=hand")
    assert project.run("refresh").ok
    assert project.ops() == {"config": "refresh"}
    project._settings["enable_patch_force"] = True
    assert project.up(text).ok
    assert kube.get("configmap", "config", f"--namespace={namespace}")["metadata"]["labels"] == {"a": "x"}


def test_a_conflict_names_the_field_and_its_manager(project, kube, namespace):
    assert project.up(CONFIG % ("x", "1")).ok
    kube.kubectl("label", "--overwrite", "configmap", "config", f"--namespace={namespace}", "a=hand")
    assert not project.up(CONFIG % ("y", "1")).ok
    (message,) = project.failures()
    assert "kubectl-label" in message
    assert ".metadata.labels.a" in message


def test_what_was_deleted_behind_our_back_is_made_again_after_refresh_and_destroyed_without(project, kube, namespace):
    text = CONFIG % ("x", "1")
    assert project.up(text).ok
    kube.kubectl("delete", "configmap", "config", f"--namespace={namespace}")
    assert project.up(text, refresh=True).ok
    assert project.ops()["config"] == "create"
    assert kube.names("configmap", namespace) == ["config"]
    kube.kubectl("delete", "configmap", "config", f"--namespace={namespace}")
    assert project.run("destroy").ok


def test_a_namespace_is_gone_with_all_that_is_in_it_when_its_deletion_ends(kube, tmp_path):
    project = Project(tmp_path / "p", kube)
    assert project.up('k.core.v1.Namespace("ns", metadata={"name": "full"}, opts=options)').ok
    kube.kubectl("create", "configmap", "other", "--namespace=full")
    assert project.run("destroy").ok
    assert kube.get("namespace", "full") is None


def test_a_job_that_is_not_done_in_time_is_a_failure_that_the_next_run_resumes(project, kube, namespace):
    text = """
k.batch.v1.Job("job", metadata={"name": "job", "annotations": {"pulumi.com/timeoutSeconds": "1"}},
    spec={"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}},
    opts=options)
"""
    assert not project.up(text).ok
    assert "Job job was applied and is not ready" in project.failures()[0].replace(f"{namespace}/", "")
    assert project.state()[1] == [("creating", "job")]
    done = (
        '{"status": {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z", "succeeded": 1, '
        '"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]}}'
    )
    place = f"--namespace={namespace}"
    kube.kubectl("patch", "job", "job", place, "--subresource=status", "--type=merge", f"--patch={done}")
    assert project.up(text).ok
    assert project.state()[1] == []
    assert project.run("destroy").ok
    assert kube.names("jobs", namespace) == []


def test_a_preview_needs_no_server(project):
    project.program('Path("/nonexistent")\n' + CONFIG % ("x", "1"))
    file = project.root / "__main__.py"
    file.write_text(file.read_text().replace("https://127", "https://256"))
    assert project.run("preview").counts == {"create": 3}
    assert not (project.root / "state").exists()


def test_without_the_tools_nothing_is_run(project):
    project.program(CONFIG % ("x", "1"))
    stack = Workspace(project.root, backend=f"file://{project.root}/state", passphrase=lambda: "x").stack("dev")
    assert stack.preview(lambda _: None).ok
    with pytest.raises(NotRunnableError, match="kubernetes"):
        stack.up(lambda _: None)
