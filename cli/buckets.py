"""The records of state buckets on this machine.

A record says where the bucket is, and has its access key, whose secret is shown only once. It is a file in the folder
backends of `HPC_HOME`, readable by its owner only.
"""

import json
from dataclasses import asdict
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from cli.errors import CliError
from cli.stack import state_dir
from cluster.platforms import registry
from components.state_bucket import Backend, Key, Record


def folder() -> Path:
    return state_dir.directory() / "backends"


def save(record: Record) -> None:
    """Write a record atomically, mode 0600. Raises CliError: it can't be written."""
    text = json.dumps(asdict(record), indent=2, default=_time) + "\n"
    path = _path(record.bucket)
    try:
        state_dir.write_file(path, text)
    except OSError as error:
        raise CliError(f"{path}: can't be written: {error.strerror}.") from None


def load(bucket: str) -> Record | None:
    """The record of a bucket. Raises CliError: it can't be read."""
    path = _path(bucket)
    return _read(path) if path.exists() else None


def load_all() -> list[Record]:
    """Return all of them, by the name of their bucket. Raises CliError: one can't be read."""
    return [_read(path) for path in sorted(folder().glob("*.json"))]


def _path(bucket: str) -> Path:
    return folder() / f"{bucket}.json"


def _time(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(type(value).__name__)


def _read(path: Path) -> Record:
    try:
        row: Any = json.loads(path.read_text(encoding="utf-8"))
        key = row.pop("key")
        if key:
            key |= {name: datetime.fromisoformat(key[name]) for name in ("created", "expires")}
            key = Key(**key)
        return Record(key=key, **row)
    except OSError as error:
        raise CliError(f"{path}: can't be read: {error.strerror}.") from None
    except (ValueError, TypeError, AttributeError, KeyError):
        raise CliError(
            f"{path}: not a record of a state bucket. Delete it and run `./hpc backend init` again."
        ) from None


def module(kind: str) -> ModuleType:
    """The module of a kind of bucket, with `record(config, ...)` and BACKEND, its class. KeyError: there is none."""
    return import_module(_modules()[kind])


def backend(record: Record) -> Backend:
    """The bucket of a record. Raises CliError: this version does not know its kind."""
    if record.kind not in (known := _modules()):
        raise CliError(f"bucket {record.bucket}: kind {record.kind!r} is not known here; allowed: {', '.join(known)}.")
    return module(record.kind).BACKEND(record, save, folder())


def _modules() -> dict[str, str]:
    return dict(platform.state_bucket for platform in registry.all_platforms() if platform.state_bucket)
