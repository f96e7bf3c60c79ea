"""Google's price list, in part, as the Cloud Billing Catalog API answers it."""

from collections.abc import Mapping
from typing import Any

COMPUTE, NETWORKING = "6F81-5844-456A", "E505-1604-58F8"
IOWA = ("us-central1", "us-east1", "us-west1")
LAS_VEGAS = ("us-west4",)


def sku(
    text: str,
    *tiers: float,
    unit: str = "h",
    usage: str = "OnDemand",
    regions: tuple[str, ...] = IOWA,
    currency: str = "USD",
    service: str = COMPUTE,
) -> Any:
    """A SKU as the Catalog API answers it: held by tests/lab/google/discovery.json."""
    rates = [
        {
            "startUsageAmount": number * 30,
            "unitPrice": {"currencyCode": currency, "units": str(int(price)), "nanos": round(price % 1 * 1e9)},
        }
        for number, price in enumerate(tiers)
    ]
    expression = {"usageUnit": unit, "baseUnitConversionFactor": 3600, "displayQuantity": 1, "tieredRates": rates}
    return {
        "name": f"services/{service}/skus/0000-0000-0000",
        "skuId": "0000-0000-0000",
        "description": text,
        "category": {"serviceDisplayName": "Compute Engine", "resourceGroup": "CPU", "usageType": usage},
        "serviceRegions": list(regions),
        "pricingInfo": [{"pricingExpression": expression, "effectiveTime": "2026-11-28T10:50:40.206Z"}],
        "serviceProviderName": "Google",
    }


# Descriptions and prices are Google's, as public programs quote them: N2 0.031611 and 0.004237, H100 80GB Plus
# 10.344276, A3Plus 0.026924 and 0.002344 in us-central1 (2026), Storage PD free up to 30 GiB, then 0.04, NAT 0.0014 for
# each machine. Those of Las Vegas add up to Cyclenerd/google-cloud-pricing-cost-calculator dac31281f2a4, pricing.yml.
SKUS = [
    sku("N2 Instance Core running in Americas", 0.031611),
    sku("N2 Instance Ram running in Americas", 0.004237, unit="GiBy.h"),
    sku("N2 Custom Instance Core running in Americas", 0.033191),
    sku("Commitment v1: N2 Cpu in Americas for 1 Year", 0.019915, usage="Commit1Yr"),
    sku("Storage PD Capacity", 0, 0.04, unit="GiBy.mo"),
    sku("Regional Storage PD Capacity in Americas", 0.08, unit="GiBy.mo"),
    sku("SSD backed Local Storage", 0.08, unit="GiBy.mo"),
    # Google gives this one the usage type OnDemand.
    sku("SSD backed Local Storage attached to Spot Preemptible VMs", 0.048, unit="GiBy.mo"),
    sku("Nvidia Tesla T4 GPU running in Americas", 0.35),
    sku("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas", 0.175, usage="Preemptible"),
    sku("Nvidia H100 80GB Plus GPU running in Americas", 10.344276),
    sku("Nvidia H100 Mega 80GB GPU attached to DWS Defined Duration VMs running in Americas", 4.423936),
    sku("Reserved Nvidia H100 80GB Mega GPU in Americas in Calendar Mode", 4.841121),
    sku("A3Plus Instance Core running in Americas", 0.026924),
    sku("A3Plus Instance Ram running in Americas", 0.002344, unit="GiBy.h"),
    sku("A4 Nvidia B200 (1 gpu slice) running in Americas", 16.11),
    sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", 4.9542),
    sku("Managed Lustre Capacity 500-Perf Iowa", 0.34, unit="GiBy.mo", regions=("us-central1",)),
    sku("External IP Charge on a Standard VM", 0, 0.005, regions=("global",)),
    sku("N1 Predefined Instance Core running in Las Vegas", 0.035602, regions=LAS_VEGAS),
    sku("N1 Predefined Instance Ram running in Las Vegas", 0.004772, unit="GiBy.h", regions=LAS_VEGAS),
    sku("Spot Preemptible E2 Instance Core running in Las Vegas", 0.0028, usage="Preemptible", regions=LAS_VEGAS),
    sku(
        "Spot Preemptible E2 Instance Ram running in Las Vegas",
        0.00049,
        unit="GiBy.h",
        usage="Preemptible",
        regions=LAS_VEGAS,
    ),
    sku("Nvidia Tesla T4 GPU running in Las Vegas", 0.37, regions=LAS_VEGAS),
    sku("Balanced PD Capacity in Las Vegas", 0.11, unit="GiBy.mo", regions=LAS_VEGAS),
]
NAT = sku("Networking Cloud Nat Gateway Uptime", 0.0014, regions=("global",), service=NETWORKING)
PAGE: Mapping[str, Any] = {"skus": [*SKUS, NAT], "nextPageToken": ""}
