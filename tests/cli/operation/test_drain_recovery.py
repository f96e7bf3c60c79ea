"""After a failed `up`, the next one has each machine that is set up over SSH apply what holds, once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.operation import drain_recovery
from tests.cli.conftest import OUTPUTS


def test_one_machine_of_two_roles_is_asked_once(
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
