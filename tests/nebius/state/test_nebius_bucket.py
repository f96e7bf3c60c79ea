"""`./hpc backend init nebius`: what it creates and finds over gRPC, what it refuses, and what Nebius refuses."""

import json
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.commands import backend
from components.nebius.api import client
from tests import programs
from tests.cli.conftest import Hpc
from tests.lab.nebius_api.faults import Fault
from tests.lab.nebius_api.server import Call, NebiusServer
from tests.nebius.state.conftest import ACCOUNT, BUCKET, INIT, PROJECT, TENANT, key, record, rows, world


def expire(kept: Path, api: NebiusServer) -> str:
    """Let a day pass for the key; its id."""
    day = timedelta(days=1)
    old = replace(key(), created=key().created - day, expires=key().expires - day)
    backend.save_record(record().with_key(old))
    with api.lock:
        api.store.objects[old.id]["state"] = "EXPIRED"
    return old.id


class TestFromNothing:
    def test_bucket_account_membership_and_key(self, hpc: Hpc, nebius: NebiusServer, kept: Path) -> None:
        ended = hpc(*INIT)
        assert ended.code == 0, ended.err
        (bucket,) = rows(nebius, "Bucket")
        assert bucket["metadata"]["name"] == BUCKET
        assert bucket["metadata"]["parent_id"] == PROJECT
        assert bucket["spec"]["versioning_policy"] == "ENABLED"
        (account,) = rows(nebius, "ServiceAccount")
        assert (account["metadata"]["name"], account["metadata"]["parent_id"]) == (ACCOUNT, PROJECT)
        (member,) = rows(nebius, "GroupMembership")
        assert member["spec"]["member_id"] == account["metadata"]["id"]
        group = nebius.store.objects[member["metadata"]["parent_id"]]
        assert (group["metadata"]["name"], group["metadata"]["parent_id"]) == ("editors", TENANT)
        (row,) = rows(nebius, "AccessKey")
        assert row["spec"]["account"] == {"service_account": {"id": account["metadata"]["id"]}}
        assert [line.split()[0] for line in ended.out.splitlines()[:4]] == ["created"] * 4
        assert f"backend URL: s3://{BUCKET}?region=eu-north1&endpoint=https%3A%2F%2Fstorage.eu-north1" in ended.out

    def test_the_key_expires_after_a_day_and_is_kept_privately(
        self, hpc: Hpc, nebius: NebiusServer, kept: Path
    ) -> None:
        ended = hpc(*INIT)
        assert key().expires - key().created == timedelta(days=1)
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
        assert key().secret
        assert key().secret not in ended.out + ended.err
        assert key().secret not in repr(record())

    def test_names_and_times_can_be_chosen(self, hpc: Hpc, nebius: NebiusServer) -> None:
        name = "tfstate-slurm-k8s-0123"
        assert hpc(*INIT, "--name", name, "--service-account", "slurm-terraform-sa", "--expires", "30d").code == 0
        assert [row["metadata"]["name"] for row in rows(nebius, "Bucket")] == [name]
        assert [row["metadata"]["name"] for row in rows(nebius, "ServiceAccount")] == ["slurm-terraform-sa"]
        made = backend.load_record(name)
        assert made is not None
        assert made.key is not None
        assert made.key.expires - made.key.created == timedelta(days=30)

    def test_the_url_has_the_region_that_the_bucket_is_in(self, hpc: Hpc, nebius: NebiusServer) -> None:
        ended = hpc(*INIT, "--region", "eu-west1")
        assert "with versioning, in eu-north1" in ended.out
        assert "region=eu-north1&endpoint=https%3A%2F%2Fstorage.eu-north1" in ended.out
        assert record().settings["region"] == "eu-north1"

    def test_a_dry_run_writes_nothing_anywhere(self, hpc: Hpc, nebius: NebiusServer, kept: Path) -> None:
        ended = hpc(*INIT, "--dry-run")
        assert ended.code == 0, ended.err
        assert [line[:9] for line in ended.out.splitlines()[:4]] == ["to create"] * 4
        assert {call.method.rpartition("/")[2] for call in nebius.calls} <= {"Get", "List", "ListMembers"}
        assert not kept.parent.exists()

    def test_secrets_are_printed_on_request(self, hpc: Hpc, nebius: NebiusServer, tmp_path: Path) -> None:
        document = json.loads(hpc(*INIT, "--json").out)
        assert document["environment"]["AWS_SECRET_ACCESS_KEY"] == "[secret]"
        assert document["bucket"] == BUCKET
        shown = json.loads(hpc(*INIT, "--json", "--show-secrets").out)
        assert shown["environment"]["AWS_SECRET_ACCESS_KEY"] == key().secret
        assert f"export AWS_SECRET_ACCESS_KEY={key().secret}" in hpc(*INIT, "--show-secrets").out
        file = tmp_path / "exports"
        file.write_text("")
        file.chmod(0o644)
        assert hpc(*INIT, "--write", str(file)).code == 0
        assert f"export AWS_SECRET_ACCESS_KEY={key().secret}" in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def test_no_secret_is_written_into_the_project(self, hpc: Hpc, nebius: NebiusServer) -> None:
        ended = hpc(*INIT, "--write", str(Path(__file__).parents[3] / "exports"))
        assert ended.code == 1
        assert "outside the project" in ended.err
        assert rows(nebius, "AccessKey") == []


