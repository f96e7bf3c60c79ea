"""Stacks with the resources that their programs registered, for the contract tests."""

import importlib
import itertools
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
"""One stack of each platform: a preview differs from a run only in tunnels and in refused edits."""
COMMAND = "command:remote:Command"
MACHINES = {
    "pulumi-python:dynamic/local:Machine",
    "gcp:compute/instance:Instance",
    "gcp:compute/instanceFromTemplate:InstanceFromTemplate",
    FLEX,
}
"""Types of resources that stand for a machine."""


@dataclass(frozen=True)
class StackRun:
    """A stack, and the resources that its program registered."""

    config: ClusterConfig
    recording: Recording
    known: bool

    def commands(self) -> list[Registered]:
        """Return the commands that act at their creation. A `leave` acts only at its deletion."""
        return [resource for resource in self.recording.all(COMMAND) if "create" in resource.inputs]

    def leaves(self) -> list[Registered]:
        return [resource for resource in self.recording.all(COMMAND) if "create" not in resource.inputs]

    def command(self, name: str) -> Registered:
        return next(command for command in self.commands() if command.name == name)

    def machine(self, name: str) -> Registered:
        """Return the resource of a machine."""
        return next(
            resource
            for resource in self.recording.resources
            if resource.type in MACHINES and resource.name.endswith(name)
        )

    def machine_of(self, command: Registered) -> Registered:
        """Return the machine that a command is for, which triggers the command."""
        by_urn = {resource.urn: resource for resource in self.recording.resources if resource.type in MACHINES}
        urns = command.request.propertyDependencies["triggers"].urns
        (machine,) = [by_urn[urn] for urn in urns if urn in by_urn]
        return machine


def modes(stack: str) -> list[str]:
    """Return the modes in which a stack is tested."""
    return [mode for mode in MODES if mode != "previewed" or stack in PREVIEWED]


@cache
def record(stack: str, mode: str) -> StackRun:
    return StackRun(stacks.config(stack), deploy(stacks.load(stack), **MODES[mode]), known=mode != "unknown")


def components_of(package: str) -> set[type]:
    """Return all component classes of a package."""
    top = importlib.import_module(package)
    modules = [
        importlib.import_module(walk_package.name)
        for walk_package in pkgutil.walk_packages(top.__path__, f"{package}.")
    ]
    kinds = [var for module in modules for var in vars(module).values() if isinstance(var, type)]
    return {kind for kind in kinds if issubclass(kind, pulumi.ComponentResource) and not kind.__subclasses__()}


def unnamed(types: set[str], classes: set[type]) -> tuple[set[str], set[type]]:
    """Return the types without a class that has their name, and the classes without a type."""
    pairs = {
        (own_type, own_class)
        for own_type, own_class in itertools.product(types, classes)
        if own_class.__module__.startswith(f"components.{own_type.split(':')[1]}.")
        and own_type.split(":")[2].lower() in own_class.__name__.lower()
    }
    return types - {own_type for own_type, _ in pairs}, classes - {own_class for _, own_class in pairs}


def texts(value: object) -> list[str]:
    """Return all texts in a value, with its keys."""
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in (key, *texts(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []
