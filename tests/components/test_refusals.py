"""What `./hpc up` refuses, the program refuses too: who types `pulumi up` has nobody else to stop it."""

import json
from typing import Any, ClassVar

import pulumi
import pytest

from tests.harness import deploy

CLUSTER: dict[str, Any] = {
    "platform": "local",
    "name": "dev",
    "nodesets": {"cpu": {"count": 1}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
    "users": [{"name": "alice", "uid": 2001}],
}
RENAMED = {**CLUSTER, "name": "other", "users": [{"name": "alice", "uid": 2002}]}
GROWN = {**CLUSTER, "nodesets": {"cpu": {"count": 2}}}


def settings(cluster: dict[str, Any]) -> dict[str, Any]:
    return {"hpc:cluster": cluster}


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    return said


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """The outputs of a cluster that is up, as the program itself exports them."""
    return deploy(settings(CLUSTER)).outputs


def test_an_impossible_edit_is_refused_before_anything_is_registered(made: dict[str, Any]) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        deploy(settings(RENAMED), was=made)
    first, *rest = str(refused.value).splitlines()
    assert first == "`up` refuses this edit: a running cluster can't be changed this way."
    assert {"  name: dev -> other", "  users.alice.uid: 2001 -> 2002"} <= {*rest}
    assert rest[-1].endswith(": ./hpc destroy test && ./hpc up test")


def test_a_preview_warns_and_shows_the_steps(made: dict[str, Any], warned: list[str]) -> None:
    shown = deploy(settings(RENAMED), was=made, preview=True)
    assert shown.one("other-controller")
    (said,) = warned
    assert said.startswith("`up` refuses this edit, which can't be made on a running cluster: ")
    assert said.endswith("name: dev -> other; users.alice.uid: 2001 -> 2002")


@pytest.mark.parametrize("preview", [False, True])
def test_other_edits_and_new_stacks_are_deployed(made: dict[str, Any], warned: list[str], *, preview: bool) -> None:
    for was in (made, {}, {"login": "dev-login-0"}, {"config": "{}"}, {"config": {"platform": "moon"}}):
        assert deploy(settings(GROWN), was=was, preview=preview).one("dev-cpu-1")
    assert warned == []


def test_without_outputs_of_the_last_run_no_edit_is_refused(monkeypatch: pytest.MonkeyPatch, warned: list[str]) -> None:
    def unknown(*_given: object) -> None:
        raise Exception("invoke of pulumi:pulumi:readStackOutputs failed: unknown stack")

    monkeypatch.setattr("components.config.invoke", unknown)
    assert deploy(settings(GROWN)).one("dev-cpu-1")
    (said,) = warned
    assert said.startswith("the stack's last configuration can't be read, so impossible edits are not refused: ")
    assert said.endswith("readStackOutputs failed: unknown stack")


def test_reading_the_last_outputs_registers_no_resource(made: dict[str, Any]) -> None:
    """A StackReference would be one, with a copy of all outputs."""
    types = {resource.type for resource in deploy(settings(GROWN), was=made).resources}
    assert not {type_ for type_ in types if type_.startswith("pulumi:pulumi:")}


class TestSecretsOfReceivers:
    """A receiver of alerts whose secret is missing, or is none, stops the program; its text is in no plain input."""

    ALERTED: ClassVar[dict[str, Any]] = {**CLUSTER, "monitoring": {"receivers": {"slack": "#alerts", "webhook": True}}}

    @pytest.mark.parametrize("given", [{}, {"hpc:slackUrl": "hooks.slack.com/hush"}])
    def test_a_missing_secret_is_an_error(self, given: dict[str, str]) -> None:
        with pytest.raises(pulumi.RunError) as refused:
            deploy({**settings(self.ALERTED), **given, "hpc:webhookUrl": "https://example.org/hush"})
        assert "to do:   ./hpc config set" in str(refused.value)
        assert "hpc:slackUrl" in str(refused.value)
        assert "hush" not in str(refused.value)

    def test_a_secret_is_sent_encrypted_to_the_controller_only(self) -> None:
        urls = {"hpc:slackUrl": "https://hooks.slack.com/hush", "hpc:webhookUrl": "https://example.org/hush"}
        recording = deploy({**settings(self.ALERTED), **urls})
        assert [resource.name for resource in recording.resources if "hush" in str(resource.shown)] == []
        sent = [resource.name for resource in recording.resources if "hush" in str(resource.inputs)]
        assert sent == ["dev-controller-secrets"]

    def test_a_secret_is_sent_to_the_machine_of_alertmanager_only(self) -> None:
        urls = {"hpc:slackUrl": "https://hooks.slack.com/hush", "hpc:webhookUrl": "https://example.org/hush"}
        apart = {**self.ALERTED, "monitoring": {**self.ALERTED["monitoring"], "machine": {}}}
        recording = deploy({**settings(apart), **urls})
        assert [resource.name for resource in recording.resources if "hush" in str(resource.inputs)] == [
            "dev-monitoring-secrets"
        ]
        given = json.loads(recording.one("dev-controller-configure").inputs["stdin"])["monitoring"]
        assert given.keys() == {"stack", "interval_seconds", "leave_out", "idle", "prometheus_on"}
        assert given["stack"] == "test"
        given = json.loads(recording.one("dev-monitoring-configure").inputs["stdin"])
        assert given["roles"] == ["monitoring"]
        assert "--web.listen-address=127.0.0.1:" in given["monitoring"]["prometheus"]

    WEB: ClassVar[dict[str, Any]] = {**CLUSTER, "monitoring": {"web": {"user": "grafana"}}}

    @pytest.mark.parametrize("given", [{}, {"hpc:prometheusPassword": "hush"}])
    def test_web_access_to_prometheus_requires_a_password(self, given: dict[str, str]) -> None:
        with pytest.raises(pulumi.RunError, match="12 to 72 characters"):
            deploy({**settings(self.WEB), **given})

    def test_the_key_of_the_generated_certificate_is_on_the_controller_only(self) -> None:
        recording = deploy({**settings(self.WEB), "hpc:prometheusPassword": "hush-hush-hush"})
        assert [resource.name for resource in recording.resources if "hush" in str(resource.shown)] == []
        (sent,) = [resource for resource in recording.resources if "hush" in str(resource.inputs)]
        assert sent.name == "dev-controller-secrets"
        assert "END CERTIFICATE-----\\n-----BEGIN PRIVATE KEY" in sent.inputs["stdin"]
        (made,) = recording.all("tls:index/selfSignedCert:SelfSignedCert")
        assert made.inputs["dnsNames"] == ["dev-controller", "localhost"]
        assert made.secret("privateKeyPem")
        assert set(recording.outputs["prometheus"]) == {"user", "password", "certificate"}
        assert "KEY" not in recording.outputs["prometheus"]["certificate"]

    def test_a_changed_secret_configures_the_controller_again(self) -> None:
        triggers = []
        for password in ("hush-hush-hush", "hush-hush-hush", "hush-hush-shout"):
            recording = deploy({**settings(self.WEB), "hpc:prometheusPassword": password})
            triggers.append(recording.one("dev-controller-configure").inputs["triggers"])
            assert recording.one("dev-controller-configure").secret("triggers")
        assert triggers[0] == triggers[1] != triggers[2]
