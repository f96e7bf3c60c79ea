"""The API server answers, and lets this account create what charts create.

On a new cluster, RBAC takes a while to spread: until then the first chart would fail with "forbidden: User cannot
create customresourcedefinitions".
"""

import json
from collections.abc import Mapping
from typing import Any

from components.nebius.kubernetes.kubectl import Kubectl
from components.nebius.waits.poll import Look, wait_for

NEEDED = (
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("", "namespaces"),
)
"""API group and resource of what charts create that needs an administrator."""
SECONDS = 900


def wait(kubectl: Kubectl, _spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until everything of NEEDED may be created. Raises WaitError."""
    return wait_for(
        "Kubernetes' API server",
        lambda: look(kubectl),
        seconds=limits["seconds"],
        pace=limits["pace"],
        todo="check that the account may edit the project, then run `up` again",
    )


def look(kubectl: Kubectl) -> Look:
    """Whether it answers, and what of NEEDED this account may not create yet."""
    for group, resource in NEEDED:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": "create"}},
        }
        answer = json.loads(kubectl.run("create", "--filename=-", "--output=json", stdin=json.dumps(review)))
        if not answer["status"].get("allowed"):
            return Look(text=f"this account may not create {resource} yet: RBAC has not spread")
    return Look(done=True)
