"""Listings of registered resources for golden files, and a program that registers machines on Google Cloud."""

import hashlib
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pulumi

from cluster.config import ClusterConfig
from cluster.roster import MachineSpec
from components.gcp.identity import Identity
from components.gcp.machines import GoogleMachines, MachineArgs
from components.gcp.network import GoogleNetwork
from components.slurm.keys import ClusterKeys
from tests.harness import Recording, Registered

PLAIN = re.compile(r"[\w./@*+:-]+( [\w./@*+:-]+)*")
"""Text that needs no quotes."""

IMAGE = "projects/my-project/global/images/ours"


def google_machines(
    config: ClusterConfig,
    metadata: Callable[[MachineSpec, Identity], Mapping[str, pulumi.Input[str]]],
    image: str = IMAGE,
) -> GoogleMachines:
    """Register the machines of the cluster `cloud` with their networks and accounts."""
    network, identity = GoogleNetwork("cloud-network", config), Identity("cloud-identity", config, ClusterKeys("cloud"))
    args = MachineArgs(
        config=config, network=network, identity=identity, image=image, metadata=lambda spec: metadata(spec, identity)
    )
    return GoogleMachines("cloud-machines", args)


def graph(recording: Recording, only: Callable[[Registered], bool] = lambda _: True) -> str:
    """Return a listing of the custom resources that `only` selects: type, name, parent, options, dependencies, inputs.

    Dependencies that follow from others are left out. A resource that differs from the one above only by numbers has
    one line, with the inputs that differ. A text of several lines is shown by its hash.
    """
    implied = _Dependencies(recording)
    chosen = [resource for resource in recording.resources if resource.custom and only(resource)]
    lines: list[str] = []
    above, shape = {}, ""
    for resource in sorted(
        chosen, key=lambda resource: (resource.type, _without_numbers(resource.name), _numbers(resource.name))
    ):
        options = [f"{key}={_flow(value)}" for key, value in _options(resource, implied)]
        was, shape = shape, _shape(resource, options)
        if shape == was:
            changed = {key: value for key, value in resource.inputs.items() if value != above[key]}
            lines += _wrapped(
                f"{resource.name}: as above with", [f"{key}={_flow(changed[key])}" for key in sorted(changed)]
            )
        else:
            inputs = [f"{key}={_flow(resource.inputs[key])}" for key in sorted(resource.inputs)]
            lines += [*_wrapped(f"{resource.name} ({resource.type})", options), *_wrapped("  ", inputs)]
        above = resource.inputs
    return "\n".join(lines) + "\n"


class _Dependencies:
    """The dependencies of each resource, without those that follow from others."""

    def __init__(self, recording: Recording) -> None:
        self._direct = {resource.urn: set(resource.request.dependencies) for resource in recording.resources}
        self._all = cache(self._closure)

    def __call__(self, resource: Registered) -> list[str]:
        direct = self._direct[resource.urn]
        implied = {urn for other in direct for urn in self._all(other)}
        return sorted(urn.rpartition("::")[2] for urn in direct - implied)

    def _closure(self, urn: str) -> frozenset[str]:
        direct = self._direct.get(urn, set())
        return frozenset(direct.union(*(self._all(other) for other in direct)))


def _options(resource: Registered, dependencies: _Dependencies) -> Iterator[tuple[str, Any]]:
    yield "parent", resource.parent.rpartition("::")[2]
    if resource.request.protect:
        yield "protect", True
    if resource.request.ignoreChanges:
        yield "ignore_changes", sorted(resource.request.ignoreChanges)
    if after := dependencies(resource):
        yield "after", after


def _flow(value: Any) -> str:
    """Return a value on one line, in YAML's flow style."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    if value.count("\n") > 1:
        return f"<{value.count(chr(10))} lines, sha256 {hashlib.sha256(value.encode()).hexdigest()[:12]}>"
    return (
        value if PLAIN.fullmatch(value) and not value.isdigit() else f"'{value}'" if '"' in value else json.dumps(value)
    )


def _wrapped(first: str, words: list[str]) -> list[str]:
    text = "  ".join([first, *words])
    return textwrap.wrap(text, 118, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)


def _shape(resource: Registered, options: list[str]) -> str:
    """Return a text that is equal for resources that differ only in numbers."""
    own = _numbers(resource.name)
    relative = re.sub(
        r"\d+", lambda found: f"#{own.index(int(found[0]))}" if int(found[0]) in own else found[0], str(options)
    )
    inputs = _without_numbers(json.dumps(resource.inputs, sort_keys=True))
    return f"{resource.type} {_without_numbers(resource.name)} {relative} {inputs}"


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "#", text)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]
