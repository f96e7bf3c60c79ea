"""What Slurm's database holds of accounts and users here: the stack file's, and the user of Soperator's checks."""

from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.platforms.nebius.releases.checks import CHECKS_USER
from cluster.slurm.accounting import desired


def desired_here(config: ClusterConfig) -> dict[str, Any]:
    """As `desired`, with an account for checks.

    Soperator itself enforces no associations. With `accounting.enforce`, jobs of its checks would be refused.
    """
    wanted: dict[str, Any] = dict(desired(config))
    if not config.accounting.enforce:
        return wanted
    account = {"name": CHECKS_USER, "parent": "root", "description": "active checks", "organization": "soperator"}
    user = {"name": CHECKS_USER, "default_account": CHECKS_USER, "accounts": [CHECKS_USER], "qos": []}
    return {**wanted, "accounts": [*wanted["accounts"], account], "users": [*wanted["users"], user]}
