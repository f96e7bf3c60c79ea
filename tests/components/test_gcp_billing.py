"""The stack's budget in Cloud Billing."""

from typing import Any

import pytest

from cluster.platforms.gcp.permissions import services
from cluster.platforms.gcp.request import describe_request
from tests.clouds import google, settings
from tests.harness import Recording, deploy
from tests.lab.google.apis import ACCOUNT

BUDGET, SERVICE = "gcp:billing/budget:Budget", "gcp:projects/service:Service"

BILLED = {"month": 20000.0, "billing_account": ACCOUNT}


def made(**budget: Any) -> Recording:
    return deploy(settings(budget={"month": 20000.0, **budget}))


def test_there_is_none_without_an_account():
    assert not made().all(BUDGET)
    assert "billingbudgets.googleapis.com" not in services(google(budget={"month": 20000.0}))


def test_it_is_of_the_clusters_resources_and_warns_as_limits_do():
    (budget,) = made(billing_account=ACCOUNT).all(BUDGET)
    assert budget.inputs == {
        "billingAccount": ACCOUNT,
        "displayName": "cloud in my-project",
        "amount": {"specifiedAmount": {"currencyCode": "USD", "units": "20000"}},
        "budgetFilter": {"projects": ["projects/123456789012"], "labels": {"hpc-cluster": "cloud"}},
        "thresholdRules": [{"thresholdPercent": share} for share in (0.8, 0.95, 1)],
    }


@pytest.mark.parametrize(
    ("month", "units", "nanos"),
    [
        (0.01, "0", 10_000_000),
        (5.999, "6", None),
        (999_999_999_999.99, "999999999999", 990_000_000),
        (20000.1, "20000", 10**8),
    ],
)
def test_an_amount_has_whole_units_and_hundredths(month: float, units: str, nanos: int | None):
    (budget,) = made(month=month, billing_account=ACCOUNT).all(BUDGET)
    amount = budget.inputs["amount"]["specifiedAmount"]
    assert (amount["units"], amount.get("nanos")) == (units, nanos)


def test_it_waits_for_its_service():
    recording = made(billing_account=ACCOUNT)
    (budget,) = recording.all(BUDGET)
    (service,) = [row for row in recording.all(SERVICE) if row.inputs["service"] == "billingbudgets.googleapis.com"]
    assert recording.waits_for(budget, service)


def test_an_amount_is_known_in_a_preview():
    (budget,) = deploy(settings(budget=BILLED), unknown=True).all(BUDGET)
    assert budget.inputs["amount"]["specifiedAmount"]["units"] == "20000"
    assert budget.inputs["budgetFilter"]["projects"] == [None]


def test_a_preview_says_who_may_create_it():
    (line,) = [line for line in describe_request(google(budget=BILLED)) if ACCOUNT in line]
    assert line == (
        f"for its budget, who is not Owner of the project also needs roles/billing.costsManager on {ACCOUNT}"
    )
    assert "for its budget" not in "".join(describe_request(google(budget={"month": 20000.0})))


def test_the_stack_file_adds_who_gets_its_mails():
    channels = ["projects/my-project/notificationChannels/1"]
    rule = {"type": BUDGET, "set": {"all_updates_rule": {"monitoring_notification_channels": channels}}}
    (budget,) = deploy(settings(budget=BILLED, customize=[rule])).all(BUDGET)
    assert budget.inputs["allUpdatesRule"] == {"monitoringNotificationChannels": channels}
