"""`customize`: change inputs of Google Cloud's resources before they are registered.

It is a transformation of the component that all of them are below. The SDK runs it in the program, as a resource is
constructed; Pulumi's newer transforms run in the engine's callbacks, which mocks and the embedded engine do not have.
"""

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pulumi

from cluster.config.cluster import ClusterConfig
from cluster.findings import ROOT, ConfigError, listing, nearest
from components.gcp.resource_types import Inputs, inputs_of


class Customizer:
    """All of a stack's `customize`, and what each entry of it has matched."""

    def __init__(self, config: ClusterConfig) -> None:
        """Raises pulumi.RunError with every input that the provider's classes do not have, or not of this type."""
        self._entries = config.customize
        self._inputs: dict[str, Inputs] = {}
        self._matched = [0] * len(self._entries)
        self._names: dict[str, list[str]] = {}
        findings = []
        for index, one in enumerate(self._entries):
            inputs = inputs_of(one.type)
            if isinstance(inputs, Inputs):
                self._inputs[one.type] = inputs
                findings += inputs.check(one.set, ("customize", index, "set"))
            else:
                findings.append(replace(inputs, at=("customize", index, "type")))
        if findings:
            raise pulumi.RunError(str(ConfigError(findings)))

    def options(self) -> pulumi.ResourceOptions:
        """For the component that all resources are below; none without entries."""
        return pulumi.ResourceOptions(transformations=[self._transform] if self._entries else None)

    def report(self) -> None:
        """Warn of entries that no resource matched, once all are constructed."""
        for index, one in enumerate(self._entries):
            if self._matched[index]:
                continue
            names = self._names.get(one.type)
            types = sorted(self._names)
            todo = (
                f"names of that type: {listing(names)}"
                if names
                else f"the stack has no such type; nearest: {nearest(one.type, types) or listing(types)}"
            )
            pulumi.log.warn(f"{ROOT}.customize[{index}] matches no resource ({one.type}, {one.name}): {todo}")

    def _transform(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if args.type_.startswith("gcp:"):
            self._names.setdefault(args.type_, []).append(args.name)
        props: dict[str, Any] = dict(args.props)
        for index, one in enumerate(self._entries):
            if one.type == args.type_ and fnmatchcase(args.name, one.name):
                self._matched[index] += 1
                props = self._inputs[one.type].merge(props, one.set)
        return pulumi.ResourceTransformationResult(props=props, opts=args.opts) if props != args.props else None
