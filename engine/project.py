"""Pulumi.yaml and Pulumi.STACK.yaml: what the program is and what it is configured with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from engine.crypter import Crypter, Passphrase
from engine.errors import EngineError
from engine.values import Value

# libyaml where PyYAML was built with it: ten times as fast.
_Loader: Value = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(file: Path) -> dict[str, Value]:
    """A mapping. Raises EngineError if there is none."""
    try:
        row = yaml.load(file.read_text(encoding="utf-8"), _Loader) or {}  # noqa: S506 - both loaders are safe
    except FileNotFoundError:
        raise EngineError(f"{file}: no such file") from None
    except yaml.YAMLError as error:
        raise EngineError(f"{file}: no valid YAML: {error}") from None
    if not isinstance(row, dict):
        raise EngineError(f"{file}: expected a mapping, found {type(row).__name__}")
    return row


@dataclass(frozen=True)
class StackConfig:
    """What a program gets from `pulumi.Config`: texts (JSON for all that is no scalar), and which are secret."""

    values: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Project:
    """A folder with a Pulumi.yaml."""

    root: Path
    name: str
    main: Path
    defaults: dict[str, Value]

    @classmethod
    def read(cls, root: Path) -> Project:
        """Raises EngineError."""
        row = read_yaml(root / "Pulumi.yaml")
        if not row.get("name"):
            raise EngineError(f"{root / 'Pulumi.yaml'}: name: missing; a project needs one")
        name, defaults = str(row["name"]), {}
        for key, declared in (row.get("config") or {}).items():
            full = key if ":" in key else f"{name}:{key}"
            if not isinstance(declared, dict):
                defaults[full] = declared
            elif (value := declared.get("value", declared.get("default"))) is not None:
                defaults[full] = value
        main = root / (row.get("main") or ".")
        return cls(root, name, main if main.is_file() else main / "__main__.py", defaults)

    def config(self, file: Path, passphrase: Passphrase) -> StackConfig:
        """The configuration in a stack file, over the project's defaults. Raises EngineError, WrongPassphrase."""
        row = read_yaml(file) if file.exists() else {}
        crypter = Crypter(passphrase, row.get("encryptionsalt") or "")
        given = {key if ":" in key else f"{self.name}:{key}": v for key, v in (row.get("config") or {}).items()}
        values: dict[str, str] = {}
        secrets: list[str] = []
        for key, value in {**self.defaults, **given}.items():
            clear, hidden = _open(value, crypter)
            values[key] = clear if isinstance(clear, str) else json.dumps(clear, default=str)
            secrets += [key] if hidden else []
        return StackConfig(values, secrets)


def salt_of(file: Path) -> str:
    """The `encryptionsalt` of a stack file, "" if it has none."""
    return (read_yaml(file).get("encryptionsalt") or "") if file.exists() else ""


def _open(value: Value, crypter: Crypter) -> tuple[Value, bool]:
    """A configured value with its `secure:` parts decrypted, and whether there were any."""
    if isinstance(value, dict) and value.keys() == {"secure"}:
        return crypter.decrypt(value["secure"]), True
    if isinstance(value, dict):
        parts = {k: _open(v, crypter) for k, v in value.items()}
        return {k: v for k, (v, _) in parts.items()}, any(hidden for _, hidden in parts.values())
    if isinstance(value, list):
        items = [_open(v, crypter) for v in value]
        return [v for v, _ in items], any(hidden for _, hidden in items)
    return value, False