class TestAgain:
    def test_a_second_run_changes_nothing(self, hpc: Hpc, nebius: NebiusServer, kept: Path) -> None:
        hpc(*INIT)
        before, file = world(nebius), kept.read_bytes()
        nebius.calls.clear()
        ended = hpc(*INIT)
        assert ended.code == 0
        assert [line.split()[0] for line in ended.out.splitlines()[:4]] == ["found"] * 4
        assert world(nebius) == before
        assert kept.read_bytes() == file
        assert not [call for call in nebius.calls if call.method.endswith(("/Create", "/Delete", "/Update"))]

    def test_membership_and_account_of_another_run_are_taken(self, hpc: Hpc, nebius: NebiusServer, kept: Path) -> None:
        hpc(*INIT)
        kept.unlink()  # another machine, which has no key
        ended = hpc(*INIT)
        assert ended.code == 0
        assert [line.split()[0] for line in ended.out.splitlines()[:4]] == ["found", "found", "found", "created"]
        # The secret of the first key can't be read any more; that key may be in use, and expires by itself.
        assert len(rows(nebius, "AccessKey")) == 2

    def test_an_expired_key_is_renewed_and_deleted(self, hpc: Hpc, nebius: NebiusServer, kept: Path) -> None:
        hpc(*INIT)
        old = expire(kept, nebius)
        ended = hpc(*INIT)
        assert ended.code == 0
        assert "deleted    access key" in ended.out
        assert "it had expired" in ended.out
        (row,) = rows(nebius, "AccessKey")
        assert row["metadata"]["id"] != old
        assert key().id == row["metadata"]["id"]

    def test_keys_of_others_stay_also_when_they_have_expired(self, hpc: Hpc, nebius: NebiusServer) -> None:
        hpc(*INIT)
        other = {"account": {"service_account": {"id": "serviceaccount-e00other"}}}
        with nebius.lock:
            id_ = nebius.methods.seed("AccessKey", PROJECT, "theirs", other)
            nebius.store.objects[id_]["state"] = "EXPIRED"
        hpc(*INIT)
        assert id_ in nebius.store.objects

    def test_a_key_that_was_deleted_or_deactivated_is_replaced(self, hpc: Hpc, nebius: NebiusServer) -> None:
        hpc(*INIT)
        (row,) = rows(nebius, "AccessKey")
        with nebius.lock:
            row["state"] = "INACTIVE"
        assert "created    access key" in hpc(*INIT).out
        with nebius.lock:
            for row in rows(nebius, "AccessKey"):
                del nebius.store.objects[row["metadata"]["id"]]
        assert "created    access key" in hpc(*INIT).out

    def test_a_key_is_renewed_before_it_expires_during_a_run(self, hpc: Hpc, nebius: NebiusServer) -> None:
        hpc(*INIT)
        kept, day = key(), timedelta(days=1)
        assert kept.usable(kept.expires - 0.11 * day)
        assert not kept.usable(kept.expires - 0.09 * day)


