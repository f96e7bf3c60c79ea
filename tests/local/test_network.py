"""A stack's network and machines belong to the state that created them; its hosts file stays the same file."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.local.host import machine, network, owner
from components.local.host.machine import Design
from components.local.host.network import render_hosts, write_in_place
from components.local.host.paths import HostError, StackPaths
from components.local.resources import SharedFolderProvider


def test_hosts_are_sorted_by_address() -> None:
    text = render_hosts({"b": "10.0.0.10", "a": "10.0.0.9"}, "10.0.0.1")
    assert text.splitlines()[-3:] == ["10.0.0.1 gateway", "10.0.0.9 a", "10.0.0.10 b"]


def test_the_hosts_file_is_changed_in_place(tmp_path: Path) -> None:
    path = tmp_path / "stack" / "hosts"
    write_in_place(path, "a long first text\n")
    inode = path.stat().st_ino
    write_in_place(path, "short\n")
    assert path.read_text() == "short\n"
    assert path.stat().st_ino == inode


OURS, THEIRS = "ssh-ed25519 AAAAours", "ssh-ed25519 AAAAtheirs"


@pytest.fixture(autouse=True)
def bridges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was made and removed of the host's network: nothing really is."""
    done: list[str] = []
    monkeypatch.setattr(network, "_check_disk", lambda _: None)
    monkeypatch.setattr(network, "taken_by", lambda *_: None)
    monkeypatch.setattr(network.bridge, "ensure", lambda *_: done.append("made"))
    monkeypatch.setattr(network.bridge, "remove", lambda *_: done.append("removed"))
    monkeypatch.setenv("HPC_HOME", "/home/me/.hpc")
    return done


def of(root: Path, key: str) -> network.HostNetwork:
    return network.HostNetwork(
        root=root,
        hosts={},
        state=owner.state_id(key),
        stack="dev",
        owner="hpc/dev",
        cidr="10.80.0.0/20",
        gateway="10.80.0.1",
    )


def design(root: Path, key: str) -> Design:
    return Design(
        root=root, images=root, stack="dev", name="dev-cpu-0", address="10.80.0.2", prefix=20, image="x",
        authorized_keys=key,
    )  # fmt: skip


def shared(root: Path, key: str) -> dict[str, Any]:
    return {
        "root": str(root), "stack": "dev", "folder": "home", "mode": "0755", "gid": 0.0, "state": owner.state_id(key),
    }  # fmt: skip


def refused(root: Path) -> str:
    with pytest.raises(HostError) as told:
        network.ensure(of(root, OURS))
    return str(told.value)


def test_a_comment_in_the_key_does_not_change_the_state_id():
    assert owner.state_id(f"{OURS} me@here\n") == owner.state_id(OURS) != owner.state_id(THEIRS)


def test_the_same_state_can_update_the_network(tmp_path: Path, bridges: list[str]):
    network.ensure(of(tmp_path, OURS))
    network.ensure(of(tmp_path, OURS))
    assert bridges == ["made", "made"]


def test_another_state_is_refused_with_the_owners_name(tmp_path: Path, bridges: list[str]):
    network.ensure(of(tmp_path, THEIRS))
    before = (tmp_path / "stacks/dev/network.json").read_text()
    said = refused(tmp_path)
    assert "made by hpc/dev with the state in file:///home/me/.hpc, since 20" in said
    assert "--leftovers" in said
    with pytest.raises(HostError, match="is up on this host"):
        machine.create(design(tmp_path, OURS))
    with pytest.raises(HostError, match="is up on this host"):
        SharedFolderProvider().create(shared(tmp_path, OURS))
    assert bridges == ["made"]
    assert (tmp_path / "stacks/dev/network.json").read_text() == before


def test_another_state_removes_nothing(tmp_path: Path, bridges: list[str]):
    network.ensure(of(tmp_path, THEIRS))
    paths = StackPaths(tmp_path, "dev")
    for folder in (paths.shared / "home", paths.machine("dev-cpu-0").folder):
        folder.mkdir(parents=True)
    machine.delete(design(tmp_path, OURS))
    SharedFolderProvider().delete("id", shared(tmp_path, OURS))
    network.remove(of(tmp_path, OURS))
    assert (paths.shared / "home").is_dir()
    assert paths.machine("dev-cpu-0").folder.is_dir()
    assert bridges == ["made"]
    SharedFolderProvider().delete("id", shared(tmp_path, THEIRS))
    network.remove(of(tmp_path, THEIRS))
    assert not paths.folder.exists()


def test_a_state_with_a_new_key_is_identified_by_its_earlier_id(tmp_path: Path):
    network.ensure(of(tmp_path, THEIRS))
    network.ensure(of(tmp_path, OURS), before=[owner.state_id(THEIRS)])
    for key in (OURS, THEIRS):
        assert not owner.is_other_states(StackPaths(tmp_path, "dev"), owner.state_id(key))


def test_a_renamed_stack_goes_on_with_its_network(tmp_path: Path):
    """`pulumi stack rename` gives the same state another name."""
    network.ensure(of(tmp_path, OURS))
    renamed = replace(of(tmp_path, OURS), owner="hpc/other")
    network.ensure(renamed, before=[owner.state_id(OURS)])
    assert owner.recorded(StackPaths(tmp_path, "dev"))["owner"] == "hpc/other"
    with pytest.raises(HostError, match="is up on this host, made by hpc/other"):
        network.ensure(replace(of(tmp_path, THEIRS), owner="hpc/third"), before=[])


class TestOfAnEarlierVersion:
    """Its record names no state, or a hand has damaged it."""

    @pytest.fixture(params=[{"owner": "hpc/dev"}, "damaged"])
    def running(self, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "stacks/dev").mkdir(parents=True)
        text = request.param if isinstance(request.param, str) else json.dumps(request.param)
        (tmp_path / "stacks/dev/network.json").write_text(text)
        monkeypatch.setattr(network.machine, "any_runs", lambda *_: True)

    @pytest.mark.usefixtures("running")
    def test_the_state_of_an_unrecorded_owner_can_update_the_network(self, tmp_path: Path):
        network.ensure(of(tmp_path, OURS), before=[])
        assert owner.recorded(StackPaths(tmp_path, "dev"))["states"] == [owner.state_id(OURS)]

    @pytest.mark.usefixtures("running")
    def test_a_new_state_is_refused_while_machines_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        assert "is up on this host" in refused(tmp_path)
        monkeypatch.setattr(network.machine, "any_runs", lambda *_: False)
        network.ensure(of(tmp_path, OURS))
