"""The charts of a cluster: where they are, and the versions that go with Soperator 4.1 and 5.0.

Source: helm/soperator-fluxcd/values.yaml of github.com/nebius/soperator at the tags, which is what its makers install;
`4.8.*` there is the newest release of 4.8 here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.release import Release


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart that is not Soperator's."""

    repo: str
    namespace: str
    version: str


_MARIADB = "https://helm.mariadb.com/mariadb-operator"

OTHERS: Mapping[str, Chart] = {
    "prometheus-operator-crds": Chart(
        repo="https://prometheus-community.github.io/helm-charts",
        namespace="monitoring-system",
        version="19.1.0",
    ),
    "cert-manager": Chart(
        repo="https://charts.jetstack.io",
        namespace="cert-manager-system",
        version="v1.19.6",
    ),
    "kruise": Chart(repo="https://openkruise.github.io/charts/", namespace="kruise-system", version="1.8.0"),
    "mariadb-operator-crds": Chart(repo=_MARIADB, namespace="mariadb-operator-system", version="25.10.2"),
    "mariadb-operator": Chart(
        repo=_MARIADB,
        namespace="mariadb-operator-system",
        version="25.10.2",
    ),
    "k8up": Chart(repo="https://k8up-io.github.io/k8up", namespace="k8up-system", version="4.8.7"),
}
"""By name."""


def soperator_release(
    inputs: Inputs,
    name: str,
    *,
    namespace: str = "",
    values: Mapping[str, Any],
    **more: Any,  # noqa: ANN401 - fields of Release
) -> Release:
    """A release of a chart of Soperator's, in the cluster's namespace unless another one is given."""
    return Release(
        name=name,
        chart=f"helm-{name}",
        repo=inputs.settings.soperator.charts,
        version=inputs.version,
        namespace=namespace or inputs.name,
        values=values,
        **more,
    )


def other_release(inputs: Inputs, name: str, *, values: Mapping[str, Any], **more: Any) -> Release:  # noqa: ANN401 - fields of Release
    """A release of another chart.

    With Soperator's charts from a folder, these are in the folder too: what it runs on may reach no other place.
    """
    chart = OTHERS[name]
    charts = inputs.settings.soperator.charts
    remote = charts.startswith(("oci://", "https://"))
    return Release(
        name=name,
        chart=name,
        repo=chart.repo if remote else charts,
        version=chart.version,
        namespace=chart.namespace,
        values=values,
        **more,
    )
