"""`./hpc check cloud` of a stack on Nebius: rows as text and as JSON, exit codes, the report for others, and `up`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.operation.cloud_check import last
from components.nebius.api import client
from tests.cli import conftest
from tests.cli.conftest import Hpc, Tool
from tests.cluster import stacks
from tests.lab.nebius_api.faults import Fault
from tests.lab.nebius_api.server import NebiusServer
from tests.nebius.deploy import test_cloud_checks

hpc, root, tool = conftest.hpc, conftest.root, conftest.tool
_elsewhere = test_cloud_checks._elsewhere  # registries with everything, and all programs
FULL = "quota compute.gpucluster.count of tenant-e00abc in eu-north1: 1 more needed, 0 free of 4"
ACTION = "to do: ask for more at https://console.nebius.com (Administration, Limits)"


@pytest.fixture
def api(root: Path) -> Iterator[NebiusServer]:
    """The stack `nebius`, in a tenant in which everything can be created."""
    (root / "Pulumi.nebius.yaml").write_text(stacks.EVERY["nebius"].read_text())
    with NebiusServer(place=test_cloud_checks.ample()) as served:
        yield served
        client.close()
    assert {call.method.rpartition("/")[2] for call in served.calls} <= test_cloud_checks.READS


def fill(api: NebiusServer) -> None:
    """Leave nothing of the quota of GPU clusters."""
    api.place.quotas = {**api.place.quotas, "compute.gpucluster.count": (4, 4)}


def refuse(api: NebiusServer) -> None:
    """Refuse the list of platforms."""
    api.faults.append(Fault(kind="PlatformService", what="permission_denied", count=None))


def test_a_tenant_in_which_all_is_well(hpc: Hpc, api: NebiusServer) -> None:
    ended = hpc("check", "cloud", "nebius")
    assert (ended.code, ended.err) == (0, "")
    assert "ok             project project-e00abc in eu-north1: in eu-north1\n" in ended.out
    assert ended.out.splitlines()[-1].endswith(" ok, 0 wrong, 0 could not ask")


def test_a_red_row_has_its_action_and_an_exit_code(hpc: Hpc, api: NebiusServer) -> None:
    fill(api)
    ended = hpc("check", "cloud", "nebius")
    lines = ended.out.splitlines()
    at = lines.index(f"wrong          {FULL}")
    assert (ended.code, lines[at + 1].strip()) == (1, ACTION)


def test_an_unanswered_question_is_no_failure(hpc: Hpc, api: NebiusServer) -> None:
    refuse(api)
    ended = hpc("check", "cloud", "nebius", "--json")
    document = json.loads(ended.out)
    assert (ended.code, document["ok"], document["stack"]) == (0, True, "nebius")
    rows = [row for row in document["checks"] if row["outcome"] == "could not ask"]
    assert {row["id"] for row in rows} == {"machine-type"}
    assert rows[0]["seen"].startswith("permission denied")
    kept = last("nebius")
    assert kept is not None
    assert json.loads(json.dumps({"stack": "nebius", **kept.document()})) == document


def test_an_expired_credential_is_an_error_in_words(hpc: Hpc, api: NebiusServer) -> None:
    api.faults.append(Fault(kind="ProfileService", what="unauthenticated", count=None))
    ended = hpc("check", "cloud", "nebius", "--json")
    error = json.loads(ended.out)["error"]
    assert ended.code == 1
    assert "could not log in to Nebius" in error
    assert "to do: the credential was not accepted or has expired" in error


def test_the_report_for_others_has_no_names(hpc: Hpc, api: NebiusServer, tmp_path: Path) -> None:
    fill(api)
    refuse(api)
    file = tmp_path / "seen.json"
    ended = hpc("check", "cloud", "nebius", "--send", str(file))
    assert ended.code == 1
    assert f"Wrote what was seen, without your names: {file}." in ended.err
    document = json.loads(file.read_text())
    assert document["platform"] == "nebius"
    (wrong,) = [row for row in document["checks"] if row["outcome"] == "wrong"]
    assert wrong == {
        "id": "quota", "outcome": "wrong", "report": False, "seen": FULL.rpartition(": ")[2], "assumptions": [],
    }  # fmt: skip
    assert [name for name in ("tenant-e00abc", "project-e00abc") if name in file.read_text()] == []


class TestUp:
    """`up` asks before its first step."""

    @pytest.fixture
    def steps(self, api: NebiusServer, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A login, and a Pulumi CLI that records each `up` in this file and creates nothing."""
        monkeypatch.setenv("NEBIUS_IAM_TOKEN", "token")
        monkeypatch.setenv("LOG", str(tmp_path / "steps"))
        tool("pulumi", 'case "$*" in *version*) echo v3.272.0 ;; up*) echo "$*" >>"$LOG" ;; esac\n')
        return tmp_path / "steps"

    def test_a_red_row_stops_it(self, hpc: Hpc, api: NebiusServer, steps: Path) -> None:
        fill(api)
        ended = hpc("up", "nebius", "--yes")
        assert f"{FULL}\n    {ACTION}\n" in ended.error
        document = json.loads(hpc("up", "nebius", "--yes", "--json").out)
        assert (document["kind"], document["ok"]) == ("up", False)
        assert [row["id"] for row in document["checks"] if row["outcome"] == "wrong"] == ["quota"]
        assert not steps.exists()

    def test_a_question_without_an_answer_does_not(self, hpc: Hpc, api: NebiusServer, steps: Path) -> None:
        refuse(api)
        assert "The cloud was asked before the first step: " in hpc("up", "nebius", "--yes").err
        assert steps.exists()

    def test_no_check_leaves_it_out(self, hpc: Hpc, api: NebiusServer, steps: Path) -> None:
        fill(api)
        hpc("up", "nebius", "--yes", "--no-check")
        assert (list(api.calls), last("nebius")) == ([], None)
        assert steps.exists()
