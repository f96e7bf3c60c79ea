"""What is on this host of a stack whose state is lost is named by `destroy`, and removed where that is asked for."""

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.operation import drain_recovery
from components.local.host import network
from tests.cli.conftest import OUTPUTS, Hpc

RECORD = {"owner": "hpc/dev", "states": ["abc"], "home": "file:///elsewhere", "since": "2026-01-01"}


@pytest.fixture
def here(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster of stack dev on this host, made with a state that is elsewhere; another stack's beside it."""
    (root / "Pulumi.yaml").write_text("name: hpc\nruntime: python\n")
    place = tmp_path / "stacks-root"
    monkeypatch.setenv("HPC_LOCAL_ROOT", str(place))
    monkeypatch.setattr("cli.operation.localhost.prepare", lambda: None)
    monkeypatch.setattr(network.bridge, "remove", lambda *_: None)
    for name, record in (("dev", RECORD), ("mine", {**RECORD, "owner": "hpc/mine"})):
        (place / "stacks" / name).mkdir(parents=True)
        (place / "stacks" / name / "network.json").write_text(json.dumps(record))
    return place / "stacks"


@pytest.mark.usefixtures("here")
class TestWithoutItsState:
    def test_destroy_names_the_cluster_without_state(self, hpc: Hpc):
        ended = hpc("destroy", "dev")
        assert ended.code == 0
        assert "But cluster dev of it is on this host" in ended.err
        assert "./hpc destroy dev --leftovers" in ended.err

    def test_up_is_refused_before_the_first_step(self, hpc: Hpc):
        ended = hpc("up", "dev")
        assert ended.code == 1
        assert "'dev' is up on this host, made by hpc/dev with the state in file:///elsewhere" in ended.err

    def test_leftovers_are_removed_only_with_yes(self, hpc: Hpc, here: Path):
        refused = hpc("destroy", "dev", "--leftovers")
        assert (refused.code, (here / "dev").exists()) == (1, True)
        assert "without a terminal needs --yes" in refused.err
        document = json.loads(hpc("destroy", "dev", "--leftovers", "--yes", "--json").out)
        assert document == {"stack": "dev", "kind": "destroy", "ok": True, "leftovers": ["dev"]}
        assert [path.name for path in here.iterdir()] == ["mine"]
        assert "Nothing of it is on this host" in hpc("destroy", "dev", "--leftovers", "--yes").err


@pytest.mark.parametrize(
    ("command", "code"),
    [("destroy dev", 0), ("destroy dev --leftovers --yes", 1), ("up dev --yes", 1)],
)
def test_a_user_who_cannot_read_the_records_is_told_to_be_root(
    hpc: Hpc, here: Path, monkeypatch: pytest.MonkeyPatch, command: str, code: int
):
    """The folder of a cluster is root's alone (network.PRIVATE): what read(2) says to others, EACCES."""
    read = Path.read_text

    def refused(path: Path, *args: str, **options: str) -> str:
        if path.name == "network.json":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", refused)
    ended = hpc(*command.split())
    assert (ended.code, (here / "dev").exists()) == (code, True)
    assert "only root can read what cluster dev on this host is; run again as root (sudo)" in ended.err


def test_leftovers_of_a_stack_with_state_are_refused(hpc: Hpc, here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cli.operation.localhost._has_state", lambda _: True)
    ended = hpc("destroy", "dev", "--leftovers", "--yes")
    assert (ended.code, (here / "dev").exists()) == (1, True)
    assert "--leftovers is for a state that is lost" in ended.err


def test_drain_recovery_runs_once_on_a_machine_of_two_roles(
    tool: Callable[[str, str], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    tool("ssh", f"cat >/dev/null; echo asked >>{log}; echo resumed dev-cpu-0")
    assert not drain_recovery.begin("dev")
    assert drain_recovery.begin("dev"), "the one before has not ended"
    controller = {**OUTPUTS["targets"]["dev-controller"], "roles": ["controller", "login"]}
    outputs = {**OUTPUTS, "targets": {"dev-controller": controller}, "login": "dev-controller"}
    drain_recovery.recover("dev", outputs, quiet=False)
    assert log.read_text() == "asked\n"
    assert capfd.readouterr().out == "  dev-controller: resumed dev-cpu-0\n"
    assert not drain_recovery.begin("dev")
