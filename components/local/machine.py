"""A machine of a stack on this host."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import DynamicResource, changed, given
from components.local.host.machines import machine
from components.local.host.machines.design import Design, Facts
from components.local.host.machines.layer import File
from components.local.host.packages import require_host
from components.machine import Boot, BootFile

REPLACES = ("root", "images", "stack", "name", "address", "prefix", "image", "os_release", "devices")
"""Inputs whose change replaces the machine."""
IN_PLACE = ("files", "authorized_keys", "orderly")
"""Inputs that a running machine takes without a restart."""


class MachineProvider(ResourceProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Make and start the machine; whatever an interrupted run left under its name is replaced."""
        require_host()
        facts = machine.create(design(props))
        return CreateResult(f"{props['stack']}/{props['name']}", _outputs(props, facts))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """A machine that does not run, or is disconnected, differs too: `update` restarts or reconnects it. One without
        its files is recreated."""
        replaces = changed(_olds, _news, REPLACES)
        old = design(_olds)
        dead = machine.running(old.paths) is None
        if dead and machine.facts(old) is None and not replaces:
            replaces = ["name"]
        cut = not replaces and machine.is_cut(old)
        return DiffResult(
            changes=bool(replaces or dead or cut or changed(_olds, _news, IN_PLACE)),
            replaces=replaces,
            # What an update leaves as it is, so that a preview knows it: only a start gives another boot_id.
            stables=["instance_id", "host_key", *([] if dead else ["boot_id"])],
            # Its folder, address and name on the host are the old one's.
            delete_before_replace=True,
        )

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Write its files; start it if it does not run, reconnect it if it is disconnected."""
        require_host()
        return UpdateResult(_outputs(_news, machine.update(design(_news))))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        facts = machine.facts(design(props))
        if facts is None:
            return ReadResult("", given(props))
        return ReadResult(id_, _outputs(given(props), facts))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        machine.delete(design(_props))


def _outputs(props: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    return {**given(props), "instance_id": facts.instance_id, "boot_id": facts.boot_id, "host_key": facts.host_key}


def design(props: Mapping[str, Any]) -> Design:
    """The host's view of a machine's inputs; numbers come as Pulumi's floats."""
    return Design(
        root=Path(props["root"]), images=Path(props["images"]), stack=props["stack"], name=props["name"],
        address=props["address"], prefix=int(props["prefix"]), image=props["image"],
        authorized_keys=props["authorized_keys"],
        files={path: _file(file) for path, file in props["files"].items()}, os_release=props["os_release"],
        devices=tuple((d["name"], int(d["major"]), int(d["minor"])) for d in props["devices"]),
        orderly=bool(props["orderly"]),
    )  # fmt: skip


def _file(file: str | Mapping[str, Any]) -> File:
    if isinstance(file, str):
        return File(content=file)
    if "link" in file:
        return File(link=file["link"])
    return File(
        content=file["content"], mode=int(file.get("mode", f"{File.mode:o}"), 8), owner=file.get("owner", File.owner)
    )


def _file_input(file: BootFile) -> pulumi.Input[str] | dict[str, pulumi.Input[str]]:
    """A file as an input: its text alone, where the rest is as usual, since every machine has dozens of them."""
    if file.link is not None:
        return {"link": file.link}
    if (file.mode, file.owner) == (File.mode, File.owner):
        return file.content
    inputs: dict[str, pulumi.Input[str]] = {"content": file.content}
    if file.mode != File.mode:
        inputs["mode"] = f"{file.mode:04o}"
    if file.owner != File.owner:
        inputs["owner"] = file.owner
    return inputs


class LocalMachine(DynamicResource, module="local", name="Machine"):
    """A systemd-nspawn machine with its own systemd, network and root file system."""

    instance_id: pulumi.Output[str]
    boot_id: pulumi.Output[str]
    host_key: pulumi.Output[str]

    def __init__(
        self, name: str, *, root: str, images: str, stack: str, machine: str, address: str, prefix: int, image: str,
        authorized_keys: pulumi.Input[str], files: Boot, os_release: str, devices: Sequence[Mapping[str, object]],
        orderly: bool, opts: pulumi.ResourceOptions | None = None,
    ) -> None:  # fmt: skip
        props = {
            "root": root, "images": images, "stack": stack, "name": machine, "address": address, "prefix": prefix,
            "image": image, "authorized_keys": authorized_keys,
            "files": {path: _file_input(file) for path, file in files.items()}, "os_release": os_release,
            "devices": [dict(device) for device in devices], "orderly": orderly, "instance_id": None, "boot_id": None,
            "host_key": None,
        }  # fmt: skip
        # Its folder, address and name on the host are the old one's. The diff has it too, but a forced
        # replacement (--replace) does not call it.
        first = pulumi.ResourceOptions(delete_before_replace=True)
        super().__init__(MachineProvider(), name, props, pulumi.ResourceOptions.merge(opts, first))
