"""`./hpc backend init nebius`, `backend init gcs`, `backend list` and `env`."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

from typer import Option

from cli import ROOT, buckets, console, options
from cli.errors import CliError
from cli.stack import project, pulumi_program, stack_config, state_dir
from cli.stack import project as hpc_project
from cli.stack.stackfile import StackFile
from cluster.printable import one_line
from components.state_bucket import Backend, Environment, parse_version

_Stack = Annotated[
    str | None, Option("--stack", metavar="STACK", help="Take what is not given from this stack's file.")
]
_DryRun = Annotated[bool, Option("--dry-run", help="Print what would be created; change nothing.")]
_ShowSecrets = Annotated[bool, Option("--show-secrets", help="Print the `export` lines, with the secret key.")]
_Write = Annotated[
    Path | None,
    Option(
        "--write",
        metavar="FILE",
        help="Write the `export` lines, with the secret key, to this file outside the project (mode 0600).",
    ),
]


def nebius(
    *,
    tenant: Annotated[str | None, Option(metavar="ID", help="The tenant: tenant-...")] = None,
    project: Annotated[str | None, Option(metavar="ID", help="The project: project-...")] = None,
    region: Annotated[str | None, Option(help="The project's region. Default: eu-north1.")] = None,
    stack: _Stack = None,
    name: Annotated[str | None, Option(metavar="BUCKET", help="The bucket's name. Default: pulumi-slurm-HASH.")] = None,
    # Not the recipe's `slurm-terraform-sa`, so that each program's keys are its own.
    service_account: Annotated[str, Option(metavar="NAME", help="The service account.")] = "slurm-pulumi-sa",
    expires: Annotated[str, Option(metavar="TIME", help="How long an access key is valid: 12h, 1d, 30d.")] = "1d",
    dry_run: _DryRun = False,
    json: options.Json = False,
    show_secrets: _ShowSecrets = False,
    write: _Write = None,
) -> None:
    """Find or create a versioned state bucket in Nebius Object Storage, and an access key for it.

    Creates the bucket, a service account, its membership in the tenant's group `editors`, and an access key that
    expires. What exists is used as it is: a second run changes nothing. The key is kept in HPC_HOME, readable by you
    only, and renewed by `./hpc env` when it expires.
    """
    config = stack_config.parse(hpc_project.require_file(stack)) if stack else None
    asked = buckets.module("nebius").record(
        config,
        tenant=tenant,
        project=project,
        region=region,
        name=name,
        account=service_account,
        lifetime=_time(expires),
        known=buckets.load,
    )
    _init(buckets.backend(asked), dry_run=dry_run, json=json, show_secrets=show_secrets, write=write)


def gcs(
    *,
    project: Annotated[str | None, Option(metavar="ID", help="The project's id.")] = None,
    bucket: Annotated[str | None, Option(metavar="NAME", help="The bucket's name. Default: pulumi-slurm-HASH.")] = None,
    location: Annotated[
        str | None, Option(help="Region or multi-region. Default: the stack's region, else US.")
    ] = None,
    keep: Annotated[int, Option(min=1, max=100_000, metavar="N", help="Old versions of each file to keep.")] = 100,
    stack: _Stack = None,
    dry_run: _DryRun = False,
    json: options.Json = False,
    show_secrets: _ShowSecrets = False,
    write: _Write = None,
) -> None:
    """Find or create a versioned state bucket in Google Cloud Storage.

    It has uniform access, public access prevention, and a rule that deletes the oldest versions. What exists is used as
    it is: a second run changes nothing.
    """
    config = stack_config.parse(hpc_project.require_file(stack)) if stack else None
    asked = buckets.module("gcs").record(config, project=project, bucket=bucket, location=location, keep=keep)
    _init(buckets.backend(asked), dry_run=dry_run, json=json, show_secrets=show_secrets, write=write)


def list_(*, json: options.Json = False) -> None:
    """List the state buckets that were initialized from this machine."""
    rows = [
        {
            "kind": record.kind,
            "bucket": record.bucket,
            "project": record.project,
            "expires": record.key.expires.isoformat() if record.key and record.key.complete else "",
        }
        for record in buckets.load_all()
    ]
    if json:
        console.json(rows)
    elif rows:
        table = [(row["bucket"], row["kind"], row["project"], row["expires"] or "-") for row in rows]
        console.table([("BUCKET", "KIND", "PROJECT", "KEY VALID UNTIL"), *table])
    else:
        console.note("There are no state buckets yet: create one with ./hpc backend init nebius|gcs")


def _init(backend: Backend, *, dry_run: bool, json: bool, show_secrets: bool, write: Path | None) -> None:
    if write is not None and write.absolute().resolve().is_relative_to(ROOT.resolve()):
        raise CliError(
            f"--write\n  given: {write}\n  allowed: a file outside the project, which others may get a copy of"
        )
    steps = []
    for step in backend.prepare(dry_run=dry_run):
        steps.append(step)
        if not json:
            console.line(f"{step.done.value:<10} {step.what}" + (f": {step.detail}" if step.detail else ""))
    found = environment_of_bucket(backend)
    hidden = frozenset() if show_secrets else found.secret
    shown = {name: "[secret]" if name in hidden else value for name, value in found.variables.items()}
    if write is not None and not dry_run:
        try:
            state_dir.write_private(write, "".join(f"{line}\n" for line in exports(found.variables)))
        except OSError as error:
            raise CliError(f"{write}: can't be written: {error.strerror}.") from None
        console.note(f"Wrote {write}: it has the secret key. Load it with: source {write}")
    if json:
        rows = [{"what": step.what, "done": step.done.value, "detail": step.detail} for step in steps]
        document = {"kind": backend.kind, "bucket": backend.record.bucket, "url": shown["PULUMI_BACKEND_URL"]}
        console.json({**document, "steps": rows, "environment": shown})
        return
    console.line(f"backend URL: {shown['PULUMI_BACKEND_URL']}")
    if show_secrets:
        console.lines(exports(found.variables))
    for note in found.notes:
        console.note(note)
    if dry_run:
        console.note("Nothing was changed (--dry-run).")
    else:
        console.note(f'Use it in this shell: eval "$(./hpc env STACK --backend {backend.record.bucket})"')


def _time(text: str) -> timedelta:
    """A time such as 12h or 1d, from one hour to a year."""
    if found := re.fullmatch("([0-9]{1,5})([hd])", text):
        time = timedelta(**{"hours" if found[2] == "h" else "days": int(found[1])})
        if timedelta(hours=1) <= time <= timedelta(days=365):
            return time
    raise CliError(f"--expires\n  given: {text!r}\n  allowed: 1h to 365d, in hours or days")


def env(
    stack: options.Stack,
    *,
    backend: Annotated[
        str | None,
        Option(
            "--backend",
            metavar="BUCKET",
            help="Bucket of `./hpc backend list` that holds the stack's state. Default: that of the stack's project.",
        ),
    ] = None,
    unset: Annotated[bool, Option("--unset", help="Print the lines that unset these variables.")] = False,
    json: options.Json = False,
    show_secrets: Annotated[
        bool, Option("--show-secrets", help="Print secrets also on a terminal and with --json.")
    ] = False,
) -> None:
    """Print the environment variables of a stack's cloud and state, for `eval "$(./hpc env STACK)"`.

    Standard output has `export` lines only, notes are on standard error. An access key of the state bucket that has
    expired is renewed; otherwise nothing changes.
    """
    file = project.require_file(stack)
    if unset:
        console.lines(f"unset {name}" for name in variable_names(file, backend))
        return
    found = environment_of_stack(file, backend)
    for note in found.notes:
        console.note(note)
    hidden = frozenset() if show_secrets or not (json or console.stdout().is_terminal) else found.secret
    if json:
        console.json({name: "[secret]" if name in hidden else value for name, value in found.variables.items()})
        return
    console.lines(exports(found.variables, hidden))


_URL = "PULUMI_BACKEND_URL"
_PASSPHRASE = "PULUMI_CONFIG_PASSPHRASE"  # noqa: S105 - the name of a variable
_PASSPHRASE_FILE = "PULUMI_CONFIG_PASSPHRASE_FILE"  # noqa: S105 - the name of a variable


def environment_of_stack(file: StackFile, bucket: str | None) -> Environment:
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


def environment_of_bucket(backend: Backend) -> Environment:
    """The variables of a bucket alone."""
    return backend.environment(parse_version(pulumi_program.running_version()))


def variable_names(file: StackFile, bucket: str | None) -> Sequence[str]:
    """Names of all variables that `environment_of_stack` may set; no cloud is asked."""
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
    return environment_of_bucket(backend)


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
