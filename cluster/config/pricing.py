"""Prices of the user's own contract, above the list prices of the catalog."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Strict

from cluster.config.impact_annotations import NoEffect
from cluster.config.section import Section
from cluster.config.types import Words, text_schema
from cluster.config.validators import matching

Currency = Literal[
    "USD", "AUD", "BRL", "CAD", "CHF", "CZK", "DKK", "EUR", "GBP", "HKD", "IDR", "ILS", "INR", "JPY", "KRW", "MXN",
    "MYR", "NOK", "NZD", "PHP", "PLN", "SEK", "SGD", "THB", "TWD", "ZAR",
]  # fmt: skip
"""Codes of ISO 4217."""
Amount = Annotated[float, Strict(), Field(gt=0, lt=10**12)]
Percent = Annotated[float, Strict(), Field(gt=0, lt=100)]
_ACCOUNT = "[0-9A-F]{6}(-[0-9A-F]{6}){2}"
_billing_account = matching(
    _ACCOUNT,
    "the id of a billing account: three times 6 of 0-9 and A-F, e.g. 012345-567890-ABCDEF",
    "copy that of the project's account: docs/guides/limits.md has the command",
)
BillingAccount = Annotated[str, AfterValidator(_billing_account), text_schema(pattern=f"^{_ACCOUNT}$")]
SHOWN = NoEffect("only the price that is shown changes")
BUDGET = NoEffect("the controller's service reads it; jobs that run go on")


class CommittedUse(Section):
    """Committed use discounts (CUDs), which are bought outside of this program."""

    discount_percent: Annotated[Percent, SHOWN] = Field(examples=[37.0])
    """Discount on the list prices of machines on demand and from reservations, with their GPUs and local SSDs."""
    share_percent: Annotated[int, Strict(), Field(ge=1, le=100), SHOWN] = 100
    """Part of these machines that the commitment covers, in percent."""


class Budget(Section):
    """The most that the stack is to cost in a month. Previews compare it with the parts that are always on. On gcp the
    controller adds up what exists, and has a finding and an alert if the month will cost more."""

    month: Annotated[Amount, BUDGET] = Field(examples=[20000.0])
    """Amount for a month of UTC."""
    currency: Annotated[Currency, BUDGET] = "USD"
    """Its currency, which must be that of `pricing`."""
    stop: Annotated[Literal["elastic"] | None, BUDGET] = None
    """On gcp: with `elastic` no machine of an elastic node is created once the budget of the month is used, what is
    always on until its end included. Running jobs and static nodes stay; other jobs wait for nodes that
    are down, with the reason of these. Default: nothing is stopped."""
    billing_account: Annotated[
        BillingAccount | None, NoEffect("a budget of Cloud Billing mails, and stops nothing")
    ] = Field(default=None, examples=["012345-567890-ABCDEF"])
    """On gcp: the billing account that pays for the project, in this currency. The stack has a budget of this amount
    there, of which Cloud Billing mails. Default: none."""


class Pricing(Section):
    """Rates, discounts and the currency of the prices that previews and `./hpc cost` show."""

    currency: Annotated[Currency, SHOWN] = "USD"
    """Currency of the rates and of everything that is shown."""
    exchange_rate: Annotated[Amount | None, SHOWN] = None
    """Units of that currency for one USD, for list prices. Required unless the currency is USD."""
    region: Annotated[Words | None, SHOWN] = None
    """Region that the rates are of. If it is not the cluster's, they are refused."""
    rates: Annotated[Mapping[str, Amount], SHOWN] = Field(
        default_factory=dict, max_length=200, examples=[{"a3-megagpu-8g": 61.0}]
    )
    """Rates by item, as `./hpc cost` names them: of a machine type for a machine and hour, of storage for a GB and
    month."""
    committed_use: Annotated[CommittedUse | None, SHOWN] = None
    """Default: none."""
