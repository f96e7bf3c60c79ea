"""A resource as the state file keeps it."""

from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone

from engine import urn as urns
from engine.values import Props, Value


def now() -> str:
    """Return the current time as the CLI writes it."""
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


@dataclass(eq=False)
class Resource:
    """A resource. `delete` marks one that was replaced and is to be deleted, `pending_replacement` one that was deleted
    and is to be created again, `taint` one that the next run replaces (`pulumi state taint`). Keys of the file that the
    engine does not use are kept in `others`."""

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
    taint: bool = False
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

    def needs(self) -> set[str]:
        """Return the URNs of the resources that must be created before this one and deleted after it."""
        provider = self.provider.rsplit("::", 1)[0]
        needed = {self.parent, provider, self.deleted_with, *self.dependencies}
        needed.update(*self.property_dependencies.values())
        return needed - {""}

    def renamed(self, names: dict[str, str]) -> "Resource":
        """Return the resource with references to renamed resources replaced; `names` has new URNs by old ones."""
        if not names or not (self.needs() | set(self.replace_with)) & names.keys():
            return self

        def new(urns_: list[str]) -> list[str]:
            return [names.get(u, u) for u in urns_]

        provider, _, provider_id = self.provider.rpartition("::")
        return replace(
            self,
            provider=f"{names[provider]}::{provider_id}" if provider in names else self.provider,
            parent=names.get(self.parent, self.parent),
            deleted_with=names.get(self.deleted_with, self.deleted_with),
            dependencies=new(self.dependencies),
            replace_with=new(self.replace_with),
            property_dependencies={key: new(needed) for key, needed in self.property_dependencies.items()},
        )

    def without(self, missing: set[str]) -> "Resource":
        """Return the resource without references to the URNs in `missing`."""
        if not self.needs() & missing:
            return self

        def existing(urns_: list[str]) -> list[str]:
            return [u for u in urns_ if u not in missing]

        return replace(
            self,
            dependencies=existing(self.dependencies),
            property_dependencies={key: existing(needed) for key, needed in self.property_dependencies.items()},
            deleted_with="" if self.deleted_with in missing else self.deleted_with,
        )

    def to_json(self) -> dict[str, Value]:
        """Return the resource as in the file, with secrets that are not encrypted. Empty fields are left out, as by
        the CLI."""
        row = {json: value for name, json in _NAMES.items() if (value := getattr(self, name)) or name == "custom"}
        return {**row, **self.others}

    @classmethod
    def from_json(cls, row: dict[str, Value]) -> "Resource":
        """Read a resource of the file. Raises TypeError if `urn` or `type` is missing."""
        values = {name: row[json] for name, json in _NAMES.items() if row.get(json) is not None}
        # The CLI writes null for a property without dependencies.
        deps = values.get("property_dependencies") or {}
        values["property_dependencies"] = {key: needed or [] for key, needed in deps.items()}
        return cls(**values, others={k: v for k, v in row.items() if k not in _JSON_NAMES})


_NAMES = {f.name: _camel(f.name) for f in fields(Resource) if f.name != "others"}
_JSON_NAMES = set(_NAMES.values())
