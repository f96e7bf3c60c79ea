"""Properties as the SDK sends and takes them: protobuf Structs."""

import hashlib
from pathlib import Path

from google.protobuf.struct_pb2 import Struct

from engine.values import ARCHIVE, ASSET, OUTPUT, UNKNOWN, Props, Value, kind_of, secret


def from_struct(struct: Value) -> Props:
    """A protobuf Struct as a dict. Whole numbers become ints again, output values what they hold, and assets get
    the hash by which they are compared."""
    return {k: from_value(v) for k, v in struct.fields.items()}


def to_struct(props: Props) -> Value:
    """A dict as a protobuf Struct."""
    struct = Struct()
    struct.update(props)
    return struct


def from_value(value: Value) -> Value:
    """A protobuf Value as plain data."""
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
