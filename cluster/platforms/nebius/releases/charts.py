"""The charts of a cluster: where they are, and the versions that go with a version of Soperator.

Source: helm/soperator-fluxcd/values.yaml of github.com/nebius/soperator at the tags, which is what its makers install;
`4.8.*` there is the newest release of 4.8 here. Before 1.20: nebius-solutions-library, tag soperator-v1.15.4-1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.release import Release
from cluster.platforms.nebius.releases.version import Number


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart that is not Soperator's."""

    repo: str
    namespace: str
    versions: tuple[tuple[Number, str], ...]
    """The first version of Soperator that a version goes with, and this version; oldest first."""

    def version(self, of: Number) -> str:
        """The version that goes with a version of Soperator."""
        return next(version for first, version in reversed(self.versions) if first <= of)


_MARIADB = "https://helm.mariadb.com/mariadb-operator"
_ALWAYS: Number = ()

OTHERS: Mapping[str, Chart] = {
    "prometheus-operator-crds": Chart(
        repo="https://prometheus-community.github.io/helm-charts",
        namespace="monitoring-system",
        versions=((_ALWAYS, "19.1.0"),),
    ),
    "cert-manager": Chart(
        repo="https://charts.jetstack.io",
        namespace="cert-manager-system",
        versions=((_ALWAYS, "v1.17.4"), ((2,), "v1.19.6")),
    ),
    "kruise": Chart(
        repo="https://openkruise.github.io/charts/", namespace="kruise-system", versions=((_ALWAYS, "1.8.0"),)
    ),
    "mariadb-operator-crds": Chart(
        repo=_MARIADB, namespace="mariadb-operator-system", versions=((_ALWAYS, "0.38.1"), ((2,), "25.10.2"))
    ),
    "mariadb-operator": Chart(
        repo=_MARIADB,
        namespace="mariadb-operator-system",
        versions=((_ALWAYS, "0.31.0"), ((1, 20), "0.38.1"), ((2,), "25.10.2")),
    ),
    "k8up": Chart(repo="https://k8up-io.github.io/k8up", namespace="k8up-system", versions=((_ALWAYS, "4.8.7"),)),
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
        version=chart.version(inputs.number),
        namespace=chart.namespace,
        values=values,
        **more,
    )
