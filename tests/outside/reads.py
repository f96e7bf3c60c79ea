"""Records which fields of the answers of Nebius's SDK are read, of its messages and of their JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Path = tuple[str, ...]
"""A method such as `nebius.compute.v1.PlatformService/List`, then the names of fields of its answer."""


class Read:
    """A message that adds the path of each field that is read to `paths`."""

    def __init__(self, message: Any, at: Path, paths: set[Path]) -> None:
        self.message, self.at, self.paths = message, at, paths

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.message, name)
        if name == "check_presence":
            return lambda field: self.paths.add((*self.at, field)) or value(field)
        self.paths.add((*self.at, name))
        return recorded(value, (*self.at, name), self.paths)


class ReadJson(dict[str, Any]):
    """The JSON of one. A field that is not there is recorded too, as are those in the default for it."""

    def __init__(self, value: Mapping[str, Any], at: Path, paths: set[Path]) -> None:
        super().__init__(value)
        self.at, self.paths = at, paths

    def __getitem__(self, name: str) -> Any:
        return self._read(name, super().__getitem__(name))

    def get(self, name: str, default: Any = None, /) -> Any:
        return self._read(name, super().get(name, default))

    def items(self) -> Iterable[tuple[str, Any]]:  # pyrefly: ignore[bad-override]
        return [(name, self[name]) for name in self]

    def _read(self, name: str, value: Any) -> Any:
        self.paths.add((*self.at, name))
        return recorded(value, (*self.at, name), self.paths)


def recorded(value: Any, at: Path, paths: set[Path]) -> Any:
    """Return a value whose fields are recorded; numbers, text and maps of messages are returned as they are."""
    if hasattr(value, "__FIELDS__"):
        return Read(value, at, paths)
    if isinstance(value, dict):
        return ReadJson(value, at, paths)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [recorded(item, at, paths) for item in value]
    return value
