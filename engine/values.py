"""Property values, in the form in which the SDK sends them: plain JSON, where secrets, assets, archives and references
to resources are objects with a signature key, and unknowns are one reserved string.

The constants are those of Pulumi's sdk/go/common/resource/properties.go, asset.go and archive.go.
"""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from engine import events

SIG = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a signature
ASSET = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE = "0def7320c3a5731c473e5ecbe6d01bc7"
OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

# JSON of any shape: with a closer type, every line would need a cast.
Value: TypeAlias = Any
Props: TypeAlias = dict[str, Value]


def kind_of(value: Value) -> str:
    """Return the signature of a value, "" for a plain one."""
    return value.get(SIG, "") if isinstance(value, dict) else ""


def is_secret(value: Value) -> bool:
    return kind_of(value) == SECRET


def secret(value: Value) -> Value:
    return value if is_secret(value) else {SIG: SECRET, "value": value}


def with_secrets(value: Value, change: Callable[[Value], Value]) -> Value:
    """Return a copy in which each outermost secret is replaced with what `change` returns for it."""
    if is_secret(value):
        return change(value)
    if isinstance(value, dict):
        return {k: with_secrets(v, change) for k, v in value.items()}
    return [with_secrets(v, change) for v in value] if isinstance(value, list) else value


def plain(value: Value) -> Value:
    """Return a copy without the marks of secrets, at any depth."""
    return with_secrets(value, lambda hidden: plain(hidden["value"]))


def _parts(value: Value) -> Iterable[Value]:
    """Return the values of an object or a list; none of a scalar."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def contains_secret(value: Value) -> bool:
    return is_secret(value) or any(map(contains_secret, _parts(value)))


def contains_unknown(value: Value) -> bool:
    return bool(value == UNKNOWN) or any(map(contains_unknown, _parts(value)))


def without_unknowns(props: Props) -> Props:
    """Return the properties without those that contain an unknown."""
    return {k: v for k, v in props.items() if not contains_unknown(v)}


def same(a: Value, b: Value) -> bool:
    """Return whether two values are equal. Assets are compared by content, secrets by their plain values."""
    if is_secret(a) or is_secret(b):
        return same(plain(a), plain(b))
    if isinstance(a, dict) and isinstance(b, dict):
        if kind_of(a) in (ASSET, ARCHIVE) and kind_of(a) == kind_of(b) and "hash" in a and "hash" in b:
            return bool(a["hash"] == b["hash"])
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def keep_secrets(outs: Props, ins: Props) -> Props:
    """Mark what is secret in `ins` as secret in `outs` too, since providers get and return plain values.

    A list that was returned as it was given has the same secret elements. Of any other list with a secret element, all
    is secret, since the element may have moved."""
    result = dict(outs)
    for key, value in ins.items():
        output = result.get(key)
        if output is None or is_secret(output) or not contains_secret(value):
            continue
        inner = value["value"] if is_secret(value) else value
        if isinstance(output, list) and same(output, inner):
            marked = inner
        elif isinstance(output, dict) and isinstance(inner, dict):
            marked = keep_secrets(output, inner)
        else:
            marked = secret(output)
        result[key] = secret(marked) if is_secret(value) else marked
    return result


def mask(text: str, value: Value) -> str:
    """Replace the secrets of a value in a text. Those under six characters stay, since they may stand anywhere."""
    if is_secret(value):
        for word in _secret_texts(value["value"]):
            text = text.replace(word, events.SECRET)
        return text
    for part in _parts(value):
        text = mask(text, part)
    return text


def _secret_texts(value: Value) -> list[str]:
    if isinstance(value, str):
        # A message may have single lines of it.
        return [word for word in (value, *value.splitlines()) if len(word) >= 6]
    return [word for part in _parts(value) for word in _secret_texts(part)]


def show(value: Value) -> Value:
    """Return the value as it may be shown to a person."""
    if is_secret(value):
        return events.SECRET
    if kind_of(value) in (ASSET, ARCHIVE):
        return f"{'file' if kind_of(value) == ASSET else 'archive'} {value.get('path') or value.get('hash', '')[:12]}"
    if isinstance(value, dict):
        return {k: show(v) for k, v in value.items()}
    if isinstance(value, list):
        return [show(v) for v in value]
    return events.UNKNOWN if isinstance(value, str) and UNKNOWN in value else value


def from_struct(struct: Value) -> Props:
    """Convert a protobuf Struct to a dict. Whole numbers become ints, output values become the values in them, and
    assets get the hash by which they are compared."""
    return {k: from_value(v) for k, v in struct.fields.items()}


def to_struct(props: Props) -> Value:
    from google.protobuf.struct_pb2 import Struct  # noqa: PLC0415 - commands that only read a state don't need it

    struct = Struct()
    struct.update(props)
    return struct


def from_value(value: Value) -> Value:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _unwrap(from_struct(value.struct_value))
    if kind == "list_value":
        return [from_value(v) for v in value.list_value.values]
    if kind == "number_value":
        return int(value.number_value) if value.number_value.is_integer() else value.number_value
    return None if kind in (None, "null_value") else getattr(value, kind)


def _unwrap(value: Props) -> Value:
    kind = kind_of(value)
    if kind == OUTPUT:
        inner = value.get("value", UNKNOWN)
        return secret(inner) if value.get("secret") else inner
    if kind == ASSET and "hash" not in value:
        data = value["text"].encode() if "text" in value else _read(value)
        return {**value, "hash": hashlib.sha256(data).hexdigest()}
    if kind == ARCHIVE and "hash" not in value:
        return {**value, "hash": hashlib.sha256(_archive_digest(value)).hexdigest()}
    return value


def _read(asset: Props) -> bytes:
    # A remote asset is identified by its address, since the engine never fetches anything.
    return Path(asset["path"]).read_bytes() if "path" in asset else str(asset.get("uri")).encode()


def _archive_digest(archive: Props) -> bytes:
    lines: list[str] = []
    if "assets" in archive:
        lines = [f"{name} {part.get('hash')}" for name, part in sorted(archive["assets"].items())]
    elif "path" in archive and Path(archive["path"]).is_dir():
        root = Path(archive["path"])
        files = sorted(p for p in root.rglob("*") if p.is_file())
        lines = [f"{p.relative_to(root)} {hashlib.sha256(p.read_bytes()).hexdigest()}" for p in files]
    else:
        return _read(archive)
    return "\n".join(lines).encode()
