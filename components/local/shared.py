"""Folders that all machines of a stack share: they stand for its parallel file systems."""

from pathlib import Path
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import DynamicResource, changed, given
from components.local.host import claims, owner
from components.local.host.networks import network
from components.local.host.paths import StackPaths


class SharedFolderProvider(ResourceProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Make the folder; one that an interrupted run made is taken over with what is in it."""
        return CreateResult(f"{props['stack']}/{props['folder']}", self._ensure(props, None))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Its mode and group are changed in place; another name is another folder."""
        replaces = changed(_olds, _news, ("root", "stack", "folder"))
        changes = changed(_olds, _news, ("mode", "gid"))
        paths, folder = _paths(_olds), _olds["folder"]
        gone = not ((paths.shared / folder).is_dir() and claims.holds(paths, _claim(folder), _olds.get(claims.KEY)))
        return DiffResult(changes=bool(replaces or changes or gone), replaces=replaces)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Set mode and group; what is in the folder stays."""
        return UpdateResult(self._ensure(_news, _olds.get(claims.KEY)))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        there = (_paths(props).shared / props["folder"]).is_dir()
        return ReadResult(id_ if there else "", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Remove the folder and all that is in it; not that of machines that another state has made since, and not one
        that took its place, which has the same files."""
        paths, folder, state = _paths(_props), _props["folder"], _props.get("state")
        if state and owner.is_other_states(paths, state):
            return
        if claims.holds(paths, _claim(folder), _props.get(claims.KEY)):
            network.remove_shared(paths, folder)
            claims.remove(paths, _claim(folder))

    def _ensure(self, props: dict[str, Any], claim: str | None) -> dict[str, Any]:
        paths, folder = _paths(props), props["folder"]
        owner.refuse_other_state(paths, props.get("state") or "")
        network.ensure_shared(paths, folder, mode=int(props["mode"], 8), gid=int(props["gid"]))
        return {**given(props), claims.KEY: claims.make(paths, _claim(folder), claim)}


def _claim(folder: str) -> str:
    return f"shared-{folder}"


def _paths(props: dict[str, Any]) -> StackPaths:
    return StackPaths(Path(props["root"]), props["stack"])


class SharedFolder(DynamicResource, module="local", name="SharedFolder"):
    """A folder that every machine of the stack has at /srv/shared/<folder>."""

    def __init__(
        self, name: str, *, root: str, stack: str, folder: str, mode: int, gid: int,
        state: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:  # fmt: skip
        # Pulumi's numbers are floats; a mode is better kept as it is written.
        props = {"root": root, "stack": stack, "folder": folder, "mode": f"{mode:04o}", "gid": gid, "state": state}
        super().__init__(SharedFolderProvider(), name, props, opts)
