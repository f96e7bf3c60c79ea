"""Pulumi.yaml and Pulumi.STACK.yaml: the project and the configuration of its stacks."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from engine import yamlfile
from engine.errors import EngineError
from engine.state.crypter import Crypter, Passphrase
from engine.values import Value

_SALT = re.compile(r"v1:[A-Za-z0-9+/=]+:v1(:[A-Za-z0-9+/=]+){2}")


def read_yaml(file: Path) -> dict[str, Value]:
    """Return the mapping in a YAML file. Raises EngineError if it can't be read or has something else."""
    try:
        row = yamlfile.read(file) or {}
    except FileNotFoundError:
        raise EngineError(f"{file}: no such file") from None
    except OSError as error:
        raise EngineError(f"{file}: can't be read: {error.strerror or error}") from None
    if not isinstance(row, dict):
        raise EngineError(f"{file}: expected a mapping, found {type(row).__name__}")
    return row


@dataclass(frozen=True)
class StackConfig:
    """The values that a program reads with `pulumi.Config`, as texts, and the keys of those that are secret.

    Lists and mappings are JSON with sorted keys, as the CLI passes them (encoding/json of Go sorts the keys of maps).
    """

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
    def read(cls, root: Path) -> "Project":
        """Read the project in a folder. Raises EngineError."""
        row = read_yaml(root / "Pulumi.yaml")
        if not row.get("name"):
            raise EngineError(f"{root / 'Pulumi.yaml'}: name: missing; a project needs one")
        name, defaults = str(row["name"]), {}
        for key, declared in _settings(root / "Pulumi.yaml", row).items():
            full = key if ":" in key else f"{name}:{key}"
            if not isinstance(declared, dict):
                defaults[full] = declared
            elif (value := declared.get("value", declared.get("default"))) is not None:
                defaults[full] = value
        main = root / str(row.get("main") or ".")
        return cls(root, name, main if main.is_file() else main / "__main__.py", defaults)

    def config(self, file: Path, passphrase: Passphrase) -> StackConfig:
        """Read a stack file's configuration, with the project's defaults. Raises EngineError, PassphraseError."""
        row = read_yaml(file) if file.exists() else {}
        crypter = Crypter(passphrase, _salt(file, row))
        configured = {key if ":" in key else f"{self.name}:{key}": v for key, v in _settings(file, row).items()}
        values: dict[str, str] = {}
        secrets: list[str] = []
        for key, value in {**self.defaults, **configured}.items():
            decrypted, is_secret = _decrypt(value, crypter)
            values[key] = (
                decrypted if isinstance(decrypted, str) else json.dumps(decrypted, default=str, sort_keys=True)
            )
            secrets += [key] if is_secret else []
        return StackConfig(values, secrets)


def salt_of(file: Path) -> str:
    """Return the `encryptionsalt` of a stack file, "" if it has none."""
    return _salt(file, read_yaml(file)) if file.exists() else ""


def _salt(file: Path, row: dict[str, Value]) -> str:
    salt = row.get("encryptionsalt") or ""
    if salt and not (isinstance(salt, str) and _SALT.fullmatch(salt)):
        raise EngineError(f"{file}: encryptionsalt: damaged: it is v1:SALT:v1:NONCE:TEXT. Take it from a copy.")
    return salt


def _settings(file: Path, row: dict[str, Value]) -> dict[str, Value]:
    settings = row.get("config") or {}
    if not isinstance(settings, dict):
        raise EngineError(f"{file}: config: expected a mapping, found {type(settings).__name__}")
    return settings


def _decrypt(value: Value, crypter: Crypter) -> tuple[Value, bool]:
    """Return a configured value with its `secure:` parts decrypted, and whether it has any."""
    if isinstance(value, dict) and value.keys() == {"secure"}:
        if not isinstance(value["secure"], str):
            raise EngineError(f"secure: expected an encrypted text, found {type(value['secure']).__name__}")
        return crypter.decrypt(value["secure"]), True
    if isinstance(value, dict):
        parts = {k: _decrypt(v, crypter) for k, v in value.items()}
        return {k: v for k, (v, _) in parts.items()}, any(is_secret for _, is_secret in parts.values())
    if isinstance(value, list):
        items = [_decrypt(v, crypter) for v in value]
        return [v for v, _ in items], any(is_secret for _, is_secret in items)
    return value, False
