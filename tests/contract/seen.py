"""A stack, and what its program registered: what the contract tests look at."""

import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache
from typing import Any

import pulumi

from cluster.config import ClusterConfig
from tests.cluster import stacks
from tests.harness import FLEX, Recording, Registered, deploy

MODES: dict[str, dict[str, Any]] = {"made": {}, "previewed": {"preview": True}, "unknown": {"unknown": True}}
PREVIEWED = {"dev", "a3mega", "nebius"}
"""One stack of each platform: a preview differs from a run in the tunnels of access and in refused edits alone."""
COMMAND = "command:remote:Command"
MACHINES = {
    "pulumi-python:dynamic/local:Machine",
    "gcp:compute/instance:Instance",
    "gcp:compute/instanceFromTemplate:InstanceFromTemplate",
    "pulumi-python:dynamic/gcp:Controller",
    FLEX,
}
"""Types of resources that stand for a machine."""


@dataclass(frozen=True)
class Seen:
    """A stack, and what its program registered."""

    config: ClusterConfig
    recording: Recording
    known: bool

    def commands(self) -> list[Registered]:
        """Return those that do something when they are made; a `leave` does something only when it goes."""
        return [one for one in self.recording.all(COMMAND) if "create" in one.inputs]

    def leaves(self) -> list[Registered]:
        return [one for one in self.recording.all(COMMAND) if "create" not in one.inputs]

    def command(self, name: str) -> Registered:
        return next(one for one in self.commands() if one.name == name)

    def machine(self, name: str) -> Registered:
        """Return what stands for a machine."""
        return next(one for one in self.recording.resources if one.type in MACHINES and one.name.endswith(name))

    def machine_of(self, command: Registered) -> Registered:
        """The machine that a command is for: made anew, it is set up again."""
        by_urn = {one.urn: one for one in self.recording.resources if one.type in MACHINES}
        urns = command.request.propertyDependencies["triggers"].urns
        (machine,) = [by_urn[urn] for urn in urns if urn in by_urn]
        return machine


def modes(stack: str) -> list[str]:
    """The modes that a stack is looked at in."""
    return [mode for mode in MODES if mode != "previewed" or stack in PREVIEWED]


@cache
def record(stack: str, mode: str) -> Seen:
    return Seen(stacks.config(stack), deploy(stacks.load(stack), **MODES[mode]), known=mode != "unknown")


def components_of(package: str) -> set[type]:
    """Every component class of a package, wherever it is defined."""
    top = importlib.import_module(package)
    modules = [importlib.import_module(one.name) for one in pkgutil.walk_packages(top.__path__, f"{package}.")]
    kinds = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    return {one for one in kinds if issubclass(one, pulumi.ComponentResource) and not one.__subclasses__()}


def texts(value: object) -> list[str]:
    """Every text in a value, keys included."""
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in (key, *texts(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []
