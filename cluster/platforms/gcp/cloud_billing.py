"""Questions about the billing account, and the budget in it that a stack may ask for."""

from collections.abc import Iterator

from cluster.cloud_checks import CloudCheck, Seen
from cluster.platforms.gcp.cloud_request import Answer, AskedStack, CloudRequest, own_permissions
from cluster.platforms.gcp.permissions import BUDGETS

IN_ACCOUNT, IN_PROJECT = "billing.budgets.create", "billing.resourcebudgets.write"
"""Permissions to create a budget of one project: one of them is enough."""


def billing_info(project: str) -> CloudRequest:
    """Return the request for a project's billing account. The permission is in the method's description
    (cloudbilling.v1, projects.getBillingInfo)."""
    path = f"v1/projects/{project}/billingInfo"
    return CloudRequest(service="cloudbilling", path=path, permission="resourcemanager.projects.get")


def budget(stack: AskedStack) -> Iterator[CloudCheck]:
    """The billing account of a budget that `up` creates or changes: it pays for the project, in that currency, and
    takes a budget of the caller's."""
    section, project, before = stack.config.budget, stack.project, stack.before and stack.before.budget
    if section is None or section.billing_account is None:
        return
    if before and before.model_copy(update={"stop": section.stop}) == section:  # Cloud Billing has no `stop`
        return
    account, currency = section.billing_account, section.currency
    path = f"v1/billingAccounts/{account}"
    request = CloudRequest(
        service="cloudbilling", path=path, permission="billing.accounts.get", role="roles/billing.viewer"
    )

    def read_account(answer: Answer, info: Answer) -> Seen:
        if answer is None:
            todo = "correct budget.billing_account: gcloud billing accounts list"
            return Seen(text="there is no such billing account", todo=todo)
        if answer["currencyCode"] != currency:
            todo = f"write `budget: {{currency: {answer['currencyCode']}}}`, and the same in `pricing`"
            return Seen(text=f"its currency is {answer['currencyCode']}, and that of the budget {currency}", todo=todo)
        payer = (info or {}).get("billingAccountName", "").rpartition("/")[2]
        if payer == account:
            return Seen(text=f"pays for {project}, in {currency}")
        # A reseller's account has a budget for projects of its subaccounts.
        todo = f"compare: write `budget: {{billing_account: {payer}}}` unless that is a subaccount of it"
        return Seen(text=f"{payer or 'none'} pays for {project}", todo=todo, unclear=True)

    yield CloudCheck(
        id="billing",
        asks=f"billing account {account} of the budget",
        requests=(request, billing_info(project)),
        read=read_account,
    )
    of_account = CloudRequest(service="cloudbilling", path=f"{path}:testIamPermissions", tests=(IN_ACCOUNT,))

    def read_permissions(*answers: Answer) -> Seen:
        if any((answer or {}).get("permissions") for answer in answers):
            return Seen(text="you may create its budgets")
        command = f"gcloud billing accounts add-iam-policy-binding {account} --member user:YOU --role {BUDGETS}"
        return Seen(text=f"you lack {IN_ACCOUNT}", todo=command)

    yield CloudCheck(
        id="permissions",
        asks=f"{BUDGETS} in the billing account {account}",
        requests=(of_account, own_permissions(project, (IN_PROJECT,))),
        read=read_permissions,
    )
