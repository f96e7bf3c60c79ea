"""The budget in Cloud Billing: what `check cloud` asks about its billing account."""

import pytest

from cluster.cloud_checks import CloudOutcome
from cluster.platforms.gcp.cloud_billing import IN_ACCOUNT, IN_PROJECT
from components.gcp import cloud_checks
from tests.clouds import google
from tests.cluster.stacks import ALICE
from tests.gcp.test_cloud_checks import BILLING, PERMISSIONS, row, wrong
from tests.lab.google.apis import ACCOUNT, Answer, Asked, GoogleApis, Rule, on, refusal

GET, OF_ACCOUNT = (f"cloudbilling.billingAccounts.{method}" for method in ("get", "testIamPermissions"))
CONFIG = google(budget={"month": 20000.0, "billing_account": ACCOUNT})


def test_a_stack_without_one_asks_nothing_about_it(apis: GoogleApis) -> None:
    assert wrong(cloud_checks.check(google(budget={"month": 20000.0}))) == []
    assert not {asked.id for asked in apis.asked} & {GET, OF_ACCOUNT}


def test_a_budget_that_stays_needs_no_role_of_whoever_edits_something_else(apis: GoogleApis) -> None:
    stopping = {**dict(CONFIG.budget or {}), "stop": "elastic"}
    nodesets = {"cpu": {"machine_type": "n2-standard-2", "count": {"min": 0, "max": 2}}}
    cloud_checks.check(google(budget=stopping, users=[ALICE], nodesets=nodesets), CONFIG)
    assert not {asked.id for asked in apis.asked} & {GET, OF_ACCOUNT}
    cloud_checks.check(CONFIG, google(budget={"month": 10000.0, "billing_account": ACCOUNT}))
    assert {asked.id for asked in apis.asked} >= {GET, OF_ACCOUNT}


def test_an_account_that_pays_for_the_project(apis: GoogleApis) -> None:
    rows = cloud_checks.check(CONFIG)
    assert wrong(rows) == []
    assert row(rows, "billing", ACCOUNT).seen == "pays for my-project, in USD"
    (services,) = [asked for asked in apis.asked if asked.id == "serviceusage.services.batchGet"]
    assert "projects/my-project/services/billingbudgets.googleapis.com" in services.query["names"]


@pytest.mark.parametrize(
    ("rule", "outcome", "seen", "todo"),
    [
        (
            on(GET, (200, {"currencyCode": "EUR"})),
            CloudOutcome.WRONG,
            "its currency is EUR, and that of the budget USD",
            "write `budget: {currency: EUR}`, and the same in `pricing`",
        ),
        (
            on(GET, refusal(404, "not found")),
            CloudOutcome.WRONG,
            "there is no such billing account",
            "correct budget.billing_account: gcloud billing accounts list",
        ),
        (
            on(BILLING, (200, {"billingEnabled": True, "billingAccountName": "billingAccounts/AAAAAA-BBBBBB-CCCCCC"})),
            CloudOutcome.NOT_ASKED,
            "AAAAAA-BBBBBB-CCCCCC pays for my-project",
            "compare: write `budget: {billing_account: AAAAAA-BBBBBB-CCCCCC}` unless that is a subaccount of it",
        ),
    ],
)
def test_an_account_that_takes_no_such_budget(
    apis: GoogleApis, rule: Rule, outcome: CloudOutcome, seen: str, todo: str
) -> None:
    apis.rules.insert(0, rule)
    (found,) = wrong(cloud_checks.check(CONFIG))
    assert (found.id, found.outcome, found.seen, found.todo) == ("billing", outcome, seen, todo)


@pytest.mark.parametrize("lost", [{IN_ACCOUNT}, {IN_PROJECT}, {IN_ACCOUNT, IN_PROJECT}], ids=len)
def test_a_role_on_the_account_or_the_project_is_enough(apis: GoogleApis, lost: set[str]) -> None:
    def without(asked: Asked) -> Answer | None:
        kept = [name for name in asked.body.get("permissions", ()) if name not in lost]
        return (200, {"permissions": kept} if kept else {}) if asked.id in (PERMISSIONS, OF_ACCOUNT) else None

    apis.rules.insert(0, without)
    rows = cloud_checks.check(CONFIG)
    found = row(rows, "permissions", ACCOUNT)
    assert [row for row in wrong(rows) if row is not found] == []
    if len(lost) == 1:
        assert found.outcome is CloudOutcome.OK
    else:
        assert (found.outcome, found.seen) == (CloudOutcome.WRONG, f"you lack {IN_ACCOUNT}")
        command = f"gcloud billing accounts add-iam-policy-binding {ACCOUNT} --member user:YOU"
        assert found.todo == f"{command} --role roles/billing.costsManager"
