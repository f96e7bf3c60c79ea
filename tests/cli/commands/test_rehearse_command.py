"""`./hpc rehearse` at the command line: what it writes, prints and refuses. No machine is created."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.stack import rehearsals
from tests.cli.conftest import Hpc

MEGA = """\
config:
  gcp:project: my-project
  gcp:zone: us-central1-a
  hpc:cluster:
    platform: gcp
    name: a3mega
    storage: {buckets: [{name: my-datasets, mount: /gcs}]}
    nodesets:
      a3mega: {machine_type: a3-megagpu-8g, count: 9}
    partitions:
      a3mega: {nodesets: [a3mega], default: true, exclusive: true}
    users: [{name: alice, uid: 2001}]
    slurm: {rxdm: {partitions: [a3mega]}}
"""
PROGRAM = "import pulumi\npulumi.export('cluster', pulumi.Config('hpc').get_object('cluster'))\n"


@pytest.fixture(autouse=True)
def mega(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack on Google Cloud whose program only exports its configuration."""
    monkeypatch.setattr("cli.operation.localhost.prepare", lambda: None)
    monkeypatch.setattr("components.local.rehearsal.taken_by", lambda *_: None)
    monkeypatch.setenv("HPC_LOCAL_ROOT", str(root.parent / "machines"))
    (root / "__main__.py").write_text(PROGRAM)
    file = root / "Pulumi.mega.yaml"
    file.write_text(MEGA)
    return file


def stack_file(root: Path) -> Path:
    return root.parent / "home/rehearsals/Pulumi.mega-rehearsal.yaml"


def rehearsed(root: Path) -> dict[str, Any]:
    """Return the cluster in the stack file of the rehearsal."""
    return yaml.safe_load(stack_file(root).read_text())["config"]["hpc:cluster"]


def test_it_brings_up_its_own_stack_and_prints_how_to_use_it(hpc: Hpc, root: Path, mega: Path) -> None:
    ended = hpc("rehearse", "mega")
    assert ended.code == 0, ended.err
    cluster = rehearsed(root)
    assert (cluster["platform"], cluster["name"]) == ("local", "a3mega")
    assert cluster["nodesets"] == {"a3mega": {"machine_type": "a3-megagpu-8g", "count": 4}}
    assert "/gcs" in cluster["storage"]["shared"]
    assert json.loads(hpc("outputs", "mega-rehearsal", "cluster").out) == cluster
    for text in (
        "  slurm.conf: TaskPlugin=task/cgroup, where production has task/affinity,task/cgroup: ",
        "  nodeset a3mega: 4 of 9 nodes\n",
        "  rxdm: scripts/local/rxdm.sh stands for the prolog",
        "Updating stack mega-rehearsal",
        "./hpc run mega-rehearsal -- sinfo",
        "./hpc ssh mega-rehearsal controller",
        "./hpc status mega-rehearsal",
        "After an edit of Pulumi.mega.yaml: ./hpc rehearse mega\n",
        "To remove it: ./hpc rehearse mega --destroy\n",
    ):
        assert text in ended.out
    assert stack_file(root).read_text().startswith(f"# Written by `./hpc rehearse` from {mega} at 20")


def test_a_second_run_changes_nothing_but_an_edit(hpc: Hpc, root: Path, mega: Path) -> None:
    assert hpc("rehearse", "mega", "--nodes", "2").code == 0
    again = hpc("rehearse", "mega", "--nodes", "2").out
    assert "Nothing to do" in again
    assert "After an edit of Pulumi.mega.yaml: ./hpc rehearse mega --nodes 2\n" in again
    mega.write_text(MEGA.replace("uid: 2001", "uid: 2002"))
    assert hpc("rehearse", "mega", "--nodes", "2").code == 0
    assert rehearsed(root)["users"] == [{"name": "alice", "uid": 2002}]


