"""`./hpc outputs`."""

from collections.abc import Mapping
from typing import Annotated, Any

from typer import Argument, Option

from cli import console, options
from cli.errors import CliError
from cli.stack import outputs as stack_outputs

_FOR_PROGRAMS = {
    "admin_key",
    "config",
    "config_hash",
    "kubeconfig",
    "kubernetes",
    "munge_key",
    "place",
    "platform",
    "port",
    "prometheus",
}
"""Outputs that only --json and KEY print."""


def outputs(
    stack: options.Stack,
    key: Annotated[str | None, Argument(metavar="[KEY]", help="Print this output only, bare.")] = None,
    *,
    json: options.Json = False,
    show_secrets: Annotated[bool, Option("--show-secrets", help="Print secrets instead of [secret].")] = False,
) -> None:
    """Show what the stack exports for people: machines with their addresses, users with their keys, links.

    --json prints every output. A single KEY is printed bare when it is a text, and as JSON otherwise.
    """
    values = stack_outputs.read(stack, show_secrets=show_secrets)
    if key is not None:
        if key not in values:
            raise CliError(f"stack {stack} has no output {key!r}. There are: {', '.join(sorted(values)) or 'none'}.")
        value = values[key]
        if isinstance(value, str) and not json:
            console.lines([value])
        else:
            console.json(value)
    elif json:
        console.json(values)
    elif values:
        _show(stack, values)
    else:
        console.note(f"Stack {stack} has no outputs: it is not up. Bring it up with: ./hpc up {stack}")


def _show(stack: str, values: Mapping[str, Any]) -> None:
    # For this alone: every command that reads outputs would wait for them.
    import yaml

    from cli.users import fingerprint
    from cluster import people
    from cluster.load import parse_output

    rest = {name: value for name, value in sorted(values.items()) if name not in _FOR_PROGRAMS}
    if "cluster" in values:
        console.line(f"Cluster {rest.pop('cluster')}; ./hpc ssh-config {stack} writes what ssh needs to know of it.")
    if targets := rest.pop("targets", None):
        rest.pop("machines", None)
        rows = [
            (name, ", ".join(row.get("roles") or ()), str(row.get("address") or "-"), str(row.get("method") or "-"))
            for name, row in sorted(targets.items())
        ]
        console.line()
        console.table([("MACHINE", "ROLES", "ADDRESS", "BY"), *rows])
    if "config" in values and rest.get("users"):
        rest.pop("users")
        config = parse_output(values["config"])
        rows = [
            (
                user.name,
                str(user.uid),
                people.default_account(config, user),
                ", ".join(map(fingerprint, user.keys)) or "-",
            )
            for user in config.users
        ]
        console.line()
        console.table([("USER", "UID", "ACCOUNT", "KEYS"), *rows])
    if rest:
        if "cluster" in values:
            console.line()
        text = yaml.safe_dump(rest, sort_keys=False, allow_unicode=True, width=10_000)
        console.lines(text.rstrip("\n").split("\n"))
