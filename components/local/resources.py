"""The resources of a stack on this host: base image, network, shared folders, machines."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import DynamicResource, changed, given, report, without_traceback
from components.local.host import cloud, images, machine, network, owner
from components.local.host.cgroups import allow_watches
from components.local.host.layer import File
from components.local.host.machine import MachineFacts, design, design_without_files
from components.local.host.paths import HostError, StackPaths
from components.local.host.process import require_host
from components.machine import Boot, BootFile
from components.slurm import payload

_CLAIM = "network"


class HostProvider(ResourceProvider):
    """A provider whose HostErrors are shown without a traceback."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in {"create", "diff", "update", "read", "delete"} & vars(cls).keys():
            setattr(cls, name, without_traceback(HostError)(getattr(cls, name)))


class NetworkProvider(HostProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Create the network, or complete one of an interrupted run."""
        return CreateResult(_network(props).bridge, self._ensure(props, before=None))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another root or name is another network. Everything else is changed in place, a missing bridge included."""
        replaces = changed(_olds, _news, ("root", "stack"))
        changes = changed(_olds, _news, ("owner", "cidr", "gateway", "hosts", "state", "open_to"))
        old = _network(_olds)
        gone = not (network.is_up(old) and owner.holds_claim(old.paths, _CLAIM, _olds.get(owner.CLAIM)))
        return DiffResult(changes=bool(replaces or changes or gone), replaces=replaces)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        # The network was created by this state under an earlier id, or before states had ids.
        before = [_olds["state"]] if _olds.get("state") else []
        return UpdateResult(self._ensure(_news, before=before, claim=_olds.get(owner.CLAIM)))

    def _ensure(
        self, props: dict[str, Any], *, before: Sequence[str] | None, claim: str | None = None
    ) -> dict[str, Any]:
        require_host()
        allow_watches(report)
        wanted = _network(props)
        network.ensure(wanted, before=before)
        claim = owner.claim(wanted.paths, _CLAIM, claim)
        return {**given(props), "bridge": wanted.bridge, owner.CLAIM: claim}

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        exists = _network(props).paths.network.exists()
        return ReadResult(id_ if exists else "", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Remove the bridge and the stack's folder, unless they belong to a later network."""
        old = _network(_props)
        if owner.holds_claim(old.paths, _CLAIM, _props.get(owner.CLAIM)):
            network.remove(old)


def _network(props: Mapping[str, Any]) -> network.HostNetwork:
    return network.HostNetwork(
        root=Path(props["root"]),
        stack=props["stack"],
        owner=props["owner"],
        cidr=props["cidr"],
        gateway=props["gateway"],
        hosts=props["hosts"],
        state=props.get("state") or "",
        open_to={address: int(port) for address, port in (props.get("open_to") or {}).items()},
    )


class LocalNetwork(DynamicResource, module="local", name="Network"):
    """A stack's network on this host."""

    bridge: pulumi.Output[str]
    """Name of the bridge."""

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(NetworkProvider(), name, {**props, "bridge": None}, opts)


class SharedFolderProvider(HostProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Create the folder. A folder of an interrupted run is kept with its content."""
        return CreateResult(f"{props['stack']}/{props['folder']}", self._ensure(props, None))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Mode and group are changed in place; another name is another folder."""
        replaces = changed(_olds, _news, ("root", "stack", "folder"))
        changes = changed(_olds, _news, ("mode", "gid"))
        paths, folder = _paths(_olds), _olds["folder"]
        kept = owner.holds_claim(paths, _claim(folder), _olds.get(owner.CLAIM))
        gone = not (kept and (paths.shared / folder).is_dir())
        return DiffResult(changes=bool(replaces or changes or gone), replaces=replaces)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Set mode and group. The content of the folder stays."""
        return UpdateResult(self._ensure(_news, _olds.get(owner.CLAIM)))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        exists = (_paths(props).shared / props["folder"]).is_dir()
        return ReadResult(id_ if exists else "", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Remove the folder with its content, unless it belongs to another state's machines or to the resource that
        replaced this one, which has the same files."""
        paths, folder, state = _paths(_props), _props["folder"], _props.get("state")
        if state and owner.is_other_states(paths, state):
            return
        if owner.holds_claim(paths, _claim(folder), _props.get(owner.CLAIM)):
            network.remove_shared(paths, folder)
            (paths.claims / _claim(folder)).unlink(missing_ok=True)

    def _ensure(self, props: dict[str, Any], claim: str | None) -> dict[str, Any]:
        paths, folder = _paths(props), props["folder"]
        owner.refuse_other_state(paths, props.get("state") or "")
        network.ensure_shared(paths, folder, mode=int(props["mode"], 8), gid=int(props["gid"]))
        return {**given(props), owner.CLAIM: owner.claim(paths, _claim(folder), claim)}


def _claim(folder: str) -> str:
    return f"shared-{folder}"


def _paths(props: dict[str, Any]) -> StackPaths:
    return StackPaths(Path(props["root"]), props["stack"])


class SharedFolder(DynamicResource, module="local", name="SharedFolder"):
    """A folder that every machine of the stack has at /srv/shared/<folder>."""

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(SharedFolderProvider(), name, dict(props), opts)


class ImageProvider(HostProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Build the image, unless it exists."""
        self._ensure(props)
        return CreateResult(props["digest"], given(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another content is another image. An image that was pruned is built again."""
        replaces = changed(_olds, _news, ("base", "images", "digest"))
        gone = not images.has_image(Path(_news["images"]), _news["digest"])
        return DiffResult(changes=bool(replaces or gone), replaces=replaces)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Build the image again if it was pruned."""
        self._ensure(_news)
        return UpdateResult(given(_news))

    def _ensure(self, props: dict[str, Any]) -> None:
        require_host()
        packages, slurm = props.get("packages", ()), props.get("slurm", "")
        images.ensure_image(props["base"], Path(props["images"]), report, packages, slurm)

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        exists = images.has_image(Path(props["images"]), props["digest"])
        return ReadResult(id_ if exists else "", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Keep the image: stacks share a cache of images, which components.local.host.images prunes."""


class HostImage(DynamicResource, module="local", name="Image"):
    """A base image on this host."""

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(ImageProvider(), name, dict(props), opts)


REPLACES = ("root", "images", "stack", "name", "address", "prefix", "image", "os_release", "devices")
"""Inputs whose change replaces the machine."""
IN_PLACE = ("files_digest", "setup", "authorized_keys", "orderly")
"""Inputs that are changed on a running machine without a restart."""


class MachineProvider(HostProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Create and start the machine. A machine of an interrupted run under its name is replaced."""
        require_host()
        facts = machine.create(design(_with_setup(props)))
        return CreateResult(f"{props['stack']}/{props['name']}", _outputs(props, facts))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """A machine that does not run or is disconnected has a change: `update` restarts or reconnects it. A machine
        without its files is recreated."""
        replaces = changed(_olds, _news, REPLACES)
        old = design_without_files(_olds)
        dead = machine.running(old.paths) is None
        if dead and machine.facts(old) is None and not replaces:
            replaces = ["name"]
        cut = not replaces and machine.is_disconnected(old)
        return DiffResult(
            changes=bool(replaces or dead or cut or changed(_olds, {**_news, "files_digest": digest(_news)}, IN_PLACE)),
            replaces=replaces,
            # An update does not change these outputs, so a preview has them. Only a start gives another boot_id.
            stables=["instance_id", "host_key", *([] if dead else ["boot_id"])],
            # The new machine has the old one's folder, address and name on the host.
            delete_before_replace=True,
        )

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Write the machine's files. Start it if it does not run, reconnect it if it is disconnected."""
        require_host()
        return UpdateResult(_outputs(_news, machine.update(design(_with_setup(_news)))))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        facts = machine.facts(design_without_files(props))
        if facts is None:
            return ReadResult("", given(props))
        return ReadResult(id_, given(props) | asdict(facts))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        machine.delete(design_without_files(_props))


def _outputs(props: Mapping[str, Any], facts: MachineFacts) -> dict[str, Any]:
    """Return the inputs and the host's facts. A hash stands for the files, which would be most of the state."""
    kept = {name: value for name, value in given(props).items() if name != "files"}
    return kept | asdict(facts) | {"files_digest": digest(props)}


def digest(inputs: Mapping[str, Any], key: str = "files") -> str:
    """Return a hash of one of the inputs."""
    return hashlib.sha256(json.dumps(inputs[key], sort_keys=True, default=repr).encode()).hexdigest()


def _with_setup(props: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a machine with the files of the set-up, for which the state only has a hash: they take half
    a megabyte for each machine. Raises HostError: the files have changed since."""
    if not props.get("setup"):
        return dict(props)
    if props["setup"] != payload.setup_version():
        raise HostError(f"{payload.FOLDER} has changed during this run. To do: run `up` again.")
    setup = {f"{payload.SETUP}/{name}": text for name, text in payload.setup_files().items()}
    return {**props, "files": setup | props["files"]}


def _file_input(file: BootFile) -> pulumi.Input[str] | dict[str, pulumi.Input[str]]:
    """Return a file as an input: its text only if mode and owner are the defaults."""
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


def _file_inputs(files: Boot) -> dict[str, Any]:
    inputs = {path: _file_input(file) for path, file in files.items()}
    return {"files": inputs, "setup": payload.setup_version() if files else ""}


class LocalMachine(DynamicResource, module="local", name="Machine"):
    """A systemd-nspawn machine with its own systemd, network and root file system."""

    instance_id: pulumi.Output[str]
    boot_id: pulumi.Output[str]
    host_key: pulumi.Output[str]

    def __init__(self, name: str, props: Mapping[str, Any], files: Boot, opts: pulumi.ResourceOptions) -> None:
        """`props` are the fields of `Design` without its files. A machine with files has the set-up too."""
        outputs = {"instance_id": None, "boot_id": None, "host_key": None}
        props = {**props, **_file_inputs(files), **outputs}
        # The diff returns this as well, but a forced replacement (--replace) does not call it.
        deleted_first = pulumi.ResourceOptions(delete_before_replace=True)
        super().__init__(MachineProvider(), name, props, pulumi.ResourceOptions.merge(opts, deleted_first))


class CloudProvider(HostProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Start the process. A process of an interrupted run is kept."""
        return CreateResult(props["stack"], self._start(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """The running process reads another design; a process that does not run is started."""
        replaces = changed(_olds, _news, ("root", "stack"))
        names = [name for name in given(_news) if name != "machines"] + ["machines_digest"]
        differs = changed(_olds, {**_news, "machines_digest": digest(_news, "machines")}, names)
        return DiffResult(changes=bool(replaces or differs or not cloud.is_up(_paths(_olds))), replaces=replaces)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Write the design for the process, and start it if it does not run."""
        return UpdateResult(self._start(_news))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        return ReadResult(id_ if cloud.is_up(_paths(props)) else "", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """End the process and remove the machines that it created, unless they belong to another state."""
        paths, state = _paths(_props), _props.get("state")
        if not (state and owner.is_other_states(paths, state)):
            cloud.remove(paths)

    def _start(self, props: dict[str, Any]) -> dict[str, Any]:
        require_host()
        paths = _paths(props)
        owner.refuse_other_state(paths, props.get("state") or "")
        machines = {nodeset: _with_setup(row) for nodeset, row in props["machines"].items()}
        cloud.start(paths, {**given(props), "machines": machines})
        kept = {name: value for name, value in given(props).items() if name != "machines"}
        return kept | {"machines_digest": digest(props, "machines")}


class LocalCloud(DynamicResource, module="local", name="Cloud"):
    """The process on this host that creates and deletes the machines of elastic nodes, and those machines."""

    def __init__(
        self,
        name: str,
        props: Mapping[str, Any],
        machines: Mapping[str, tuple[Mapping[str, Any], Boot]],
        opts: pulumi.ResourceOptions,
    ) -> None:
        """`props` are the inputs of host_compute.py. `machines` has for each nodeset the fields of `Design`
        that all of its machines share, and their files."""
        designs = {nodeset: {**common, **_file_inputs(files)} for nodeset, (common, files) in machines.items()}
        super().__init__(CloudProvider(), name, {**props, "machines": designs}, opts)
