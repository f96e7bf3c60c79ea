"""What a change of an input does: nothing, a change in place, or a new one; and what counts as drift."""

import base64
import sys
import traceback
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pulumi.dynamic import ResourceProvider, dynamic

from components.local import resources
from components.local.host import machine
from components.local.host.paths import HostError, MachinePaths, checked_name, plain
from components.local.resources import IN_PLACE, REPLACES, MachineProvider
from components.slurm import payload


@pytest.fixture
def props(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Inputs of a machine that runs; numbers as Pulumi brings them."""
    monkeypatch.setattr(resources.machine, "running", lambda _: object())
    monkeypatch.setattr(resources.machine, "is_disconnected", lambda _: False)
    return {
        "root": str(tmp_path), "images": str(tmp_path / "images"), "stack": "dev", "name": "dev-cpu-0",
        "address": "10.77.2.1", "prefix": 20.0, "image": "abc", "authorized_keys": "ssh-ed25519 AAAA",
        "files": {"/etc/a": {"content": "a", "mode": "0644", "owner": "root:root"}, "/etc/b": {"link": "a"}},
        "os_release": "", "devices": [{"name": "nvidia0", "major": 60.0, "minor": 0.0}], "orderly": False, "setup": "",
    }  # fmt: skip


OTHER: dict[str, Any] = {
    "root": "/srv/other", "images": "/srv/images", "stack": "other", "name": "dev-cpu-1", "address": "10.77.2.2",
    "prefix": 24, "image": "def", "os_release": 'ID="ubuntu"\n', "devices": [], "files": {}, "authorized_keys": "k",
    "orderly": True, "setup": "another",
}  # fmt: skip


def made(props: dict[str, Any]) -> dict[str, Any]:
    """Outputs of the machine with these inputs."""
    outputs = {name: value for name, value in props.items() if name != "files"}
    return outputs | {"files_digest": resources.digest(props)}


class TestMachine:
    def test_without_a_changed_input_there_is_no_change(self, props: dict[str, Any]) -> None:
        assert (
            MachineProvider().diff("id", {**made(props), "instance_id": "i"}, {**props, "prefix": 20}).changes is False
        )

    @pytest.mark.parametrize("name", REPLACES)
    def test_changed_inputs_of_the_creation_replace_the_machine(self, props: dict[str, Any], name: str) -> None:
        diff = MachineProvider().diff("id", made(props), {**props, name: OTHER[name]})
        assert diff.changes
        assert diff.replaces == [name]
        assert diff.delete_before_replace

    @pytest.mark.parametrize("name", IN_PLACE)
    def test_files_are_changed_in_place(self, props: dict[str, Any], name: str) -> None:
        given = name.removesuffix("_digest")
        diff = MachineProvider().diff("id", made(props), {**props, given: OTHER[given]})
        assert diff.changes
        assert diff.replaces == []

    def test_the_set_up_comes_from_this_checkout(self, props: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        wanted = {**props, "setup": payload.setup_version()}
        seen: list[machine.Design] = []
        facts = machine.MachineFacts(instance_id="i", boot_id="b", host_key="k")
        monkeypatch.setattr(resources.machine, "update", lambda design: seen.append(design) or facts)
        monkeypatch.setattr(resources, "require_host", lambda: None)
        outputs = MachineProvider().update("id", made(props), wanted).outs
        assert {f"{payload.SETUP}/system/host.py", "/etc/a"} < set(seen[0].files)
        assert outputs is not None
        assert "files" not in outputs
        assert not MachineProvider().diff("id", outputs, wanted).changes
        with pytest.raises(HostError, match="run `up` again"):
            MachineProvider().update("id", made(props), {**props, "setup": "of another checkout"})

    def test_every_input_replaces_or_updates(self, props: dict[str, Any]) -> None:
        assert set(REPLACES) | set(IN_PLACE) == set(made(props))

    def test_a_disconnected_machine_is_reconnected(
        self, props: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(resources.machine, "is_disconnected", lambda _: True)
        diff = MachineProvider().diff("id", made(props), props)
        assert (diff.changes, diff.replaces) == (True, [])
        assert "boot_id" in (diff.stables or [])

    def test_a_stopped_machine_is_restarted_not_replaced(
        self, props: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(resources.machine, "running", lambda _: None)
        monkeypatch.setattr(resources.machine, "facts", lambda _: object())
        diff = MachineProvider().diff("id", made(props), props)
        assert diff.changes
        assert diff.replaces == []

    def test_a_machine_without_its_files_is_replaced(
        self, props: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(resources.machine, "running", lambda _: None)
        assert MachineProvider().diff("id", made(props), props).replaces == ["name"]

    def test_a_machine_without_its_files_is_not_found_by_refresh(self, props: dict[str, Any]) -> None:
        assert MachineProvider().read("dev/dev-cpu-0", props).id == ""

    def test_deleting_a_missing_machine_is_no_error(self, props: dict[str, Any], tmp_path: Path) -> None:
        MachineProvider().delete("dev/dev-cpu-0", props)
        assert list(tmp_path.iterdir()) == []


class TestNetwork:
    OLD: ClassVar[dict[str, Any]] = {
        "stack": "dev", "owner": "hpc/dev", "cidr": "10.77.0.0/20", "gateway": "10.77.0.1", "hosts": {"a": "10.77.0.2"},
    }  # fmt: skip

    @pytest.mark.parametrize("change", [{"hosts": {}}, {"cidr": "10.78.0.0/20"}, {"owner": "hpc/other"}])
    def test_a_network_is_changed_in_place(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
    ) -> None:
        monkeypatch.setattr(resources.network, "is_up", lambda _: True)
        old = {**self.OLD, "root": str(tmp_path)}
        provider = resources.NetworkProvider()
        assert provider.diff("id", old, old).changes is False
        diff = provider.diff("id", old, {**old, **change})
        assert (diff.changes, diff.replaces) == (True, [])

    def test_a_forced_replacement_of_the_network_ends_no_machine(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What removes the network of old would remove the bridge, and every machine that is found there."""
        removed: list[object] = []
        monkeypatch.setattr(resources.network, "ensure", lambda *_, **__: None)
        monkeypatch.setattr(resources.network, "remove", removed.append)
        monkeypatch.setattr(resources, "require_host", lambda: None)
        monkeypatch.setattr(resources, "allow_watches", lambda _: None)
        provider, props = resources.NetworkProvider(), {**self.OLD, "root": str(tmp_path)}
        old = provider.create(props).outs or {}
        new = provider.create(props).outs or {}
        provider.delete("id", old)
        assert removed == []
        provider.delete("id", new)
        assert len(removed) == 1

    def test_a_missing_bridge_is_created_again(self, tmp_path: Path) -> None:
        old = {**self.OLD, "root": str(tmp_path), "stack": "no-such-stack"}
        diff = resources.NetworkProvider().diff("id", old, old)
        assert (diff.changes, diff.replaces) == (True, [])
        assert resources.NetworkProvider().read("id", old).id == ""


class TestSharedFolder:
    @pytest.fixture(autouse=True)
    def _anybody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("components.local.host.network.os.fchown", lambda *_: None)

    @pytest.fixture
    def props(self, tmp_path: Path) -> dict[str, Any]:
        return {"root": str(tmp_path), "stack": "dev", "folder": "home", "mode": "0750", "gid": 0.0}

    def test_the_content_of_a_shared_folder_survives_everything_but_deletion(
        self, tmp_path: Path, props: dict[str, Any]
    ) -> None:
        provider, folder = resources.SharedFolderProvider(), tmp_path / "stacks/dev/shared/home"
        assert provider.diff("id", props, props).changes is True
        made = provider.create(props).outs or {}
        (folder / "data").write_text("kept")
        assert provider.diff("id", made, props).changes is False
        again = provider.create(props).outs or {}
        assert provider.diff("id", made, props).changes is True
        new = provider.update("id", again, {**props, "mode": "0755"}).outs or {}
        assert (folder / "data").read_text() == "kept"
        assert folder.stat().st_mode & 0o777 == 0o755
        provider.delete("id", new)
        assert not folder.exists()
        assert provider.read("id", new).id == ""

    def test_a_link_in_place_of_a_shared_folder_is_not_followed(self, tmp_path: Path, props: dict[str, Any]) -> None:
        provider = resources.SharedFolderProvider()
        made = provider.create(props).outs or {}
        folder, host = tmp_path / "stacks/dev/shared/home", tmp_path / "host"
        host.mkdir(mode=0o700)
        (host / "data").touch()
        folder.rmdir()
        folder.symlink_to(host)
        with pytest.raises(HostError, match="shared/home: is no folder"):
            provider.update("id", made, {**props, "mode": "2775"})
        assert host.stat().st_mode & 0o7777 == 0o700
        provider.delete("id", made)
        assert not folder.is_symlink()
        assert (host / "data").exists()

    def test_a_forced_replacement_of_a_shared_folder_keeps_its_content(
        self, tmp_path: Path, props: dict[str, Any]
    ) -> None:
        """The engine makes the new one, then deletes the old one: the same folder."""
        provider = resources.SharedFolderProvider()
        old = provider.create(props).outs or {}
        (tmp_path / "stacks/dev/shared/home/data").write_text("kept")
        new = provider.create(props).outs or {}
        provider.delete("id", old)
        assert (tmp_path / "stacks/dev/shared/home/data").read_text() == "kept"
        assert provider.diff("id", new, props).changes is False
        provider.delete("id", new)
        assert not (tmp_path / "stacks/dev/shared/home").exists()


class TestImage:
    def test_another_recipe_replaces_the_image_and_a_pruned_one_is_built_again(self, tmp_path: Path) -> None:
        provider = resources.ImageProvider()
        props = {"base": "debian-12", "images": str(tmp_path), "digest": "abc"}
        assert provider.diff("id", props, props).changes is True
        assert provider.read("abc", props).id == ""
        (tmp_path / "abc").mkdir()
        (tmp_path / "abc/image.json").write_text("{}")
        assert provider.diff("id", props, props).changes is False
        assert provider.diff("id", props, {**props, "digest": "def"}).replaces == ["digest"]

    def test_destroy_keeps_images(self, tmp_path: Path) -> None:
        (tmp_path / "abc").mkdir()
        resources.ImageProvider().delete("abc", {"base": "debian-12", "images": str(tmp_path), "digest": "abc"})
        assert (tmp_path / "abc").exists()


@pytest.mark.parametrize(
    "provider",
    [MachineProvider(), resources.NetworkProvider(), resources.SharedFolderProvider(), resources.ImageProvider()],
)
def test_providers_are_pickled_by_reference(provider: ResourceProvider) -> None:
    """One that carried its code along would change the state with every edit, and drag its imports with it."""
    pickled = base64.b64decode(dynamic.serialize_provider(provider))
    assert len(pickled) < 200
    assert type(provider).__module__.encode() in pickled
    assert type(provider).__name__.encode() in pickled


@pytest.mark.parametrize("path", ["relative", "/srv/a b", "/srv/a:b", "/srv/a,b"])
def test_a_root_with_characters_of_mount_options_is_refused(path: str) -> None:
    with pytest.raises(HostError, match="must be an absolute path of letters"):
        plain(Path(path))


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "../x", "a" * 64])
def test_a_name_that_is_no_host_name_is_refused(name: str) -> None:
    with pytest.raises(HostError, match="must be 1 to 63 of"):
        checked_name(name, "machine")


def test_the_lock_of_a_machine_is_beside_its_folder() -> None:
    assert MachinePaths(Path("/r/machines/m")).lock == Path("/r/machines/.m.lock")


@pytest.mark.parametrize("provider", [MachineProvider(), resources.ImageProvider(), resources.CloudProvider()])
def test_the_pulumi_clis_process_prints_no_traceback_if_the_host_can_not_do_it(
    provider: ResourceProvider, props: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That process prints the traceback of what a provider raises (pulumi/dynamic/__main__.py,
    _abort_with_traceback)."""

    def refuse() -> None:
        raise HostError("this is no Linux")

    monkeypatch.setattr(resources, "require_host", refuse)
    monkeypatch.setattr(sys.modules["__main__"], "DynamicResourceProviderServicer", object, raising=False)
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)
    with pytest.raises(HostError) as caught:
        provider.create(props)
    printed = traceback.format_exception(caught.value)
    assert printed[-1].endswith("HostError: this is no Linux\n")
    assert not [line for line in printed if line.startswith("  File")]
