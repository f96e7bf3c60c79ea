"""A resource as the state file keeps it."""

import copy
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone

from engine import urn as urns
from engine.values import Props, Value


def now() -> str:
    """The time as the CLI writes it."""
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


@dataclass(eq=False)
class Resource:
    """A resource. `delete` marks one that was replaced and awaits its deletion, `pending_replacement` one that was
    deleted and awaits its new self. Keys of the file that the engine has no use for are carried along in `others`."""

    urn: str
    type: str
    custom: bool = False
    delete: bool = False
    id: str = ""
    inputs: Props = field(default_factory=dict)
    outputs: Props = field(default_factory=dict)
    parent: str = ""
    protect: bool = False
    external: bool = False
    dependencies: list[str] = field(default_factory=list)
    init_errors: list[str] = field(default_factory=list)
    provider: str = ""
    property_dependencies: dict[str, list[str]] = field(default_factory=dict)
    pending_replacement: bool = False
    additional_secret_outputs: list[str] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)
    custom_timeouts: dict[str, float] = field(default_factory=dict)
    retain_on_delete: bool = False
    deleted_with: str = ""
    replace_with: list[str] = field(default_factory=list)
    created: str = ""
    modified: str = ""
    source_position: str = ""
    ignore_changes: list[str] = field(default_factory=list)
    replace_on_changes: list[str] = field(default_factory=list)
    replacement_trigger: Value = None
    others: dict[str, Value] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return urns.name_of(self.urn)

    @property
    def is_provider(self) -> bool:
        return urns.is_provider(self.type)

    @property
    def is_default_provider(self) -> bool:
        return self.is_provider and self.name.startswith("default")

    def copy(self) -> "Resource":
        return copy.copy(self)

    def needs(self) -> set[str]:
        """The URNs of all that must be there before this one, and go after it."""
        provider = self.provider.rsplit("::", 1)[0]
        wanted = {self.parent, provider, self.deleted_with, *self.dependencies}
        wanted.update(*self.property_dependencies.values())
        return wanted - {""}

    def renamed(self, names: dict[str, str]) -> "Resource":
        """Itself with other resources' URNs replaced (an alias gave them a new one)."""
        if not names or not (self.needs() | set(self.replace_with)) & names.keys():
            return self
        new = self.copy()
        provider, _, provider_id = self.provider.rpartition("::")
        new.provider = f"{names[provider]}::{provider_id}" if provider in names else self.provider
        new.parent, new.deleted_with = (names.get(u, u) for u in (self.parent, self.deleted_with))
        new.dependencies = [names.get(u, u) for u in self.dependencies]
        new.replace_with = [names.get(u, u) for u in self.replace_with]
        deps = self.property_dependencies.items()
        new.property_dependencies = {key: [names.get(u, u) for u in wanted] for key, wanted in deps}
        return new

    def without(self, gone: set[str]) -> "Resource":
        """Itself with no reference to resources that are gone."""
        if not self.needs() & gone:
            return self
        new = self.copy()
        new.dependencies = [u for u in self.dependencies if u not in gone]
        deps = self.property_dependencies.items()
        new.property_dependencies = {key: [u for u in wanted if u not in gone] for key, wanted in deps}
        new.deleted_with = "" if self.deleted_with in gone else self.deleted_with
        return new

    def to_json(self) -> dict[str, Value]:
        """The resource as in the file, but for secrets, which are still open. Empty fields are left out, as by the
        CLI."""
        row = {json: value for name, json in _NAMES.items() if (value := getattr(self, name)) or name == "custom"}
        return {**row, **self.others}

    @classmethod
    def from_json(cls, row: dict[str, Value]) -> "Resource":
        """Raises TypeError if `urn` or `type` is missing."""
        ours = {name: row[json] for name, json in _NAMES.items() if row.get(json) is not None}
        # The CLI writes null for a property that depends on nothing.
        deps = ours.get("property_dependencies") or {}
        ours["property_dependencies"] = {key: wanted or [] for key, wanted in deps.items()}
        return cls(**ours, others={k: v for k, v in row.items() if k not in _JSON_NAMES})


_NAMES = {f.name: _camel(f.name) for f in fields(Resource) if f.name != "others"}
_JSON_NAMES = set(_NAMES.values())
