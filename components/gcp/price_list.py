"""Reads Google's price list with the caller's credential, and compares it with the catalog."""

import time
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial

from cluster.catalog.prices import PriceRow
from cluster.cloud_checks import CloudRow
from cluster.config import ClusterConfig
from cluster.findings import listing
from cluster.platforms.gcp.cloud_request import CloudRequest
from cluster.platforms.gcp.names import place
from cluster.platforms.gcp.price_list import GLOBAL, Skus, by_name, checks
from components import cloud_questions
from components.cloud_questions import NotAskedError
from components.gcp.cloud_checks import Session

SECONDS = 45.0
"""Time limit (ours: the command is to end within a minute). The method takes no filter, its pages have 5,000 SKUs
(cloudbilling.v1), and Compute Engine has about 33,000, as two public programs counted them in August 2026."""
FIELDS = "nextPageToken,skus(description,category,serviceRegions,pricingInfo/pricingExpression(usageUnit,tieredRates))"
"""The part of an answer that is read, about half (`fields`, a parameter of each method of cloudbilling.v1)."""


def read(config: ClusterConfig) -> tuple[list[CloudRow], list[PriceRow]]:
    """Return the rows of `./hpc check cloud`, and the prices that are certain.

    Raises GoogleCloudError where there are no credentials, or where they have expired.
    """
    where, found = place(config), list[PriceRow]()
    ask = partial(_skus, Session(where.project), where.region)
    asked = list(checks(config, datetime.now(timezone.utc).date(), found))
    # The list's own limit ends first, with the number of pages.
    rows = cloud_questions.rows(asked, ask, SECONDS + 2, "Google")
    together: dict[tuple[str, str], list[CloudRow]] = {}
    for row in rows:
        together.setdefault((row.seen, row.todo), []).append(row)
    return [
        replace(same[0], asked=f"list price of {listing(row.asked for row in same)} in {where.region}")
        for same in together.values()
    ], found


def _skus(session: Session, region: str, service: str) -> Skus:
    """Return the SKUs of a service in a region. Raises NotAskedError: a page could not be read."""
    end, found, number, query = time.monotonic() + SECONDS, [], 0, {"fields": FIELDS}
    while query.get("pageToken") or not number:
        request = CloudRequest(service="cloudbilling", path=f"v1/services/{service}/skus", query=tuple(query.items()))
        try:
            page = session.ask(request, end - time.monotonic())
        except NotAskedError:
            if time.monotonic() < end:
                raise
            why = f"Google's list did not end within {SECONDS:g} s, after {number} pages"
            raise NotAskedError(why, "run it again later") from None
        if page is None:
            raise NotAskedError(f"Google's list has no service {service}", "report this")
        found += [sku for sku in page.get("skus", ()) if {region, GLOBAL} & set(sku.get("serviceRegions", ()))]
        query["pageToken"], number = page.get("nextPageToken", ""), number + 1
    return by_name(found)
