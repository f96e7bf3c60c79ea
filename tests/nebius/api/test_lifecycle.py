"""Objects of Nebius's API: every error in words, every wait ends, and no orphan or double after a kill."""

import random
from typing import Any

import pytest

from components.nebius.api import client, lifecycle, objects
from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import KINDS
from tests.lab.nebius_api.faults import ERRORS, Fault, refusal
from tests.lab.nebius_api.server import VARIABLE, NebiusServer
from tests.nebius.api.project import OWNER, PROJECT_ID, Project, cluster_rows, few_rows, owned


def props(api: NebiusServer, kind: str = "GpuCluster", **changes: Any) -> dict[str, Any]:
    spec = {"infiniband_fabric": "fabric-3"} if kind == "GpuCluster" else {}
    return {
        "kind": kind, "name": "n", "resource_name": "n", "parent_id": PROJECT_ID, "owner": OWNER, "spec": spec,
        "labels": {}, "pace": 0.01, "timeout_seconds": 60.0, **changes,
    }  # fmt: skip


def created(api: NebiusServer, kind: str = "GpuCluster", **changes: Any) -> lifecycle.ReturnedObject:
    return lifecycle.create(props(api, kind, **changes))


def creation_error(api: NebiusServer, kind: str = "GpuCluster", **changes: Any) -> str:
    with pytest.raises(NebiusError) as raised:
        created(api, kind, **changes)
    return str(raised.value)


SENTENCES = {
    "bad_request": ["bad request: spec: not valid", "correct the named field"],
    "bad_resource_state": ["is in a state that does not allow it: it is being changed"],
    "resource_not_found": ["there is no n"],
    "resource_already_exists": ["it exists already, with the id n", "write nebius.prefix"],
    "out_of_range": ["out of range: asked 101, limit 100"],
    "permission_denied": ["permission denied on n", "group `editors`"],
    "resource_conflict": ["conflict with n: resource_version differs"],
    "operation_aborted": ["operation op-1 on n was aborted by operation op-2"],
    "operation_conflict": ["another operation on n is under way: op-1"],
    "too_many_requests": ["too many requests: 20 requests per second"],
    "quota_failure": [
        "quota compute.instance.gpu.h100: limit 8, asked 16: limit of GPUs exceeded", "Administration, Limits",
    ],
    "not_enough_resources": ["Nebius has not enough gpu-h100-sxm: asked 2: no hosts of fabric-3 are free"],
    "internal_error": ["internal error of Nebius (request request-1, trace trace-1)", "Nebius's support"],
    "unavailable": ["UNAVAILABLE", "can't be reached"],
    "unauthenticated": ["UNAUTHENTICATED: the token has expired", "NEBIUS_CREDENTIALS_FILE"],
}  # fmt: skip


def test_every_error_has_its_sentence() -> None:
    assert SENTENCES.keys() == ERRORS.keys()


