"""Finds and reads stack files, without checking the configuration in them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli import console
from cli.errors import CliError
from cli.stack import rehearsals

_CLUSTER = "hpc:cluster"


@dataclass(frozen=True, kw_only=True)
class StackFile:
    """A file Pulumi.<stack>.yaml, which may have errors or be missing."""

    stack: str
    path: Path
    settings: Mapping[str, Any] | None
    """The settings under `config:`; None if there is no file."""
    beside: Mapping[str, Any] = field(default_factory=dict)
    """Keys beside `config:` that Pulumi does not read."""

    @property
    def _cluster(self) -> Mapping[str, Any]:
        cluster = (self.settings or {}).get(_CLUSTER)
        return cluster if isinstance(cluster, Mapping) else {}

    @property
    def platform(self) -> str | None:
        """The platform as written; None if the file does not name one."""
        platform = self._cluster.get("platform")
        return platform if isinstance(platform, str) else None

    @property
    def cluster(self) -> str | None:
        name = self._cluster.get("name")
        return name if isinstance(name, str) else None

    @property
    def network(self) -> str | None:
        network = self._cluster.get("network")
        cidr = network.get("cidr") if isinstance(network, Mapping) else None
        return cidr if isinstance(cidr, str) else None

    @property
    def rehearses(self) -> str | None:
        """The stack whose rehearsal this is, if `./hpc rehearse` wrote the file."""
        return rehearsals.of(self.path)

    @property
    def deletion_protection(self) -> bool:
        return bool(self._cluster.get("deletion_protection", False))


def named(root: Path) -> list[str]:
    """Return the names of stacks that have a file in `root`, and of rehearsals."""
    paths = [*root.glob("Pulumi.*.y*ml"), *rehearsals.folder().glob("Pulumi.*.yaml")]
    files = (re.fullmatch(r"Pulumi\.(.+)\.ya?ml", path.name) for path in paths)
    return sorted({match[1] for match in files if match})


def read(root: Path, stack: str, config_file: Path | None = None) -> StackFile:
    """Return the file of a stack or of a rehearsal, with `settings` None if there is none.

    Raises:
        CliError: the name is not allowed, or the file is not YAML or not a stack file.
    """
    name = f"Pulumi.{rehearsals.checked(stack)}.yaml"
    path = config_file.absolute() if config_file else root / name
    if not config_file and not path.exists() and rehearsals.file(stack).exists():
        path = rehearsals.file(stack)
    from engine import EngineError, yamlfile

    try:
        document = yamlfile.read(path)
    except FileNotFoundError:
        if config_file:
            raise CliError(f"{path}: no such file. Correct --config-file.") from None
        return StackFile(stack=stack, path=path, settings=None)
    except OSError as error:
        raise CliError(f"{path}: can't be read: {error.strerror}.") from None
    except EngineError as error:
        raise CliError(str(error)) from None
    document = {} if document is None else document
    settings = document.get("config", {}) if isinstance(document, Mapping) else document
    if not isinstance(settings or {}, Mapping):
        raise CliError(
            f"{path}: a mapping is expected, with the settings under `config:`; Pulumi.dev.yaml is an example."
        )
    rows = document if isinstance(document, Mapping) else {}
    beside = {key: value for key, value in rows.items() if key not in _KEYS}
    return StackFile(stack=stack, path=path, settings=settings or {}, beside=beside)


ENCRYPTION_KEYS = ("encryptionsalt", "secretsprovider", "encryptedkey")
"""Keys of a stack file (workspace.ProjectStack) with the encryption of its secrets. To add them, the CLI rewrites the
whole file (sdk/go/common/workspace/project.go, save) and loses blank lines and everything that its model of the file
lacks. It does not change a file that has them."""

_KEYS = ("config", "environment", *ENCRYPTION_KEYS)
"""All keys of a stack file that Pulumi reads (sdk/go/common/workspace/project.go, ProjectStack, of 3.274.1)."""


def encryption_keys(path: Path) -> dict[str, str]:
    """Return those keys of a stack file that it has; none if it can't be read."""
    from engine import EngineError, yamlfile

    try:
        document = yamlfile.read(path)
    except (OSError, EngineError):
        return {}
    rows = document if isinstance(document, dict) else {}
    return {key: str(rows[key]) for key in ENCRYPTION_KEYS if rows.get(key)}


def add_encryption_keys(path: Path, keys: dict[str, str]) -> None:
    """Append the keys that the file lacks. The rest of it does not change."""
    missing = {key: value for key, value in keys.items() if key not in encryption_keys(path)}
    if not missing:
        return
    try:
        text = path.read_text(encoding="utf-8")
        lines = "".join(f"{key}: {value}\n" for key, value in missing.items())
        with path.open("a", encoding="utf-8") as file:
            file.write(("" if text.endswith("\n") or not text else "\n") + lines)
    except OSError as error:
        # The state has the keys too, so the run goes on without them in the file.
        console.note(f"{path}: {', '.join(missing)} can't be added: {error.strerror}.")
        return
    console.note(f"Added to {path.name}: {', '.join(missing)} (no secret; keep it with the file)")
