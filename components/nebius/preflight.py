"""Checks before the first resource is created: programs, a credential, Nebius's versions, quotas and capacity.

Without them `up` would find a refused version, a full quota or a missing program half an hour and some paid resources
later. They are those of `./hpc check cloud` (cluster/platforms/nebius/cloud_offers.py).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from cluster.cloud_checks import CloudOutcome
from cluster.platforms.nebius.cloud_offers import offers
from cluster.platforms.nebius.cloud_request import AskedPlace
from components.cloud_questions import rows
from components.dynamic import ActionProvider, ActionResource, report, without_traceback
from components.nebius.api import client
from components.nebius.api.client import NebiusError, nebius_error
from components.nebius.cloud_checks import ask, programs

FATAL = frozenset({"UNAUTHENTICATED", ""})
"""Codes of errors that every further call would return as well. After other errors a check is left out."""
SECONDS = 120.0
"""Time limit of all checks: that of a call is shorter."""


class PreflightProvider(ActionProvider):
    """Compares what the stack requests with what Nebius offers, and changes nothing."""

    ID = "{project}/preflight"
    ACTED_ON = ("request",)

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> None:
        """Check the whole request, or what is new or more than before. Raises NebiusError with all that is missing."""
        with without_traceback(NebiusError):
            _check(news, olds["request"] if olds else {})


class Preflight(ActionResource, module="nebius", name="Preflight"):
    """The checks that every other resource waits for.

    Inputs: `tenant`, `project`, `region`, `request` (of cluster.platforms.nebius.request), `command` (the credential
    command).
    """

    PROVIDER = PreflightProvider


def _check(props: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Raise NebiusError with every reason why the stack can't be brought up."""
    client.sdk()
    place = AskedPlace(
        tenant=props["tenant"],
        project=props["project"],
        region=props["region"],
        request=props["request"],
        before=before,
    )
    found = {outcome: list[str]() for outcome in CloudOutcome}
    for row in rows(offers(place), partial(ask, seconds=SECONDS, fatal=FATAL), SECONDS, "Nebius"):
        if row.todo:
            found[row.outcome].append(f"{row.asked}: {row.seen}; to do: {row.todo}")
    reasons = [*(() if before else programs(props["command"])), *found[CloudOutcome.WRONG]]
    if reasons:
        todo = f"correct each of these, then run `up` again{'' if before else '; nothing was created'}"
        raise nebius_error("start", reasons, todo)
    for line in found[CloudOutcome.NOT_ASKED]:
        report(line)
