"""`price-list=FOLDER`: Google's rows of cluster/catalog/prices.csv beside Google's price list.

Artifact: a folder with answers of the Cloud Billing Catalog API, one page a file. KEY is an API key of a project in
which cloudbilling.googleapis.com is enabled; it is free:

    curl "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus?pageSize=5000&key=KEY" > compute-1.json

and so on with `&pageToken=` and the page's nextPageToken. 6F81-5844-456A is Compute Engine, E505-1604-58F8 Networking
with Cloud NAT (Cyclenerd/google-cloud-pricing-cost-calculator dac31281f2a4, build/skus.sh). `/v1/services` lists
others, such as Managed Lustre. tests/outside/check_discovery.py holds the form.

cluster/platforms/gcp/price_list.py has what a row's unit is charged for, by the SKUs' descriptions.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.catalog.prices import EVERYWHERE, rows
from cluster.platforms.gcp.price_list import GLOBAL, Skus, by_name, listed
from tests.outside.recorder import Recorder


def read(folder: Path) -> tuple[list[Mapping[str, Any]], set[str]]:
    """The SKUs of a folder, and the services of which the last page is missing."""
    skus: list[Mapping[str, Any]] = []
    seen, ended = set[str](), set[str]()
    for file in sorted(folder.glob("*.json")):
        page = json.loads(file.read_text(encoding="utf-8"))
        services = {sku["name"].split("/")[1] for sku in page["skus"]}
        seen |= services
        ended |= set() if page.get("nextPageToken") else services
        skus += page["skus"]
    return skus, seen - ended


def differences(skus: Skus, outside: Recorder) -> Iterator[str]:
    """Rows of which the list has another price. Raises Failed where it has a price for none."""
    compared, missing = 0, defaultdict[str, list[str]](list)
    for row in rows():
        for region, usd in row.regions.items() if row.platform == "gcp" else ():
            theirs = listed(row.item, row.way, GLOBAL if region == EVERYWHERE else region, skus)
            if isinstance(theirs, str):
                missing[f"{row.item} {row.way}: {theirs}"].append(region)
                continue
            compared += 1
            if not math.isclose(usd, theirs, rel_tol=1e-4):
                yield f"{row.item} {row.way} in {region}: {usd} ({row.source}, {row.dated}), the list has {theirs:.6g}"
    if not compared:
        pytest.fail("the folder has a price of no row", pytrace=False)
    outside.did(f"compared {compared} prices")
    for text, regions in missing.items():
        outside.did(f"did not compare {text} in {', '.join(regions)}")


def test_rows_have_the_prices_of_the_list(artifact: Path, outside: Recorder) -> None:
    skus, cut = read(artifact)
    for service in sorted(cut):
        outside.differs("price-list", f"the last page of {service} is missing: each page here has a nextPageToken")
    outside.did(f"read {len(skus)} SKUs")
    for text in differences(by_name(skus), outside):
        outside.differs("price", text)
    outside.holds("google-list-prices")
