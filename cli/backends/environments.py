"""The environment of a stack: what its platform needs, and what its state bucket needs."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType

from cli.backends import buckets
from cli.errors import CliError
from cli.stack import pulumi_program, stack_config, state_dir
from cli.stack.stackfile import StackFile
from cluster.printable import one_line
from components.environment import Environment
from components.state_bucket import Backend, parse_version

_URL = "PULUMI_BACKEND_URL"
_PASSPHRASE = "PULUMI_CONFIG_PASSPHRASE"  # noqa: S105 - the name of a variable
_PASSPHRASE_FILE = "PULUMI_CONFIG_PASSPHRASE_FILE"  # noqa: S105 - the name of a variable


def of_stack(file: StackFile, bucket: str | None) -> Environment:
    """The variables of a stack. Raises CliError: the stack file has errors, or the bucket is not known."""
    config = stack_config.parse(file)
    module = _module(file)
    chosen = _bucket(file, bucket, module.project(config) if module else "")
    found = module.environment(config) if module else Environment()
    notes = [*_credentials(file), *found.notes]
    state = _state(file, chosen, notes)
    variables = {**found.variables, **state.variables}
    if not os.environ.get(_PASSPHRASE):
        variables[_PASSPHRASE_FILE] = os.environ.get(_PASSPHRASE_FILE) or str(state_dir.passphrase_file())
    return Environment(variables=variables, secret=found.secret | state.secret, notes=[*notes, *state.notes])


def of_bucket(backend: Backend) -> Environment:
    """The variables of a bucket alone."""
    return backend.environment(parse_version(pulumi_program.running_version()))


def names(file: StackFile, bucket: str | None) -> Sequence[str]:
    """Names of all variables that `of_stack` may set; no cloud is asked."""
    module = _module(file)
    chosen = _bucket(file, bucket, module.project(stack_config.parse(file)) if module else "")
    return [*(module.VARIABLES if module else ()), *(chosen.names if chosen else (_URL,)), _PASSPHRASE_FILE]


def _module(file: StackFile) -> ModuleType | None:
    platform = stack_config.platform(file)
    return import_module(platform.environment) if platform and platform.environment else None


def _credentials(file: StackFile) -> list[str]:
    platform = stack_config.platform(file)
    wanted = platform.credentials if platform else None
    if wanted is None or wanted.found(file.settings or {}):
        return []
    return [f"There are no {wanted.title} credentials here. To do: {wanted.todo}"]


def _bucket(file: StackFile, given: str | None, project: str) -> Backend | None:
    """The bucket that holds a stack's state: the given one, else that of its project, else the one in use."""
    if given is not None:
        record = buckets.load(given)
        if record is None:
            known = ", ".join(record.bucket for record in buckets.load_all()) or "none"
            raise CliError(f"--backend\n  given: {given}\n  allowed: {known}\n  to do: ./hpc backend init nebius|gcs")
        return buckets.backend(record)
    rows = buckets.load_all()
    own = [row for row in rows if project and row.project == project]
    if len(own) > 1:
        listed = ", ".join(row.bucket for row in own)
        raise CliError(f"project {project} has {len(own)} state buckets. Choose one with --backend: {listed}")
    url = state_dir.backend(file.stack).partition("?")[0]
    in_use = [row for row in rows if url.partition("://")[2] == row.bucket]
    return buckets.backend((own or in_use)[0]) if own or in_use else None


def _state(file: StackFile, backend: Backend | None, notes: list[str]) -> Environment:
    if backend is None:
        url, setting = state_dir.located(file.stack)
        notes.append(f"State: {url} ({setting}). A bucket for it is created by: ./hpc backend init nebius|gcs")
        return Environment(variables={_URL: url})
    notes.append(f"State: bucket {backend.record.bucket} ({backend.title})")
    if said := backend.renew():
        notes.append(said)
    return of_bucket(backend)


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b"'\\")


def exports(variables: Mapping[str, str], hidden: frozenset[str] = frozenset()) -> Sequence[str]:
    """The `export` lines of variables; a comment for a hidden one."""
    return [
        f"# export {name}=[secret]" if name in hidden else f"export {name}={quote(name, value)}"
        for name, value in variables.items()
    ]


def quote(name: str, value: str) -> str:
    """The value of a variable as one word of a shell, which evaluates to exactly this value.

    Raises CliError: no variable can have this name or value.
    """
    if not _NAME.fullmatch(name) or "\0" in value:
        raise CliError(
            f"{name}={value!r}: not an environment variable: names have letters, digits and _, values no NUL"
        )
    if value == one_line(value):
        return shlex.quote(value)
    given = os.fsencode(value)
    return "$'" + "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in given) + "'"
