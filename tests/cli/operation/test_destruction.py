"""What is protected is destroyed by whoever types the cluster's name, and by nobody else, on both engines."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli import console
from cli.stack import project
from tests.cli.conftest import STACK, Hpc

Tool = Callable[[str, str], Path]
PET = "random:index/randomPet:RandomPet"
PREFIX = "urn:pulumi:dev::hpc::"
DATA = f"{PREFIX}{PET}::home"


@pytest.fixture
def made(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stack dev holds data that is protected, and something that is not; the state's file."""
    monkeypatch.setattr("cli.operation.localhost.prepare", lambda: None)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
    (root / "Pulumi.dev.yaml").write_text(f"{STACK}    deletion_protection: true\n")
    root_urn = f"{PREFIX}pulumi:pulumi:Stack::hpc-dev"
    rows: list[dict[str, Any]] = [
        {"urn": root_urn, "type": "pulumi:pulumi:Stack", "outputs": {"cluster": "mine"}},
        {"urn": DATA, "type": PET, "custom": True, "id": "a", "protect": True, "parent": root_urn},
        {"urn": f"{PREFIX}{PET}::other", "type": PET, "custom": True, "id": "b", "parent": root_urn},
    ]
    file = root.parent / "state.json"
    file.write_text(json.dumps({"version": 3, "deployment": {"manifest": {}, "resources": rows}}))
    stack = project.workspace().stack("dev")
    stack.import_state(json.loads(file.read_text()))
    return stack.file


def left(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text())["checkpoint"]["latest"].get("resources") or []


@pytest.fixture(params=["embedded", "pulumi"])
def engine(request: pytest.FixtureRequest, tool: Tool) -> str:
    if request.param == "pulumi":
        tool("pulumi", 'echo "$*" >"$HPC_HOME/told"')
    return request.param


def test_protected_resources_are_refused_before_the_first_step(made: Path, hpc: Hpc, engine: str) -> None:
    before = made.read_text()
    ended = hpc("destroy", "dev", "--yes", "--engine", engine)
    assert ended.code == 1
    assert ended.err.splitlines() == [
        "error: stack dev holds data that is protected, and nothing was destroyed:",
        f"  home  {PET}",
        "To destroy it with its data: ./hpc destroy dev --unprotect",
    ]
    assert made.read_text() == before


def test_a_protected_stack_is_destroyed_after_the_clusters_name_is_confirmed(made: Path, hpc: Hpc, engine: str) -> None:
    ended = hpc("destroy", "dev", "--unprotect", "--confirm", "mine", "--engine", engine)
    assert ended.code == 0
    assert ended.out.splitlines()[:3] == [
        "This destroys cluster mine (stack dev). Lost for good, with all data in it:",
        f"  home  {PET}",
        "  and 1 other resources: machines, networks, keys",
    ]
    if engine == "embedded":
        assert left(made) == []
    else:
        assert not any(row.get("protect") for row in left(made))
        told = (made.parents[3] / "told").read_text()
        assert told == "destroy --stack dev --yes --skip-preview\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--unprotect"], "destroying what is protected without a terminal needs --confirm NAME"),
        (["--unprotect", "--yes"], "destroying what is protected without a terminal needs --confirm NAME"),
        (["--unprotect", "--confirm", "dev"], "'dev' is not the cluster's name, which is mine: nothing was destroyed."),
        (["--confirm", "mine"], "--confirm NAME goes with --unprotect"),
        (["--unprotect", "--confirm", "mine", "--target", DATA], "leave out --target and --exclude"),
    ],
)
def test_a_wrong_or_missing_name_destroys_nothing(
    made: Path, hpc: Hpc, engine: str, given: list[str], said: str
) -> None:
    before = made.read_text()
    ended = hpc("destroy", "dev", *given, "--engine", engine)
    assert (ended.code, said in ended.err) == (1, True), ended.err
    assert made.read_text() == before


def test_nothing_is_unprotected_if_the_engine_can_not_destroy_the_stack(made: Path, root: Path, hpc: Hpc) -> None:
    (root / "Pulumi.dev.yaml").write_text(STACK.replace("local", "gcp"))
    before = made.read_text()
    ended = hpc("destroy", "dev", "--unprotect", "--confirm", "mine", "--engine", "embedded")
    assert "leave out --engine embedded" in ended.err
    assert made.read_text() == before


def test_on_a_terminal_the_user_types_the_name(made: Path, hpc: Hpc, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(console, "interactive", lambda: True)
    monkeypatch.setattr(console, "answer", lambda question: asked.append(question) or "mine")
    assert hpc("destroy", "dev", "--unprotect").code == 0
    assert asked == ["Type the cluster's name (mine) to destroy it: "]
    assert left(made) == []


def test_state_outside_of_files_is_unprotected_with_the_cli(
    made: Path, hpc: Hpc, tool: Tool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = json.dumps({"deployment": {"resources": left(made)}})
    tool(
        "pulumi",
        f"""echo "$*" >>{tmp_path}/told
case "$1 $2" in 'stack ls') echo '[{{"name": "o/hpc/dev"}}]' ;; 'stack export') echo '{rows}' ;; esac""",
    )
    monkeypatch.setenv("PULUMI_BACKEND_URL", "gs://bucket")
    assert hpc("destroy", "dev", "--unprotect", "--confirm", "mine").code == 0
    assert (tmp_path / "told").read_text().splitlines()[-2:] == [
        "state unprotect --yes --all --stack dev --non-interactive",
        "destroy --stack dev --yes --skip-preview",
    ]


def test_single_resources_of_a_state_are_edited(made: Path, hpc: Hpc) -> None:
    assert "name the resources by their URN" in hpc("state", "unprotect", "dev").err
    assert hpc("state", "unprotect", "dev", DATA).code == 0
    assert not any(row.get("protect") for row in left(made))
    assert hpc("state", "rename", "dev", DATA, "house").code == 0
    assert hpc("state", "delete", "dev", f"{PREFIX}{PET}::other").code == 0
    assert [row["urn"].rpartition("::")[2] for row in left(made)] == ["hpc-dev", "house"]
    ended = hpc("state", "delete", "dev", DATA)
    assert (ended.code, "there is no resource" in ended.err) == (1, True)
