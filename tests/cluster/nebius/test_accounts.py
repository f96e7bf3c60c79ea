"""Accounts of a cluster on Nebius: jobs of Soperator's checks must be accepted beside those of users."""

from cluster.platforms.nebius.slurm import accounts
from cluster.slurm.accounting import desired
from tests.cluster.nebius.releases.clusters import config, described


def test_checks_have_an_account_where_associations_are_enforced():
    wanted = accounts(config(described(users=[{"name": "alice", "uid": 2001}])))
    assert [one["name"] for one in wanted["users"]] == ["alice", "soperatorchecks"]
    (checks,) = [one for one in wanted["accounts"] if one["name"] == "soperatorchecks"]
    assert checks["parent"] == "root"


def test_without_enforcement_there_is_none():
    cluster = config(described(accounting={"enforce": []}))
    assert accounts(cluster) == desired(cluster)
