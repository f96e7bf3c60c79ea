"""Releases that run a cluster: certificates, OpenKruise, MariaDB's operator, Soperator and its checks."""

from typing import Any

from cluster.platforms.nebius.machine_types import GIB, Resources
from cluster.platforms.nebius.names import NODESET_LABEL, OPERATOR_NAMESPACE
from cluster.platforms.nebius.releases.charts import other_release, soperator_release
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.release import Release
from cluster.platforms.nebius.releases.values import images
from cluster.platforms.nebius.releases.values.tiers import requests, tier

_REBOOTER = Resources(cpu=500, memory=GIB // 4)
_KRUISE_GATES = (
    "ImagePullJobGate=true,RecreatePodWhenChangeVCTInCloneSetGate=true,StatefulSetAutoResizePVCGate=true,"
    "StatefulSetAutoDeletePVC=true,PreDownloadImageForInPlaceUpdate=true,ResourceDistributionGate=true"
)
"""Source: kruise.featureGates of helm-soperator."""
_KRUISE_TAG = "v1.8.3"
"""Soperator's build of OpenKruise's manager (helm/soperator-fluxcd/values.yaml)."""
_KRUISE_WEBHOOKS = "scripts/kubernetes/webhook_namespace.py"
"""As the post-renderer of helm/soperator-fluxcd/templates/kruise.yaml."""


def prometheus_crds(inputs: Inputs) -> Release:
    """What charts describe their metrics with: some can't be installed without. Nothing reads them here; a Prometheus
    of your own does."""
    return other_release(inputs, "prometheus-operator-crds", values={})


def cert_manager(inputs: Inputs) -> Release:
    """Certificates of webhooks."""
    values = {
        "crds": {"enabled": True},
        "enableCertificateOwnerRef": True,
        "startupapicheck": {"enabled": True},
        "global": {"leaderElection": {"namespace": "cert-manager-system"}},
        "prometheus": {"enabled": True, "servicemonitor": {"enabled": False}},
    }
    return other_release(inputs, "cert-manager", values=values, needs=("prometheus-operator-crds",))


def kruise(inputs: Inputs, *needs: str) -> Release:
    """OpenKruise: Soperator makes pods of its StatefulSets, and nothing comes up without."""
    size = tier(inputs).kruise.quantities
    values: dict[str, Any] = {
        "crds": {"managed": True},
        # The namespace is the release's, and created before it.
        "installation": {"namespace": "kruise-system", "createNamespace": False},
        "featureGates": _KRUISE_GATES,
        # Values of the chart go to annotations of its webhooks; the program below reads this one.
        "externalCerts": {"annotations": {"hpc/webhook-namespace": inputs.name}},
        "manager": {
            "replicas": 2,
            "image": {"repository": f"{inputs.registry}/kruise-manager", "tag": _KRUISE_TAG},
            "resources": {"requests": size, "limits": size},
        },
        "helmHooks": {"image": {"repository": f"{inputs.registry}/kruise-helm-hook", "tag": "v0.1.0"}},
    }
    return other_release(inputs, "kruise", values=values, needs=needs, post_renderer=_KRUISE_WEBHOOKS)


def mariadb_crds(inputs: Inputs) -> Release:
    """MariaDB's custom resources: Soperator looks for them when it starts."""
    return other_release(inputs, "mariadb-operator-crds", values={})


def mariadb(inputs: Inputs, *needs: str) -> Release:
    """The operator of the accounting database."""
    certificates: dict[str, Any] = {"webhook": {"enabled": True, "cert": {"certManager": {"enabled": True}}}}
    return other_release(inputs, "mariadb-operator", values=certificates, needs=needs)


def soperator(inputs: Inputs, *needs: str) -> Release:
    """Soperator itself, with its custom resources in the chart's `crds/`: the chart helm-soperator-crds can't be
    installed, since its release record is larger than a Secret may be. Its values must name MariaDB's custom resources,
    or accounting never comes up."""
    manager: dict[str, Any] = {
        "env": {"isMariadbCrdInstalled": "true", "isPrometheusCrdInstalled": "true"},
        **images.program(inputs, "slurm-operator"),
        "resources": requests(tier(inputs).operator),
    }
    values: dict[str, Any] = {
        "fullnameOverride": "soperator",
        "controllerManager": {"manager": manager},
        "kruise": {"installOperator": False},
        "certManager": {"enabled": True},
    }
    return soperator_release(inputs, "soperator", namespace=OPERATOR_NAMESPACE, values=values, needs=needs)


def soperatorchecks(inputs: Inputs) -> Release:
    """What drains, reports and replaces nodes."""
    manager: dict[str, Any] = {
        "resources": requests(tier(inputs).checks),
        **images.program(inputs, "soperatorchecks"),
        "enableNodeReplacement": inputs.settings.health.replace_nodes,
    }
    # Maintenance of the controller's host must not drain all nodes: as the recipe has it, which has no other service
    # without a spare (nebius-solutions-library, pull request 617).
    manager["env"] = {"maintenanceIgnoreNodeLabels": f"{NODESET_LABEL}=controller"}
    values = {"checks": {"manager": manager}}
    return soperator_release(
        inputs, "soperatorchecks", namespace=OPERATOR_NAMESPACE, values=values, needs=("soperator",)
    )


def nodeconfigurator(inputs: Inputs) -> Release:
    """What sets up nodes, and reboots them for `scontrol reboot`."""
    rebooter: dict[str, Any] = {
        "enabled": True,
        "generateRBAC": True,
        "logFormat": "json",
        "tolerations": [{"operator": "Exists"}],
        "resources": requests(_REBOOTER),
        **images.program(inputs, "rebooter"),
    }
    values = {"rebooter": rebooter}
    return soperator_release(
        inputs, "nodeconfigurator", namespace=OPERATOR_NAMESPACE, values=values, needs=("soperator",)
    )
