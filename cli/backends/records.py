"""What is kept on this machine of each state bucket: where it is, and the access key, whose secret is shown only once.

One file for each bucket in the folder backends of `HPC_HOME`, readable by its owner only.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cli.errors import CliError
from cli.stack import state_dir

_RENEW_BEFORE = 10
"""A key is renewed in the last tenth of its time, so that it does not expire during a run."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """An access key of S3-compatible storage."""

    name: str
    """Chosen before it is created: a run that was killed in between finds it again by this name."""
    created: datetime
    expires: datetime
    id: str = ""
    """The cloud's id of it; empty until it was created."""
    access_key_id: str = ""
    secret: str = field(default="", repr=False)

    @property
    def complete(self) -> bool:
        """Whether it was created and its secret is known."""
        return bool(self.id and self.access_key_id and self.secret)

    def usable(self, now: datetime) -> bool:
        """Whether it is complete, and not in the last tenth of its time."""
        return self.complete and now < self.expires - (self.expires - self.created) / _RENEW_BEFORE


@dataclass(frozen=True, kw_only=True)
class Record:
    """One bucket."""

    kind: str
    bucket: str
    project: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """More of what its kind needs."""
    key: Key | None = None

    def with_key(self, key: Key | None) -> "Record":
        """The same with another key."""
        return replace(self, key=key)

    def with_settings(self, **settings: str) -> "Record":
        """The same with some settings replaced."""
        return replace(self, settings={**self.settings, **settings})


def folder() -> Path:
    """Where the records are."""
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
    """All of them, by the name of their bucket. Raises CliError: one can't be read."""
    return [_read(path) for path in sorted(folder().glob("*.json"))]


def now() -> datetime:
    """The time, in seconds: records and APIs have no more."""
    return datetime.now(timezone.utc).replace(microsecond=0)


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
            times = {name: datetime.fromisoformat(key.pop(name)) for name in ("created", "expires")}
            key = Key(**times, **key)
        return Record(key=key, **row)
    except OSError as error:
        raise CliError(f"{path}: can't be read: {error.strerror}.") from None
    except (ValueError, TypeError, AttributeError, KeyError):
        raise CliError(
            f"{path}: not a record of a state bucket. Delete it and run `./hpc backend init` again."
        ) from None