def test_the_pulumi_cli_is_not_used(hpc: Hpc, tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tool("pulumi", "echo called; exit 3")
    monkeypatch.setenv("HPC_ENGINE", "pulumi")
    assert hpc("rehearse", "mega").code == 0
    assert hpc("up", "mega-rehearsal").code == 0


def test_destroy_leaves_no_file_and_is_idempotent(hpc: Hpc, root: Path) -> None:
    hpc("rehearse", "mega")
    assert hpc("rehearse", "mega", "--destroy").code == 0
    assert [path for path in (root.parent / "home").rglob("*mega*") if path.is_file()] == []
    assert not (root.parent / "home/rehearsals").exists()
    ended = hpc("rehearse", "mega", "--destroy")
    assert (ended.code, ended.err) == (0, "Nothing to do: stack mega-rehearsal has not been brought up.\n")
    assert json.loads(hpc("rehearse", "mega", "--destroy", "--json").out)["ok"] is True
    assert hpc("rehearse", "nope", "--destroy").code == 1


def test_rehearse_destroy_needs_no_stack_file_and_destroy_keeps_the_rehearsals(hpc: Hpc, mega: Path) -> None:
    hpc("rehearse", "mega")
    assert hpc("destroy", "mega-rehearsal").code == 0
    assert hpc("up", "mega-rehearsal").code == 0
    mega.unlink()
    assert hpc("rehearse", "mega", "--destroy").code == 0
    assert "mega-rehearsal" not in hpc("stacks").out


def test_preview_prints_the_differences_and_writes_nothing(hpc: Hpc, root: Path) -> None:
    ended = hpc("rehearse", "mega", "--preview")
    assert ended.code == 0
    assert "nodeset a3mega: 4 of 9 nodes" in ended.out
    assert not (root.parent / "home/rehearsals").exists()
    assert "mega-rehearsal" not in hpc("stacks").out


def test_json_is_one_document_with_the_differences(hpc: Hpc, mega: Path) -> None:
    document = json.loads(hpc("rehearse", "mega", "--json").out)
    assert (document["kind"], document["ok"], document["stack"]) == ("up", True, "mega-rehearsal")
    rehearsal = document["rehearsal"]
    assert (rehearsal["of"], rehearsal["file"]) == ("mega", str(mega))
    assert "nodeset a3mega: 4 of 9 nodes" in rehearsal["stood_in"]
    (row,) = [row for row in rehearsal["differences"] if row["name"] == "TaskPlugin"]
    assert (row["file"], row["production"], row["here"]) == ("slurm.conf", "task/affinity,task/cgroup", "task/cgroup")
    assert row["text"].startswith("slurm.conf: TaskPlugin=task/cgroup")


def test_stacks_lists_the_stack_that_is_rehearsed(hpc: Hpc) -> None:
    hpc("rehearse", "mega")
    assert "mega-rehearsal  local, rehearses mega" in hpc("stacks").out
    rows = {row["stack"]: row for row in json.loads(hpc("stacks", "--json").out)}
    assert (rows["mega-rehearsal"]["platform"], rows["mega-rehearsal"]["rehearses"]) == ("local", "mega")
    assert rows["dev"]["rehearses"] == ""


class TestNetwork:
    def test_a_free_network_is_chosen_and_kept(self, hpc: Hpc, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        taken = {"10.78.0.0/20", "10.78.16.0/20"}
        monkeypatch.setattr(
            "components.local.rehearsal.taken_by", lambda _root, _stack, cidr: str(cidr) in taken or None
        )
        hpc("rehearse", "mega")
        assert rehearsed(root)["network"] == {"cidr": "10.78.32.0/20"}
        taken.clear()
        hpc("rehearse", "mega")
        assert rehearsed(root)["network"] == {"cidr": "10.78.32.0/20"}
        # Another stack has taken the stored network meanwhile.
        taken.add("10.78.32.0/20")
        hpc("rehearse", "mega")
        assert rehearsed(root)["network"] == {"cidr": "10.78.0.0/20"}
        file = rehearsals.file("mega-rehearsal")
        file.write_text(file.read_text().replace("10.78.0.0/20", "nowhere"))
        hpc("rehearse", "mega")
        assert rehearsed(root)["network"] == {"cidr": "10.78.0.0/20"}

    def test_a_given_network_is_used_while_it_is_large_enough(self, hpc: Hpc, root: Path) -> None:
        assert hpc("rehearse", "mega", "--cidr", "192.168.64.0/24").code == 0
        assert rehearsed(root)["network"] == {"cidr": "192.168.64.0/24"}
        assert "Nothing to do" in hpc("rehearse", "mega").out
        assert hpc("rehearse", "mega", "--nodes", "100").code == 0
        assert rehearsed(root)["network"] == {"cidr": "10.78.0.0/20"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dev", "stack dev is on this machine as it is, and needs no rehearsal: ./hpc up dev"),
        ("nope", "there is no stack 'nope': Pulumi.nope.yaml does not exist. There are: dev, mega."),
        ("mega --preview --destroy", "leave out one of them"),
        ("mega --cidr 8.8.8.0/24", "--cidr 8.8.8.0/24: allowed is a network inside 10.0.0.0/8"),
        ("mega --cidr 192.168.64.0/26 --nodes 12", "allowed: 1 to 6, as the nodeset's addresses are 192.168.64.8/29"),
        ("mega --real-prolog", "slurm.rxdm names no file, and a rehearsal has no way out"),
    ],
)
def test_what_can_not_be_rehearsed_is_refused(hpc: Hpc, root: Path, line: str, message: str) -> None:
    ended = hpc("rehearse", *line.split())
    assert message in ended.error
    assert ended.out == ""
    assert not (root.parent / "home/rehearsals").exists()


def test_all_errors_of_the_stack_file_are_reported_together(hpc: Hpc, mega: Path) -> None:
    mega.write_text(MEGA.replace("uid: 2001", "uid: 1").replace("count: 9", "count: 0"))
    assert hpc("rehearse", "mega").err.startswith(f"error: {mega}: 2 errors in the stack configuration:")


def test_a_rehearsal_and_a_stack_file_of_the_same_name_are_refused(hpc: Hpc, root: Path) -> None:
    hpc("rehearse", "mega")
    message = "mega-rehearsal is the rehearsal of mega, which is what to name: ./hpc rehearse mega"
    assert message in hpc("rehearse", "mega-rehearsal").err
    (root / "Pulumi.mega-rehearsal.yaml").write_text(MEGA)
    assert "Pulumi.mega-rehearsal.yaml is a stack file of its own" in hpc("rehearse", "mega").err


def test_the_real_prolog_is_the_stacks_own_file(hpc: Hpc, root: Path, mega: Path) -> None:
    mega.write_text(MEGA.replace("partitions: [a3mega]}}", "partitions: [a3mega], file: mine.sh}}"))
    assert hpc("rehearse", "mega", "--real-prolog").code == 0
    assert rehearsed(root)["slurm"]["rxdm"]["file"] == "mine.sh"


def test_elastic_nodesets_are_static_unless_elastic_is_given(hpc: Hpc, root: Path, mega: Path) -> None:
    assert "no elastic nodeset" in hpc("rehearse", "mega", "--elastic").err
    assert "give both" in hpc("rehearse", "mega", "--faults").err
    mega.write_text(MEGA.replace("count: 9", "count: {min: 1, max: 9}"))
    assert "--elastic has these too" in hpc("rehearse", "mega").out
    assert rehearsed(root)["nodesets"]["a3mega"]["count"] == 4
    ended = hpc("rehearse", "mega", "--elastic")
    assert "./hpc rehearse mega --elastic" in ended.out
    assert rehearsed(root)["nodesets"]["a3mega"]["count"] == {"min": 1, "max": 9}


def test_the_state_of_a_stack_with_resources_is_not_removed(hpc: Hpc, root: Path) -> None:
    from cli.stack import project  # noqa: PLC0415 - after `root` has moved it
    from engine import EngineError  # noqa: PLC0415

    hpc("rehearse", "mega")
    with pytest.raises(EngineError, match="still has resources: destroy it first"):
        project.workspace().stack("mega-rehearsal").forget()
    assert rehearsals.of(rehearsals.file("mega-rehearsal")) == "mega"


def test_a_rehearsal_imports_neither_pulumi_nor_a_cloud(root: Path, mega: Path) -> None:
    program = (
        "import sys, yaml; from cluster.load import parse;"
        "from cluster.platforms.local.rehearsal import rehearsed;"
        f"rehearsed(parse(yaml.safe_load(open({str(mega)!r}))['config']));"
        "sys.exit(any(name.startswith(('pulumi', 'google.cloud')) for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == 0


def test_of_a_stack_on_nebius_slurms_side_is_rehearsed(hpc: Hpc, root: Path) -> None:
    shutil.copy(Path(__file__).parents[3] / "Pulumi.nebius.yaml", root / "Pulumi.neb.yaml")
    ended = hpc("rehearse", "neb", "--preview", "--nodes", "3")
    assert ended.code == 0, ended.err
    for said in (
        "Rehearses neb on this machine.\nWhat is not as in production:",
        "nodeset worker: 3 nodes, where the stack has 2",
        "on Nebius an operator of Slurm writes them",
        "on Nebius they share all of /",
    ):
        assert said in ended.out
    assert "production's but for" not in ended.out
    assert not (root.parent / "home/rehearsals").exists()