class TestRefused:
    @pytest.mark.parametrize("what", SENTENCES)
    def test_a_refused_creation_says_why_and_what_to_do(self, api: NebiusServer, what: str) -> None:
        api.faults.append(Fault(verb="create", what=what, count=None))
        text = creation_error(api, timeout_seconds=2.0)
        assert text.startswith("could not create GpuCluster n:\n")
        assert all(part in text for part in SENTENCES[what]), text
        assert "\n  to do: " in text
        assert "request id request-" in text
        assert "Traceback" not in text
        assert owned(api) == {}

    @pytest.mark.parametrize("what", ["operation_conflict", "operation_aborted", "too_many_requests", "unavailable"])
    def test_temporary_errors_of_a_creation_are_retried(self, api: NebiusServer, what: str) -> None:
        api.faults.append(Fault(verb="create", what=what, count=5))
        assert created(api).id.startswith("computegpucluster-")
        assert len(owned(api)["GpuCluster n"]) == 1

    def test_a_lost_answer_makes_no_double(self, api: NebiusServer) -> None:
        api.faults.append(Fault(verb="create", mode="lose"))
        found = created(api)
        assert owned(api) == {"GpuCluster n": [found.id]}

    def test_an_expired_token_ends_the_run_at_its_first_call(self, api: NebiusServer) -> None:
        api.faults.append(Fault(kind="ProfileService", what="unauthenticated", count=None))
        client.close()
        text = creation_error(api)
        assert text.startswith("could not log in to Nebius:")
        assert "UNAUTHENTICATED: the token has expired" in text
        assert len([call for call in api.calls if "ProfileService" in call.method]) == 1

    def test_an_endpoint_that_nobody_listens_at_is_an_error(
        self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client.close()
        monkeypatch.setattr(client, "LOGIN_SECONDS", 1.0)
        # It ends before the stand-in, which removes its own address.
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv(VARIABLE, "127.0.0.1:1")
            with pytest.raises(NebiusError, match=r"can't be reached|did not answer in time"):
                lifecycle.create(props(api))


class TestFailed:
    @pytest.mark.parametrize("what", ["quota_failure", "not_enough_resources", "internal_error"])
    def test_a_failed_operation_says_why_and_leaves_nothing(self, api: NebiusServer, what: str) -> None:
        api.faults.append(Fault(verb="create", mode="fail", what=what))
        text = creation_error(api)
        assert all(part in text for part in SENTENCES[what][:1]), text
        assert owned(api) == {}
        # The same inputs have the same key, whose operation has failed: a second one is made.
        assert created(api).status == {}
        assert len(owned(api)) == 1

    def test_a_creation_ends_at_its_deadline_and_the_next_run_takes_it_over(self, api: NebiusServer) -> None:
        api.faults.append(Fault(verb="create", mode="hang"))
        text = creation_error(api, timeout_seconds=0.3)
        assert "it has not ended after 0 s" in text
        assert "last progress: create GpuCluster; 0%" in text
        assert "it goes on where it is" in text
        (before,) = owned(api)["GpuCluster n"]
        for operation in api.store.operations.values():
            operation["seconds"] = 0
        assert created(api).id == before

    def test_a_node_group_that_hangs_for_a_quota_names_it_and_goes_on_once_that_is_raised(
        self, api: NebiusServer, project: Project
    ) -> None:
        api.faults.append(Fault(kind="NodeGroup", verb="create", mode="hang"))
        rows = [{**row, **({"timeout_seconds": 0.4} if row["name"] == "workers" else {})} for row in cluster_rows()]
        project.write(rows)
        project.run("up", ok=False)
        text = project.text()
        assert "quota compute.instance.gpu.h100: limit 8, asked 16" in text
        assert "QuotaFailure" in text
        assert "0 of 2 nodes ready" in text
        # Nothing of the node group is in the state; in a destroy it goes with its cluster.
        assert "workers" not in project.state()
        (before,) = owned(api)["NodeGroup workers"]
        for operation in api.store.operations.values():
            operation["seconds"] = 0
        project.up(cluster_rows())
        assert owned(api)["NodeGroup workers"] == [before]

    def test_a_cluster_that_failed_is_created_again(self, api: NebiusServer, project: Project) -> None:
        api.faults.append(Fault(kind="Cluster", verb="create", mode="fail"))
        project.write([row for row in cluster_rows() if row["name"] in ("network", "subnet", "k8s")])
        project.run("up", ok=False)
        assert "could not create Cluster k8s" in project.text()
        project.run("up")
        (row,) = api.store.of("Cluster")
        assert row["state"] == "RUNNING"

    def test_a_deletion_ends_at_its_deadline(self, api: NebiusServer) -> None:
        found = created(api)
        api.faults.append(Fault(verb="delete", mode="hang"))
        with pytest.raises(NebiusError, match="could not delete GpuCluster n"):
            lifecycle.delete(found.id, props(api, timeout_seconds=0.2))

    @pytest.mark.parametrize(("kind", "verb"), [("OperationService", "poll"), ("GpuCluster", "get")])
    def test_an_api_that_is_out_of_reach_for_a_while_changes_nothing(
        self, api: NebiusServer, kind: str, verb: str
    ) -> None:
        api.faults.append(Fault(kind=kind, verb=verb, what="unavailable", count=6))
        assert created(api).id

    def test_an_api_that_stays_out_of_reach_ends_the_wait(
        self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lifecycle, "UNREACHABLE_SECONDS", 0.5)
        api.faults.append(Fault(kind="OperationService", verb="poll", what="unavailable", count=None))
        assert "Nebius's API can't be reached" in creation_error(api)

    def test_a_token_that_expires_in_the_middle_ends_it_at_once_and_the_next_run_goes_on(
        self, api: NebiusServer
    ) -> None:
        api.faults.append(Fault(kind="OperationService", verb="poll", what="unauthenticated"))
        assert "UNAUTHENTICATED: the token has expired" in creation_error(api)
        assert len([call for call in api.calls if call.method.startswith("nebius.common.v1.Operation")]) == 1
        (before,) = owned(api)["GpuCluster n"]
        assert created(api).id == before


class TestNames:
    def test_an_object_without_an_owner_is_not_taken_over(self, api: NebiusServer) -> None:
        id_ = api.methods.seed("GpuCluster", PROJECT_ID, "n", {"infiniband_fabric": "fabric-3"})
        text = creation_error(api)
        assert f"it exists already, with the id {id_}" in text
        assert "it has no label hpc-owner" in text

    def test_an_object_of_another_state_is_not_taken_over(self, api: NebiusServer) -> None:
        created(api, owner="another")
        text = creation_error(api)
        assert "the label hpc-owner names another state (another)" in text
        assert "write nebius.prefix" in text

    def test_an_object_that_another_state_has_taken_over_is_not_deleted(self, api: NebiusServer) -> None:
        found = created(api)
        api.store.objects[found.id]["metadata"]["labels"]["hpc-owner"] = "another"
        lifecycle.delete(found.id, props(api))
        assert found.id in api.store.objects

    def test_the_name_of_a_deleted_bucket_is_taken_until_it_is_purged(self, api: NebiusServer) -> None:
        found = created(api, "Bucket")
        lifecycle.delete(found.id, props(api, "Bucket"))
        before = api.taken
        lifecycle.delete(found.id, props(api, "Bucket"))
        assert api.taken == before + 1  # a second deletion asks for its state, and does nothing
        text = creation_error(api, "Bucket", owner="another")
        assert "is kept in the state SCHEDULED_FOR_DELETION with its name" in text
        assert "undelete or purge it" in text

    def test_a_creation_waits_for_the_end_of_a_deletion(self, api: NebiusServer) -> None:
        api.methods.seconds = lambda _kind, verb: 4.0 if verb == "delete" else 0.02
        found = created(api, "Network")
        with pytest.raises(NebiusError, match="has not ended"):
            lifecycle.delete(found.id, props(api, "Network", timeout_seconds=1.0))
        assert created(api, "Network").id != found.id


class TestInUse:
    def test_the_error_of_an_object_in_use_names_its_user(self, api: NebiusServer, project: Project) -> None:
        project.up(few_rows())
        (id_,) = owned(api)["Subnet subnet"]
        with pytest.raises(NebiusError, match="it is used by Allocation vpcallocation-"):
            lifecycle.delete(id_, props(api, "Subnet", resource_name="subnet", timeout_seconds=2.0))


class TestConflicts:
    def test_an_update_is_retried_after_a_conflict(self, api: NebiusServer) -> None:
        found = created(api, "ServiceAccount", spec={"description": "a"})
        api.faults.append(Fault(verb="update", what="resource_conflict", count=2))
        news = props(api, "ServiceAccount", spec={"description": "b"})
        lifecycle.update(found.id, props(api, "ServiceAccount", spec={"description": "a"}), news)
        assert api.store.objects[found.id]["spec"] == {"description": "b"}

    def test_an_error_of_a_stack_has_no_traceback(self, api: NebiusServer, project: Project) -> None:
        api.faults.append(Fault(kind="Subnet", verb="create", what="quota_failure", count=None))
        project.write(few_rows())
        project.run("up", ok=False)
        assert "quota compute.instance.gpu.h100: limit 8, asked 16" in project.text()
        assert "Traceback" not in project.text()


class TestLookUps:
    def test_the_first_subnet_of_a_project_is_found(self, api: NebiusServer) -> None:
        assert objects.first_subnet(PROJECT_ID).startswith("vpcsubnet-")

    def test_missing_objects_are_an_error_false_or_empty(self, api: NebiusServer) -> None:
        for id_ in [item.metadata.id for item in objects.list_all(KINDS["Subnet"], PROJECT_ID)]:
            del api.store.objects[id_]
        with pytest.raises(NebiusError, match="the project has none\n  to do: set `subnet: create`"):
            objects.first_subnet(PROJECT_ID)
        assert not objects.exists("Filesystem", "computefilesystem-1")
        assert objects.capacities(PROJECT_ID) == []

    def test_all_pages_are_read(self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(25):
            api.methods.seed("Disk", PROJECT_ID, f"pvc-{number}", {})
        monkeypatch.setattr(objects, "PAGE", 10)
        assert len(list(objects.list_all(KINDS["Disk"], PROJECT_ID))) == 25

    def test_quotas(self, api: NebiusServer) -> None:
        found = {quota.name: quota for quota in objects.quotas("tenant-e00test")}
        assert found["compute.instance.gpu.h100"].free == 64


def test_every_error_that_is_a_detail_can_be_packed(api: NebiusServer) -> None:
    for what in ERRORS:
        assert refusal(what, "NodeGroup", "x").plain()["code"] == ERRORS[what][0]


@pytest.mark.parametrize("what", ["resource_not_found", "permission_denied"])
def test_a_membership_waits_until_iam_knows_the_account_and_the_group(api: NebiusServer, what: str) -> None:
    with api.lock:
        group, account = (api.methods.seed(kind, PROJECT_ID, "new", {}) for kind in ("Group", "ServiceAccount"))
    api.faults.append(Fault(kind="GroupMembership", verb="create", what=what, count=3))
    created(api, "GroupMembership", parent_id=group, spec={"member_id": account})
    calls = [call for call in api.calls if call.method.endswith("GroupMembershipService/Create")]
    assert len(calls) == 4


def test_creations_of_other_kinds_fail_at_once(api: NebiusServer) -> None:
    api.faults.append(Fault(kind="GpuCluster", verb="create", what="permission_denied", count=None))
    assert "take the role `admin` of the project" in creation_error(api)
    assert len([call for call in api.calls if call.method.endswith("GpuClusterService/Create")]) == 1


def no_doubles(api: NebiusServer) -> None:
    assert {name: ids for name, ids in owned(api).items() if len(ids) > 1} == {}


class TestKilled:
    # Of the calls of a creation (log in, list, create, poll, read), those after which something is there.
    @pytest.mark.parametrize("number", [3, 4, 7])
    def test_a_second_up_completes_a_killed_one(self, api: NebiusServer, project: Project, number: int) -> None:
        project.write(few_rows())
        assert project.killed("up", number)
        no_doubles(api)
        project.run("up")
        no_doubles(api)
        assert len(owned(api)) == len(few_rows())
        assert project.pending() == []
        assert project.run("preview") == {}
        project.run("destroy")
        assert owned(api) == {}

    @pytest.mark.parametrize("number", [3, 8])
    def test_a_destroy_deletes_what_a_killed_up_created(self, api: NebiusServer, project: Project, number: int) -> None:
        project.write(few_rows())
        assert project.killed("up", number)
        project.run("destroy")
        assert owned(api) == {}
        assert project.state() == {}

    @pytest.mark.slow
    def test_random_kills_leave_no_doubles_and_no_leftovers(self, api: NebiusServer, project: Project) -> None:
        chance = random.Random(1)  # noqa: S311 - not for secrets
        project.write(cluster_rows())
        kills = 0
        for _ in range(6):
            kills += project.killed("destroy" if chance.random() < 0.2 else "up", chance.randint(2, 50))
            no_doubles(api)
        assert kills
        project.run("up")
        assert len(owned(api)) == len(cluster_rows())
        no_doubles(api)
        assert project.run("preview") == {}
        for _ in range(2):
            project.killed("destroy", chance.randint(2, 20))
            no_doubles(api)
        project.run("destroy")
        assert owned(api) == {}
        assert project.state() == {}

    def test_the_next_up_completes_a_killed_update(self, api: NebiusServer, project: Project) -> None:
        rows = few_rows()
        project.up(rows)
        rows[1]["spec"]["ipv4_private_pools"] = {"use_network_pools": True}
        project.write(rows)
        assert project.killed("up", 3)
        project.run("up")
        (subnet,) = (row for row in api.store.of("Subnet") if row["metadata"]["name"] == "subnet")
        assert subnet["spec"]["ipv4_private_pools"] == {"use_network_pools": True}
        assert project.run("preview") == {}

    def test_changed_inputs_hold_after_a_killed_creation(self, api: NebiusServer, project: Project) -> None:
        rows = [row for row in cluster_rows() if row["name"] == "account"]
        project.write(rows)
        assert project.killed("up", 3)
        rows[0]["spec"]["description"] = "another"
        project.up(rows)
        no_doubles(api)
        (row,) = api.store.of("ServiceAccount")
        assert row["spec"]["description"] == "another"
        project.run("destroy")
        assert owned(api) == {}


def test_the_stand_in_keeps_objects_and_keys_over_a_restart(api: NebiusServer, project: Project) -> None:
    """Also in the middle of an operation, and with the keys of requests that it answered."""
    state = project.root / "nebius.json"
    with NebiusServer(seconds=0.2, state=state) as first:
        project.api = first
        project.write(few_rows())
        assert project.killed("up", 3)
        objects = dict(first.store.objects)
    with NebiusServer(port=first.port, seconds=0.2, state=state) as second:
        assert second.store.objects == objects
        project.api = second
        project.run("up")
        no_doubles(second)
        assert len(owned(second)) == len(few_rows())
