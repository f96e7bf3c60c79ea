"""Project and zone of a stack on Google Cloud, which the file says to the provider: `gcp:project`, `gcp:zone`."""

from collections.abc import Mapping
from typing import Any

from cluster.findings import ROOT, Finding, show

KEYS = ("project", "zone")


def place(stack_config: Mapping[str, Any], given: Mapping[str, Any], findings: list[Finding]) -> Any:  # noqa: ANN401
    """What the provider's settings say, None on other platforms; what stands in a wrong place is added to `findings`.

    A cluster that comes as text is one that a stack gave out, and has them within.
    """
    within = given.get("gcp")
    if isinstance(stack_config.get(ROOT), str) and isinstance(within, Mapping):
        return within
    if within is not None:
        findings.append(
            Finding(
                where=f"{ROOT}.gcp",
                given=show(within),
                allowed="gcp:project and gcp:zone beside hpc:cluster, where the provider reads them too",
                todo="remove it, and write `gcp:project: ...` and `gcp:zone: ...` under `config:`",
            )
        )
    if given.get("platform") != "gcp":
        return None
    found = {key: stack_config[f"gcp:{key}"] for key in KEYS if stack_config.get(f"gcp:{key}") is not None}
    region, zone = stack_config.get("gcp:region"), found.get("zone")
    if region is not None and zone is not None and str(zone).rpartition("-")[0] != region:
        findings.append(
            Finding(
                where="gcp:region",
                given=show(region),
                allowed=f"the region of gcp:zone, {str(zone).rpartition('-')[0]}",
                todo="remove it: the zone says the region",
            )
        )
    return found
