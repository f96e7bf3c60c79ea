"""What the program wants a resource to be: a registration, as the SDK sends it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

from engine import urn as urns
from engine.errors import EngineError
from engine.state.resource import Resource
from engine.values import Value
from engine.wire import from_struct, from_value


@dataclass
class Goal:
    """The resource as it shall be (without id and outputs), and what is no part of its state."""

    new: Resource
    name: str
    version: str = ""
    aliases: list[Value] = field(default_factory=list)
    delete_first: bool | None = None

    @classmethod
    def of_registration(cls, request: Value, stack: str, project: str, root: Path) -> Goal:
        """From a RegisterResourceRequest. Raises EngineError for what is not supported."""
        where = f"{request.type} {request.name}"
        for wrong, what in (
            (request.importId, "the option import"), (request.remote, "a remote component"),
            (request.state_migrations, "the option state_migrations"), (request.packageRef, "a parameterized provider"),
        ):  # fmt: skip
            if wrong:
                raise EngineError(f"{where}: the embedded engine does not support {what}; use the Pulumi CLI")
        parent = request.parent
        if not parent and request.type != urns.STACK_TYPE and not urns.is_provider(request.type):
            parent = urns.root(stack, project)
        timeouts = request.customTimeouts
        deps = {key: sorted(value.urns) for key, value in request.propertyDependencies.items() if value.urns}
        trigger = request.replacement_trigger
        new = Resource(
            urn=urns.make(stack, project, parent, request.type, request.name),
            type=request.type,
            custom=request.custom,
            inputs=from_struct(request.object),
            parent=parent,
            protect=request.protect,
            dependencies=sorted(request.dependencies),
            provider=request.provider,
            property_dependencies=deps,
            additional_secret_outputs=list(request.additionalSecretOutputs),
            custom_timeouts={
                name: _seconds(text, where)
                for name in ("create", "update", "delete")
                if (text := getattr(timeouts, name))
            },
            retain_on_delete=request.retainOnDelete,
            deleted_with=request.deletedWith,
            replace_with=list(request.replace_with),
            source_position=_position(request.sourcePosition, root),
            ignore_changes=list(request.ignoreChanges),
            replace_on_changes=list(request.replaceOnChanges),
            replacement_trigger=from_value(trigger) if request.HasField("replacement_trigger") else None,
        )
        first = request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None
        return cls(new, request.name, request.version, list(request.aliases), first)

    @classmethod
    def of_read(cls, request: Value, stack: str, project: str) -> Goal:
        """From a ReadResourceRequest."""
        parent = request.parent or urns.root(stack, project)
        new = Resource(
            urn=urns.make(stack, project, parent, request.type, request.name),
            type=request.type,
            custom=True,
            external=True,
            id=request.id,
            inputs=from_struct(request.properties),
            parent=parent,
            dependencies=sorted(request.dependencies),
            provider=request.provider,
            additional_secret_outputs=list(request.additionalSecretOutputs),
        )
        return cls(new, request.name, request.version)

    def old_urns(self, stack: str, project: str, parent_was: str) -> list[str]:
        """The URNs that its aliases name, and those that it had if its parent had another (`parent_was`)."""
        new = self.new
        found = [self._collapse(alias, stack, project) for alias in self.aliases]
        if parent_was:
            was = [(new.type, self.name), *((urns.type_of(u), urns.name_of(u)) for u in found)]
            before, after = urns.name_of(new.parent), urns.name_of(parent_was)
            for type_, name in was:
                # Children are named after their parents, so a parent's alias renames them too.
                renamed = after + name[len(before) :] if name.startswith(before) else name
                found += [urns.make(stack, project, parent_was, type_, name) for name in dict.fromkeys((renamed, name))]
        return list(dict.fromkeys(found))

    def _collapse(self, alias: Value, stack: str, project: str) -> str:
        if alias.WhichOneof("alias") == "urn":
            return alias.urn
        spec = alias.spec
        parent = "" if spec.noParent else spec.parentUrn or self.new.parent
        names = spec.stack or stack, spec.project or project
        return urns.make(*names, parent, spec.type or self.new.type, spec.name or self.name)


def _position(position: Value, root: Path) -> str:
    """`project:///FILE#LINE`, as the CLI writes it; nothing for files outside the project."""
    path = Path(urlparse(position.uri).path)
    if not position.uri or not path.is_relative_to(root):
        return ""
    return f"project:///{path.relative_to(root)}#{position.line}"


def _seconds(text: str, where: str) -> float:
    """A duration as Go writes it: 1h30m, 90s, 500ms."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    parts = re.findall(r"([0-9.]+)(ms|us|ns|h|m|s)", text)
    if "".join(number + unit for number, unit in parts) != text:
        raise EngineError(f"{where}: custom_timeouts: {text!r} is no duration; write 90s, 5m or 1h30m")
    return sum(float(number) * units[unit] for number, unit in parts)