class Killed(BaseException):
    """In place of SIGKILL: nothing of the program runs after it."""


class TestKilled:
    CALLS = 40

    @pytest.fixture
    def killing(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
        """Ends the program after the call of that number, counted from now."""
        real, left = client.call, [0]

        def call(*args: Any, **options: Any) -> Any:
            answer = real(*args, **options)
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return answer

        monkeypatch.setattr(client, "call", call)

        def at(number: int) -> None:
            left[0] = number

        return at

    def test_after_any_call_the_next_run_completes_it(
        self, hpc: Hpc, nebius: NebiusServer, killing: Callable[[int], None], kept: Path
    ) -> None:
        """Nothing is there twice, no key is lost, whatever the call."""
        for number in range(1, self.CALLS):
            with nebius.lock:
                nebius.store.objects.clear()
                nebius.store.keys.clear()
                nebius.store.seeded.clear()
            kept.unlink(missing_ok=True)
            killing(number)
            try:
                hpc(*INIT)
            except Killed:
                killing(0)
            else:
                break
            assert hpc(*INIT).code == 0
            kinds = ("Bucket", "ServiceAccount", "GroupMembership", "AccessKey")
            assert {kind: len(rows(nebius, kind)) for kind in kinds} == dict.fromkeys(kinds, 1), number
            (row,) = rows(nebius, "AccessKey")
            assert key().id == row["metadata"]["id"]
            assert key().complete
        else:
            raise AssertionError("the program makes more calls than the test expects")
        assert number > 8


class TestOthers:
    @pytest.mark.parametrize("kind", ["Bucket", "ServiceAccount", "GroupMembership", "AccessKey"])
    def test_an_answer_that_was_lost_creates_nothing_twice(self, hpc: Hpc, nebius: NebiusServer, kind: str) -> None:
        nebius.faults.append(Fault(kind=kind, verb="create", mode="lose"))
        hpc(*INIT)
        assert hpc(*INIT).code == 0
        assert len(rows(nebius, kind)) == 1

    @pytest.mark.parametrize(("kind", "name"), [("ServiceAccount", ACCOUNT), ("Bucket", BUCKET)])
    def test_objects_that_another_run_creates_at_the_same_time_are_used(
        self, hpc: Hpc, nebius: NebiusServer, kind: str, name: str
    ) -> None:
        def create(_number: int, call: Call) -> None:
            if call.method.endswith(f"{kind}Service/List") and not rows(nebius, kind):
                nebius.methods.seed(kind, PROJECT, name, {"versioning_policy": "ENABLED"} if kind == "Bucket" else {})

                if kind == "ServiceAccount":  # which IAM does not know everywhere yet
                    nebius.faults.append(Fault(kind="GroupMembership", verb="create", what="resource_not_found"))

        nebius.after = create
        ended = hpc(*INIT)
        assert ended.code == 0, ended.err
        assert len(rows(nebius, kind)) == 1
        assert [fault.count for fault in nebius.faults] == [0] * (kind == "ServiceAccount")


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
    script = "from components.nebius.api import client; client.sdk()"
    nebius.faults.append(Fault(what="unavailable", count=None))
    ended = programs.run([sys.executable, "-c", script], cwd=Path(__file__).parents[3])
    assert "The SDK" not in ended.stderr
    assert ended.stderr.rstrip().splitlines()[-1].strip().startswith("to do:")
