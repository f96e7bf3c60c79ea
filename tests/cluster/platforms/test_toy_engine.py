"""Every command works on a platform of three resources and a driver of its own; what it can't do is refused."""

import json
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import yaml

from cli.access import remote
from cli.access.target import Argv, Driver, Target
from cluster import platform_interface
from components.platforms import DEPLOYERS, Deployer
from tests.cli.conftest import Hpc, hpc, root
from tests.cluster.platforms import toy, toy_deploy
from tests.cluster.stacks import local

__all__ = ["hpc", "root"]  # fixtures
PROGRAM = Path(__file__).parents[3] / "__main__.py"
TYPES = ["command:local:Command", "command:local:Command", "random:index/randomPassword:RandomPassword"]


class ToyDriver(Driver):
    """Runs commands in a pod: in its directory, its programs before this host's."""

    @contextmanager
    def connect(self, targets: Sequence[Target], admin_key: str, *, seconds: float) -> Generator[Argv]:
        yield self._argv

    def _argv(self, target: Target, user: str, command: Sequence[str], *, terminal: bool = False) -> list[str]:
        pod = target.row["pod"]
        words = ["sh", "-c", *command] if len(command) == 1 else [*command]
        return ["env", f"--chdir={pod}", f"PATH={pod}/bin:{os.environ['PATH']}", f"POD_USER={user}", *words]

    @staticmethod
    def explain(target: Target, stderr: str) -> str:  # noqa: ARG004
        return stderr


@pytest.fixture(autouse=True)
def stack(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project with the stack `toy`, whose platform, deployer and driver are one row each."""
    shutil.copy(PROGRAM, root)
    write(root, {"project": "mine"})
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(remote, "DRIVERS", {**remote.DRIVERS, "toy": cache(ToyDriver)})
    monkeypatch.setitem(platform_interface._REGISTERED, "toy", toy.ToyPlatform())
    monkeypatch.setitem(DEPLOYERS, "toy", lambda: Deployer(deploy=toy_deploy.deploy))


def write(root: Path, pods: dict[str, object]) -> None:
    cluster = local(platform="toy", name="toy", toy=pods, users=[{"name": "alice", "uid": 2001}])
    (root / "Pulumi.toy.yaml").write_text(yaml.safe_dump({"config": {"hpc:cluster": cluster}}))


def folders(tmp_path: Path) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in tmp_path.glob("*-??????"))


def test_a_preview_ends_with_the_platforms_summary(hpc: Hpc, tmp_path: Path) -> None:
    ended = hpc("preview", "toy")
    assert ended.code == 0, ended.err
    assert ended.out.endswith("What the stack asks Toy for, whole\n  pods of mine\n")
    planned = json.loads(hpc("preview", "toy", "--json").out)
    assert planned["asks"] == ["pods of mine"]
    created = sorted(row["type"] for row in planned["steps"] if row["op"] == "create")
    assert created == [*TYPES[:2], "pulumi:pulumi:Stack", TYPES[2]]
    assert folders(tmp_path) == []


def test_a_stack_is_brought_up_used_and_destroyed(hpc: Hpc, root: Path, tmp_path: Path) -> None:
    ended = hpc("up", "toy")
    assert ended.code == 0, ended.out + ended.err
    assert folders(tmp_path) == ["mine"]
    assert json.loads(hpc("preview", "toy", "--json", "--expect-no-changes").out)["ok"]

    there = json.loads(hpc("outputs", "toy", "--json").out)
    assert (there["login"], there["password"]) == ("toy-login", "[secret]")
    assert there["platform"] == {"name": "toy", "title": "Toy", "capabilities": sorted(toy.ToyPlatform.capabilities)}
    pod = there["targets"]["toy-login"]["pod"]
    assert hpc("outputs", "toy", "login").out == "toy-login\n"

    ended = hpc("run", "toy", "--", "sh", "-c", 'echo "$POD_USER"; pwd; exit 7')
    assert (ended.code, ended.out) == (7, f"alice\n{pod}\n"), ended.err
    assert hpc("run", "toy", "--as", "root", "--", "echo $POD_USER | tr a-z A-Z").out == "ROOT\n"

    ended = hpc("status", "toy", "--json")
    seen = json.loads(ended.out)
    assert (ended.code, seen["findings"]) == (0, []), ended.err
    assert seen["machines"]["toy-login"]["reached"]

    write(root, {"project": "other"})
    effects = json.loads(hpc("preview", "toy", "--json").out)["effects"]
    assert [(field["path"], field["effect"]) for field in effects["fields"]] == [("toy.project", "replace")]
    ended = hpc("up", "toy")
    assert ended.code == 0, ended.out + ended.err
    assert folders(tmp_path) == ["other"]

    ended = hpc("destroy", "toy", "--yes")
    assert ended.code == 0, ended.out + ended.err
    assert folders(tmp_path) == []


@pytest.mark.parametrize(("words", "missing"), [(["drift", "toy"], "drift"), (["ssh", "toy"], "ssh")])
def test_what_the_platform_can_not_do_is_refused_by_name(hpc: Hpc, words: list[str], missing: str) -> None:
    assert hpc("up", "toy").code == 0
    ended = hpc(*words)
    assert (ended.code, ended.out) == (1, "")
    there = ", ".join(sorted(toy.ToyPlatform.capabilities))
    assert ended.err == (f"error: stack toy is on Toy, a platform without the capability {missing}. It has: {there}.\n")
