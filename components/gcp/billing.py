"""The stack's budget in Cloud Billing, if the stack file names a billing account."""

import pulumi
from pulumi_gcp import billing

from cluster.config import ClusterConfig
from cluster.platforms.gcp.names import place
from components.gcp.bake_design import CLUSTER_LABEL
from scripts.node.judge.kinds import HOURS_USED


def create_budget(
    name: str, config: ClusterConfig, project_number: pulumi.Output[int], *, opts: pulumi.ResourceOptions
) -> None:
    """Create the budget of the resources with the cluster's label.

    It waits for the enabled services, as the bucket does that has the project's number.
    """
    budget = config.budget
    if budget is None or budget.billing_account is None:
        return
    units, hundredths = divmod(round(budget.month * 100), 100)
    billing.Budget(
        name,
        billing_account=budget.billing_account,
        # At most 60 characters.
        display_name=f"{config.name} in {place(config).project}",
        amount=billing.BudgetAmountArgs(
            # Another currency than the account's is refused (billingbudgets.v1, BudgetAmount.specifiedAmount).
            specified_amount=billing.BudgetAmountSpecifiedAmountArgs(
                currency_code=budget.currency, units=str(units), nanos=hundredths * 10**7 or None
            )
        ),
        budget_filter=billing.BudgetBudgetFilterArgs(
            # Cloud Billing answers with the number in place of an id, which would be a difference in each run
            # (GoogleCloudPlatform/cloud-foundation-fabric issue 2365).
            projects=[project_number.apply(lambda number: f"projects/{number:.0f}")],
            # One label at most (billingbudgets.v1, Filter.labels).
            labels={CLUSTER_LABEL: config.name},
        ),
        threshold_rules=[
            billing.BudgetThresholdRuleArgs(threshold_percent=share) for share in sorted([*HOURS_USED.values(), 1.0])
        ],
        opts=opts,
    )
