"""The kinds of state buckets, each imported when it is used."""

from importlib import import_module

from cli.backends.base import Backend
from cli.backends.records import Record
from cli.errors import CliError

MODULES = {
    "nebius": "cli.backends.nebius",
    "gcs": "cli.backends.gcs",
}
"""The module of each kind, which exports BACKEND, its class."""


def backend(record: Record) -> Backend:
    """The bucket of a record. Raises CliError: this version does not know its kind."""
    module = MODULES.get(record.kind)
    if module is None:
        raise CliError(
            f"bucket {record.bucket}: kind {record.kind!r} is not known here; allowed: {', '.join(MODULES)}."
        )
    return import_module(module).BACKEND(record)
