"""IAM learns of a new account or group a little later: what names it is created again until then."""

import pytest

from lab.nebius_api.faults import Fault
from lab.nebius_api.server import NebiusServer
from tests.nebius.api.project import PROJECT_ID
from tests.nebius.api.test_errors import created, told


@pytest.mark.parametrize("what", ["resource_not_found", "permission_denied"])
def test_a_membership_waits_until_iam_knows_the_account_and_the_group(api: NebiusServer, what: str) -> None:
    with api.lock:
        group, account = (api.methods.seed(kind, PROJECT_ID, "new", {}) for kind in ("Group", "ServiceAccount"))
    api.faults.append(Fault(kind="GroupMembership", verb="create", what=what, count=3))
    created(api, "GroupMembership", parent_id=group, spec={"member_id": account})
    calls = [call for call in api.calls if call.method.endswith("GroupMembershipService/Create")]
    assert len(calls) == 4


def test_others_fail_at_once(api: NebiusServer) -> None:
    api.faults.append(Fault(kind="GpuCluster", verb="create", what="permission_denied", count=None))
    assert "take the role `admin` of the project" in told(api)
    assert len([call for call in api.calls if call.method.endswith("GpuClusterService/Create")]) == 1
