"""What differs between two sets of properties, and whether that asks for a replacement."""

from dataclasses import dataclass, replace
from typing import Literal

from engine.core import property_paths
from engine.events import Change
from engine.values import SIG, Props, Value, is_secret, plain, same, show

_ABSENT = object()


@dataclass(frozen=True)
class Diff:
    """A provider's answer. `changes` None leaves it to the engine: any difference in the inputs is an update.
    `replaces` are properties that force a replacement; `delete_first` puts the deletion before the creation."""

    changes: bool | None = None
    replaces: tuple[str, ...] = ()
    delete_first: bool = False


def differences(old: Props, new: Props) -> tuple[Change, ...]:
    """All differing properties, as deep as both sides are objects or lists; what is secret is not shown."""
    found: list[Change] = []
    for key in sorted({*old, *new}):
        # Providers bridged from Terraform keep notes of their own in the inputs.
        if key not in ("__defaults", "__meta"):
            _walk((key,), old.get(key, _ABSENT), new.get(key, _ABSENT), found, hidden=False)
    return tuple(found)


def _walk(path: property_paths.Path, old: Value, new: Value, found: list[Change], *, hidden: bool) -> None:
    hidden = hidden or is_secret(old) or is_secret(new)
    if old is not _ABSENT and new is not _ABSENT:
        if same(old, new):
            return
        a, b = plain(old), plain(new)
        if isinstance(a, dict) and isinstance(b, dict) and SIG not in a and SIG not in b:
            a, b = (v["value"] if is_secret(v) else v for v in (old, new))
            for key in sorted({*a, *b}):
                _walk((*path, key), a.get(key, _ABSENT), b.get(key, _ABSENT), found, hidden=hidden)
            return
        if isinstance(a, list) and isinstance(b, list):
            a, b = (v["value"] if is_secret(v) else v for v in (old, new))
            for i in range(max(len(a), len(b))):
                before, after = (v[i] if i < len(v) else _ABSENT for v in (a, b))
                _walk((*path, i), before, after, found, hidden=hidden)
            return
    kind: Literal["add", "delete", "update"] = "add" if old is _ABSENT else "delete" if new is _ABSENT else "update"
    before, after = (None if v is _ABSENT else "[secret]" if hidden else show(v) for v in (old, new))
    found.append(Change(property_paths.render(path), kind, before, after))


def marked(changes: tuple[Change, ...], replaces: tuple[str, ...], patterns: list[str]) -> tuple[Change, ...]:
    """The changes, each with whether it forces a replacement: by the provider's answer or by replaceOnChanges."""
    wanted = [property_paths.parse(text) for text in (*replaces, *patterns)]

    def forces(change: Change) -> bool:
        path = property_paths.parse(change.path)
        return any(property_paths.contains(pattern, path) for pattern in wanted)

    return tuple(replace(change, replaces=forces(change)) for change in changes)
