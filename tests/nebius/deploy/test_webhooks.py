"""Webhooks as OpenKruise's chart has them, through real helm and Kubernetes' API."""

import shutil

import pytest

from tests.cluster.nebius.clusters import CASES, releases_of
from tests.harness import ROOT
from tests.nebius.kube.conftest import namespace, project

pytestmark = pytest.mark.slow
__all__ = ["namespace", "project"]

WEBHOOKS = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: {{ .Release.Namespace }}
  annotations:
    template: ""
{{- with .Values.externalCerts }}
{{ toYaml .annotations | indent 4 }}
{{- end }}
webhooks:
  - name: mpod.kb.io
    admissionReviewVersions: [v1]
    clientConfig: {service: {name: kruise, namespace: {{ .Release.Namespace }}, path: /mutate-pod}}
    failurePolicy: Fail
    namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: %s
          values:
            - kube-system
    rules:
      - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
    sideEffects: None
"""
RELEASE = """
k.helm.v3.Release("kruise", name="kruise", chart="charts/small", namespace=%r, skip_await=True, opts=options,
    postrender="./%s", values=%r)
"""


@pytest.fixture
def install(project, namespace):
    """Install a chart with webhooks, with the values and the program of a cluster's release."""
    kruise = releases_of(CASES["h100"])["kruise"]
    program = project.root / kruise.post_renderer
    program.parent.mkdir(parents=True)
    shutil.copy(ROOT / kruise.post_renderer, program)

    def run(operator="NotIn", keys=("externalCerts",)):
        templates = project.root / "charts/small/templates"
        (templates / "webhooks.yaml").write_text(WEBHOOKS % operator)
        return project.up(RELEASE % (namespace, kruise.post_renderer, {key: kruise.values[key] for key in keys}))

    return run


@pytest.fixture
def webhooks(kube, namespace):
    """Remove what would refuse every pod of the server, as nothing answers."""
    yield lambda: kube.get("mutatingwebhookconfiguration", namespace)
    kube.kubectl("delete", "mutatingwebhookconfiguration", namespace, "--ignore-not-found")


def test_a_chart_as_open_kruises_is_limited(project, install, webhooks):
    assert install().ok, project.failures()
    [hook] = webhooks()["webhooks"]
    assert hook["namespaceSelector"]["matchExpressions"] == [
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["soperator"]}
    ]
    assert project.up().summary == "nothing to do"


@pytest.mark.parametrize(("given", "message"), [({"operator": "In"}, "OpenKruise 1.8"), ({"keys": ()}, "annotation")])
def test_webhooks_that_would_see_other_namespaces_are_not_installed(project, install, webhooks, given, message):
    assert not install(**given).ok
    assert message in " ".join(project.failures())
    assert webhooks() is None
