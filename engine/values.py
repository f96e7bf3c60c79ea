"""Property values. They are kept in the form in which they travel between SDK and engine: plain JSON, where secrets,
assets, archives and references to resources are objects with a signature key, and unknowns are one magic string.
(The constants are those of Pulumi's sdk/go/common/resource/properties.go, asset.go and archive.go.)
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from engine import events

SIG = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a signature
ASSET = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE = "0def7320c3a5731c473e5ecbe6d01bc7"
OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

# JSON as it comes: typing it any closer would have every line cast.
Value: TypeAlias = Any
Props: TypeAlias = dict[str, Value]


def kind_of(value: Value) -> str:
    """The signature of a value, "" for plain ones."""
    return value.get(SIG, "") if isinstance(value, dict) else ""


def is_secret(value: Value) -> bool:
    return kind_of(value) == SECRET


def secret(value: Value) -> Value:
    return value if is_secret(value) else {SIG: SECRET, "value": value}


def with_secrets(value: Value, change: Callable[[Value], Value]) -> Value:
    """A copy in which each outermost secret is what `change` makes of it."""
    if is_secret(value):
        return change(value)
    if isinstance(value, dict):
        return {k: with_secrets(v, change) for k, v in value.items()}
    return [with_secrets(v, change) for v in value] if isinstance(value, list) else value


def plain(value: Value) -> Value:
    """A copy without the secret marks, however deep they sit."""
    return with_secrets(value, lambda hidden: plain(hidden["value"]))


def contains_secret(value: Value) -> bool:
    if isinstance(value, dict):
        return is_secret(value) or any(map(contains_secret, value.values()))
    return isinstance(value, list) and any(map(contains_secret, value))


def contains_unknown(value: Value) -> bool:
    if isinstance(value, (dict, list)):
        return any(map(contains_unknown, value.values() if isinstance(value, dict) else value))
    return bool(value == UNKNOWN)


def known(props: Props) -> Props:
    """Only those properties that are wholly known."""
    return {k: v for k, v in props.items() if not contains_unknown(v)}


def same(a: Value, b: Value) -> bool:
    """Return whether two values mean the same. Assets are compared by content, and a secret by what it holds."""
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
    """Mark what was secret in `ins` as secret in `outs` too: providers are handed plain values."""
    result = dict(outs)
    for key, given in ins.items():
        got = result.get(key)
        if got is None or is_secret(got) or not contains_secret(given):
            continue
        inner = given["value"] if is_secret(given) else given
        kept = keep_secrets(got, inner) if isinstance(got, dict) and isinstance(inner, dict) else secret(got)
        result[key] = secret(kept) if is_secret(given) else kept
    return result


def mask(text: str, value: Value) -> str:
    """The text without the secrets in a value. Those under six characters stay: they turn up anywhere."""
    if is_secret(value):
        for word in _secret_texts(value["value"]):
            text = text.replace(word, events.SECRET)
        return text
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        text = mask(text, part)
    return text


def _secret_texts(value: Value) -> list[str]:
    if isinstance(value, str):
        # Output comes by lines.
        return [word for word in (value, *value.splitlines()) if len(word) >= 6]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [word for part in parts for word in _secret_texts(part)]


def show(value: Value) -> Value:
    """The value as a person may see it."""
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
    """A protobuf Struct as a dict. Whole numbers become ints again, output values what they hold, and assets get
    the hash by which they are compared."""
    return {k: from_value(v) for k, v in struct.fields.items()}


def to_struct(props: Props) -> Value:
    from google.protobuf.struct_pb2 import Struct  # noqa: PLC0415 - who only reads a state does without protobuf

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
    # A remote asset is identified by its address: the engine never fetches anything.
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
