"""The report of `check cloud --send`: no name of the user's own is in it, whatever Nebius answers."""

import json

import pytest

from cluster.cloud_checks import CloudOutcome, CloudReport
from components.clouds import NAMELESS
from components.nebius import cloud_checks
from components.nebius.api import client
from tests.cluster.nebius.clusters import gpus, nebius
from tests.lab.nebius_api.server import NebiusServer, Place
from tests.nebius.deploy.test_cloud_checks import ample

TENANT, PROJECT, STATE = "tenant-e00abc", "project-e00abc", "our-state-7q"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registries and programs whose answers have a name; no test asks those of others.

    A busy machine does not answer within the product's limit.
    """
    monkeypatch.setattr(cloud_checks, "SECONDS", 60.0)
    found = {"programs": [TENANT], "artifact": ([TENANT], [TENANT], TENANT)}
    for what, answer in found.items():
        monkeypatch.setitem(cloud_checks.ANSWERS, what, lambda *_args, answer=answer: answer)


@pytest.mark.parametrize("place", [ample(), Place(tenant=TENANT)], ids=["room for everything", "no quotas, no advice"])
def test_no_name_is_in_it_whatever_nebius_answers(place: Place) -> None:
    with NebiusServer(place=place):
        rows = cloud_checks.check(nebius(**gpus()), state=f"s3://{STATE}")
        client.close()
    assert {row.id for row in rows} >= NAMELESS["nebius"]["asked"] | NAMELESS["nebius"]["seen"]
    assert TENANT in " ".join(row.asked for row in rows)
    assert TENANT in " ".join(row.seen for row in rows)
    document = CloudReport(date="2026-11-28", request="", rows=rows).without_names(NAMELESS["nebius"])
    assert [name for name in (TENANT, PROJECT, STATE) if name in json.dumps(document)] == []
    seen = {(row["id"], row["outcome"]): row["seen"] for row in document["checks"] if row.get("seen")}
    assert seen["kubernetes-version", CloudOutcome.OK.value].startswith("Nebius has it")
