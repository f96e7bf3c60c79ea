"""The check that every chart can be had, as the first resource of a stack."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, UpdateResult

from cluster.platforms.nebius.releases import Release
from components.dynamic import ActionProvider, DynamicResource, changed, given, report, without_traceback
from components.nebius.kubernetes.chart_lookup import MissingChartError, check_exists


class ChartVersionsProvider(ActionProvider):
    """Asks registries and repositories, and changes nothing."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Check all. Fails with every chart that can't be had."""
        _check(props["charts"])
        return CreateResult("charts", given(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Other charts are checked in place."""
        return DiffResult(changes=bool(changed(_olds, _news, ("charts",))))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Check those that are new."""
        known = [dict(one) for one in _olds.get("charts", ())]
        _check([one for one in _news["charts"] if dict(one) not in known])
        return UpdateResult(given(_news))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Nothing is to be done."""


class ChartVersions(DynamicResource, module="nebius", name="ChartVersions"):
    """Everything else waits for it."""

    def __init__(self, name: str, *, releases: Sequence[Release], opts: pulumi.ResourceOptions | None = None) -> None:
        charts = sorted({(one.repo, one.chart, one.version) for one in releases})
        rows = [{"repo": repo, "chart": chart, "version": version} for repo, chart, version in charts]
        super().__init__(ChartVersionsProvider(), name, {"charts": rows}, opts)


def _check(charts: Sequence[dict[str, Any]]) -> None:
    def look(row: dict[str, Any]) -> tuple[str, str]:
        try:
            return check_exists(row["repo"], row["chart"], row["version"]), ""
        except MissingChartError as error:
            return "", str(error)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(look, charts))
    unknown = sorted({one for one, _ in answers if one})
    for text in unknown:
        report(f"whether all charts exist is not known: {text}")
    errors = [one for _, one in answers if one]
    if errors:
        with without_traceback(MissingChartError):
            raise MissingChartError("\n".join(errors))
