"""Webhooks as OpenKruise's chart has them. The chart itself is in the outside check `kruise`."""

import sys

import pytest
import yaml

from tests import programs
from tests.cluster.nebius.clusters import CASES, releases_of
from tests.harness import ROOT

KRUISE = releases_of(CASES["h100"])["kruise"]
OTHERS = """---
# Source: kruise/templates/manager.yaml
apiVersion: v1
kind: ServiceAccount
metadata:
  name: kruise
"""
WEBHOOKS = """---
# Source: kruise/templates/webhookconfiguration.yaml
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: kruise-mutating-webhook-configuration
  annotations:
    template: ""
{annotations}webhooks:
  - name: mpod.kb.io
    namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: {operator}
          values:
            - kube-system
"""


def rendered(*, operator: str = "NotIn", annotated: bool = True) -> str:
    """Objects as Helm renders them: of templates/webhookconfiguration.yaml of openkruise/charts, 1.8.0."""
    given = KRUISE.values["externalCerts"]["annotations"] if annotated else {}
    annotations = "".join(f"    {key}: {value}\n" for key, value in given.items())
    return OTHERS + WEBHOOKS.format(operator=operator, annotations=annotations)


def limited(objects: str) -> "programs.subprocess.CompletedProcess[str]":
    """Run the release's program as Helm does: in the project's folder, with the objects on its standard input."""
    return programs.run([sys.executable, str(ROOT / KRUISE.post_renderer)], input=objects, cwd=ROOT)


def test_webhooks_are_of_the_slurm_namespace_and_all_else_stays() -> None:
    done = limited(rendered())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(OTHERS)
    _, webhooks = yaml.safe_load_all(done.stdout)
    [hook] = webhooks["webhooks"]
    assert hook["namespaceSelector"]["matchExpressions"] == [
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["soperator"]}
    ]


@pytest.mark.parametrize(
    ("objects", "message"),
    [(rendered(operator="In"), "OpenKruise 1.8"), (rendered(annotated=False), "without the annotation")],
)
def test_webhooks_that_would_see_other_namespaces_are_refused(objects: str, message: str) -> None:
    done = limited(objects)
    assert done.returncode == 1
    assert message in done.stderr
