"""`./hpc env` of a stack on Nebius: its API over gRPC, a stand-in for Nebius's CLI, and a real bash."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cli.commands import backend
from tests.cli.conftest import Hpc
from tests.lab.nebius_api.faults import Fault
from tests.lab.nebius_api.server import NebiusServer
from tests.nebius.state.conftest import BUCKET, INIT, key, record
from tests.nebius.state.test_env import evaluated

Tool = Callable[[str, str], Path]


class TestAShell:
    def test_has_what_the_recipes_environment_file_sets(
        self, hpc: Hpc, nebius: NebiusServer, tool: Tool, tmp_path: Path
    ) -> None:
        tool("nebius", '[ "$*" = "iam get-access-token" ] && [ -z "$NEBIUS_IAM_TOKEN" ] && echo fresh-token')
        hpc(*INIT)
        ended = hpc("env", "nb")
        assert ended.code == 0, ended.err
        found = evaluated(ended.out)
        subnets = [row["metadata"]["id"] for row in nebius.store.of("Subnet", "project-e00def")]
        assert found == {
            b"NEBIUS_IAM_TOKEN": b"fresh-token",
            b"NEBIUS_TENANT_ID": b"tenant-e00abc",
            b"NEBIUS_PROJECT_ID": b"project-e00def",
            b"NEBIUS_REGION": b"eu-north1",
            b"NEBIUS_VPC_SUBNET_ID": subnets[0].encode(),
            b"PULUMI_BACKEND_URL": (
                f"s3://{BUCKET}?region=eu-north1&endpoint=https%3A%2F%2Fstorage.eu-north1.nebius.cloud%3A443"
                "&s3ForcePathStyle=true"
                "&request_checksum_calculation=when_required&response_checksum_validation=when_required"
            ).encode(),
            b"AWS_REQUEST_CHECKSUM_CALCULATION": b"when_required",
            b"AWS_RESPONSE_CHECKSUM_VALIDATION": b"when_required",
            b"AWS_ACCESS_KEY_ID": key().access_key_id.encode(),
            b"AWS_SECRET_ACCESS_KEY": key().secret.encode(),
            b"PULUMI_CONFIG_PASSPHRASE_FILE": os.fsencode(tmp_path / "home/passphrase"),
        }
        assert "from `nebius iam get-access-token`" in ended.err
        assert f"State: bucket {BUCKET} (Nebius Object Storage)" in ended.err
        unset = hpc("env", "nb", "--unset").out
        assert evaluated(ended.out + unset) == {}

    def test_gets_what_the_installed_cli_needs(self, hpc: Hpc, nebius: NebiusServer, tool: Tool) -> None:
        tool("pulumi", "echo v3.200.0")
        hpc(*INIT)
        found = evaluated(hpc("env", "nb").out)
        assert b"AWS_REQUEST_CHECKSUM_CALCULATION" not in found
        assert b"checksum" not in found[b"PULUMI_BACKEND_URL"]
        tool("pulumi", "echo v3.257.0")
        assert "InvalidDigest" in hpc("env", "nb").err

    def test_a_second_time_changes_nothing(
        self, hpc: Hpc, nebius: NebiusServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hpc(*INIT)
        first = hpc("env", "nb").out
        for name, value in evaluated(first).items():
            monkeypatch.setenv(os.fsdecode(name), os.fsdecode(value))
        nebius.calls.clear()
        assert hpc("env", "nb").out == first
        assert {call.method.rpartition("/")[2] for call in nebius.calls} <= {"Get", "List"}

    def test_a_session_token_of_amazons_is_in_the_way(
        self, hpc: Hpc, nebius: NebiusServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hpc(*INIT)
        assert "AWS_SESSION_TOKEN" not in hpc("env", "nb").err
        monkeypatch.setenv("AWS_SESSION_TOKEN", "theirs")
        assert "unset AWS_SESSION_TOKEN" in hpc("env", "nb").err

    def test_an_expired_key_is_renewed(self, hpc: Hpc, nebius: NebiusServer) -> None:
        hpc(*INIT)
        old, day = key(), timedelta(days=1)
        backend.save_record(record().with_key(replace(old, created=old.created - day, expires=old.expires - day)))
        with nebius.lock:
            nebius.store.objects[old.id]["state"] = "EXPIRED"
        ended = hpc("env", "nb")
        assert ended.code == 0
        assert "created access key" in ended.err
        assert key().id != old.id
        assert evaluated(ended.out)[b"AWS_ACCESS_KEY_ID"] == key().access_key_id.encode()

    def test_prints_no_secret_on_a_terminal_or_as_json(
        self, hpc: Hpc, nebius: NebiusServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hpc(*INIT)
        document = json.loads(hpc("env", "nb", "--json").out)
        assert document["AWS_SECRET_ACCESS_KEY"] == document["NEBIUS_IAM_TOKEN"] == "[secret]"
        assert json.loads(hpc("env", "nb", "--json", "--show-secrets").out)["AWS_SECRET_ACCESS_KEY"] == key().secret
        monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
        out = hpc("env", "nb").out
        assert key().secret not in out
        assert "# export AWS_SECRET_ACCESS_KEY=[secret]" in out


class TestTheToken:
    def test_is_the_one_that_is_set_where_the_cli_is_missing(self, hpc: Hpc, nebius: NebiusServer) -> None:
        ended = hpc("env", "nb")
        assert evaluated(ended.out)[b"NEBIUS_IAM_TOKEN"] == b"token-of-the-tests"
        assert "the one that is set, which may expire (there is no `nebius` on PATH)" in ended.err

    @pytest.mark.parametrize("body", ["exit 3", "echo", "echo 'two words'", "printf 'a\\033[31m'", "kill -9 $$"])
    def test_is_never_what_a_broken_cli_prints(self, hpc: Hpc, nebius: NebiusServer, tool: Tool, body: str) -> None:
        tool("nebius", body)
        ended = hpc("env", "nb")
        assert evaluated(ended.out)[b"NEBIUS_IAM_TOKEN"] == b"token-of-the-tests"
        assert "`nebius iam get-access-token` failed" in ended.err

    def test_that_is_hostile_stays_one_value(self, hpc: Hpc, nebius: NebiusServer, tool: Tool, tmp_path: Path) -> None:
        tool("nebius", f"""echo "';touch\t{tmp_path}/x;'" | tr -d '\\t'""")
        assert evaluated(hpc("env", "nb").out)[b"NEBIUS_IAM_TOKEN"] == f"';touch{tmp_path}/x;'".encode()
        assert not (tmp_path / "x").exists()

    def test_is_not_needed_with_a_service_account(
        self, hpc: Hpc, nebius: NebiusServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("NEBIUS_IAM_TOKEN")
        monkeypatch.setenv("NEBIUS_CREDENTIALS_FILE", "/keys/sa.json")
        ended = hpc("env", "nb")
        assert b"NEBIUS_IAM_TOKEN" not in evaluated(ended.out)
        assert "NEBIUS_CREDENTIALS_FILE=/keys/sa.json is used" in ended.err

    def test_that_has_expired_leaves_out_what_needs_it(self, hpc: Hpc, nebius: NebiusServer) -> None:
        nebius.faults.append(Fault(what="unauthenticated", count=None))
        ended = hpc("env", "nb")
        assert ended.code == 0
        assert b"NEBIUS_VPC_SUBNET_ID" not in evaluated(ended.out)
        assert "the token has expired" in ended.err


class TestTheSubnet:
    def stack(self, root: Path, nebius: NebiusServer, subnet: str) -> None:
        file = root / "Pulumi.nb.yaml"
        file.write_text(file.read_text().replace("region: eu-north1", f"region: eu-north1, subnet: {subnet}"))

    def test_of_the_stack_file_costs_no_call(self, hpc: Hpc, nebius: NebiusServer, root: Path) -> None:
        self.stack(root, nebius, "vpcsubnet-e00mine")
        assert evaluated(hpc("env", "nb").out)[b"NEBIUS_VPC_SUBNET_ID"] == b"vpcsubnet-e00mine"
        assert not nebius.calls

    def test_that_the_stack_creates_is_not_known(self, hpc: Hpc, nebius: NebiusServer, root: Path) -> None:
        self.stack(root, nebius, "create")
        ended = hpc("env", "nb")
        assert b"NEBIUS_VPC_SUBNET_ID" not in evaluated(ended.out)
        assert "the stack creates its own subnet" in ended.err


def test_a_stack_elsewhere_can_have_its_state_there(hpc: Hpc, nebius: NebiusServer) -> None:
    hpc(*INIT)
    found = evaluated(hpc("env", "dev", "--backend", BUCKET).out)
    assert found[b"PULUMI_BACKEND_URL"].startswith(f"s3://{BUCKET}?".encode())
    assert found[b"AWS_SECRET_ACCESS_KEY"] == key().secret.encode()
    assert not [name for name in found if name.startswith(b"NEBIUS")]


def test_nothing_is_written_into_the_project(hpc: Hpc, nebius: NebiusServer, root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    hpc(*INIT)
    hpc("env", "nb")
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
