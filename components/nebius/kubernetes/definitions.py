"""Soperator's CustomResourceDefinitions, at the version of its chart: Helm installs those in a chart's `crds/` where
there are none, and never upgrades them."""

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, UpdateResult

from cluster.platforms.nebius.releases import Release
from components.dynamic import ActionProvider, DynamicResource, changed, given, without_traceback
from components.nebius.kubernetes.chart_lookup import MissingChartError, definitions
from components.nebius.kubernetes.kubectl import Kubectl, KubectlError

_SECONDS = 300
"""For 3.5 MB of definitions."""
_MANAGER = "hpc"


class DefinitionsProvider(ActionProvider):
    """Applies them on the server, which needs no copy of them in an annotation: that would be too long for one."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Apply them, and wait until the API server serves them."""
        return CreateResult("definitions", _apply(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another chart, or another cluster, gets them in place."""
        return DiffResult(changes=bool(changed(_olds, _news, ("chart", "access"))))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Apply those of the new version."""
        return UpdateResult(_apply(_news))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Leave them, as Helm does: what they define would be deleted with them."""


class Definitions(DynamicResource, module="nebius", name="Definitions"):
    """Of a release's chart; the release is installed after it."""

    def __init__(
        self,
        name: str,
        *,
        access: pulumi.Input[Mapping[str, Any]],
        release: Release,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        chart = {"repo": release.repo, "chart": release.chart, "version": release.version}
        super().__init__(DefinitionsProvider(), name, {"chart": chart, "access": access}, opts)


def _apply(props: dict[str, Any]) -> dict[str, Any]:
    with without_traceback(MissingChartError):
        text = definitions(**props["chart"])
    with without_traceback(KubectlError), Kubectl(props["access"]) as kubectl:
        kubectl.run(
            "apply", "--server-side", "--force-conflicts", f"--field-manager={_MANAGER}", "--filename=-",
            stdin=text, seconds=_SECONDS,
        )  # fmt: skip
        kubectl.run("wait", "--for=condition=Established", "--timeout=60s", "--filename=-", stdin=text, seconds=90)
    return given(props)
