"""What `./hpc backend init nebius` refuses, and what Nebius refuses: nothing is left half done."""

import subprocess
import sys
from pathlib import Path

import pytest

from components.nebius.api import client
from lab.nebius_api.faults import Fault
from lab.nebius_api.server import NebiusServer
from tests.cli.conftest import Hpc
from tests.nebius.state.buckets import BUCKET, INIT, PROJECT, TENANT, rows


class TestRefused:
    def test_somebody_elses_bucket_leaves_nothing_behind(self, hpc: Hpc, nebius: NebiusServer, kept: Path) -> None:
        with nebius.lock:
            nebius.methods.seed("Bucket", "project-e00other", BUCKET, {"versioning_policy": "ENABLED"})
        ended = hpc(*INIT)
        assert ended.code == 1
        assert f"the bucket {BUCKET} belongs to another project" in ended.err
        assert "choose another name with --name" in ended.err
        assert rows(nebius, "ServiceAccount") == rows(nebius, "AccessKey") == []
        assert not kept.exists()

    @pytest.mark.parametrize("spec", [{}, {"versioning_policy": "DISABLED"}, {"versioning_policy": "SUSPENDED"}])
    def test_a_bucket_without_versioning(self, hpc: Hpc, nebius: NebiusServer, spec: dict[str, str]) -> None:
        with nebius.lock:
            id_ = nebius.methods.seed("Bucket", PROJECT, BUCKET, spec)
        ended = hpc(*INIT)
        assert ended.code == 1
        assert "exists without versioning" in ended.err
        assert f"nebius storage bucket update --id {id_} --versioning-policy enabled" in ended.err
        assert rows(nebius, "ServiceAccount") == []
        assert rows(nebius, "Bucket")[0]["spec"] == spec

    def test_a_deleted_bucket_that_is_not_purged(self, hpc: Hpc, nebius: NebiusServer) -> None:
        with nebius.lock:
            id_ = nebius.methods.seed("Bucket", PROJECT, BUCKET, {"versioning_policy": "ENABLED"})
            nebius.store.objects[id_]["state"] = "SCHEDULED_FOR_DELETION"
        ended = hpc(*INIT)
        assert ended.code == 1
        assert f"nebius storage bucket undelete --id {id_}" in ended.err

    @pytest.mark.parametrize(
        ("fault", "reason", "todo"),
        [
            (Fault(kind="Bucket", verb="create", what="quota_failure"), "quota ", "ask for more"),
            (Fault(kind="Bucket", verb="list", what="permission_denied"), "permission denied", "group `editors`"),
            (
                Fault(kind="GroupMembership", verb="create", what="permission_denied"),
                "permission denied",
                "administrator",
            ),
            (Fault(kind="AccessKey", verb="create", what="permission_denied"), "permission denied", "administrator"),
            (Fault(kind="ServiceAccount", verb="create", what="quota_failure"), "quota ", "ask for more"),
            (Fault(what="unauthenticated", count=None), "the token has expired", "log in again"),
            (Fault(kind="Bucket", verb="create", mode="fail", what="internal_error"), "internal error", "request id"),
        ],
    )
    def test_nebius_refuses_and_the_next_run_completes_it(
        self, hpc: Hpc, nebius: NebiusServer, fault: Fault, reason: str, todo: str
    ) -> None:
        nebius.faults.append(fault)
        if fault.kind in ("GroupMembership", "AccessKey"):  # a new account may not be known everywhere yet
            with nebius.lock:
                nebius.methods.seed("ServiceAccount", PROJECT, "slurm-pulumi-sa", {})
        ended = hpc(*INIT)
        assert ended.code == 1
        assert reason in ended.err
        assert todo in ended.err
        assert "Traceback" not in ended.err
        nebius.faults.clear()
        client.close()
        if fault.mode == "fail":
            with nebius.lock:  # what a failed creation leaves there is none of ours
                for row in rows(nebius, "Bucket"):
                    del nebius.store.objects[row["metadata"]["id"]]
        assert hpc(*INIT).code == 0
        assert [len(rows(nebius, kind)) for kind in ("Bucket", "ServiceAccount", "GroupMembership")] == [1, 1, 1]

    def test_a_new_account_that_iam_does_not_know_everywhere_yet(self, hpc: Hpc, nebius: NebiusServer) -> None:
        for kind, what in (("GroupMembership", "resource_not_found"), ("AccessKey", "permission_denied")):
            nebius.faults.append(Fault(kind=kind, verb="create", what=what, count=2))
        assert hpc(*INIT).code == 0
        assert [fault.count for fault in nebius.faults] == [0, 0]

    def test_a_group_that_may_not_be_seen(self, hpc: Hpc, nebius: NebiusServer) -> None:
        with nebius.lock:
            nebius.methods.seed("Group", TENANT, "viewers", {})
            nebius.store.seeded.append(TENANT)  # so that it gets no others
        ended = hpc(*INIT)
        assert ended.code == 1
        assert f"{TENANT} has no such group that you may see" in ended.err
        assert rows(nebius, "AccessKey") == []

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (("--tenant", "e00abc", "--project", PROJECT), "begins with tenant-"),
            (("--tenant", TENANT, "--project", "Project-X"), "begins with project-"),
            (("--tenant", TENANT), "--project is missing"),
            ((), "--tenant is missing"),
            (("--stack", "dev"), "--tenant is missing"),
            (("--stack", "nb", "--name", "No_Name"), "--name"),
            (("--stack", "nb", "--expires", "1w"), "1h to 365d"),
            (("--stack", "nb", "--expires", "0h"), "1h to 365d"),
            (("--stack", "nb", "--expires", "9999999d"), "1h to 365d"),
        ],
    )
    def test_bad_arguments_cost_no_call(
        self, hpc: Hpc, nebius: NebiusServer, given: tuple[str, ...], said: str
    ) -> None:
        ended = hpc("backend", "init", "nebius", *given)
        assert ended.code == 1
        assert said in ended.err
        assert not nebius.calls


def test_an_attempt_that_fails_prints_no_traceback(nebius: NebiusServer, root: Path) -> None:
    """In a process of its own: here pytest takes the SDK's log."""
    script = "from components.nebius.state import StateBucket; import sys; StateBucket('project-e00def', sys.argv[1])"
    nebius.faults.append(Fault(what="unavailable", count=None))
    ended = subprocess.run(
        [sys.executable, "-c", script, nebius.endpoint],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "The SDK" not in ended.stderr
    assert ended.stderr.rstrip().splitlines()[-1].strip().startswith("to do:")
