"""`./hpc backend init nebius`, `backend init gcs`, `backend list` and `env`.

`backend init` keeps a record of each bucket on this machine: where the bucket is, and its access key, whose secret the
cloud returns only once. A record is a file in the folder `backends` of `HPC_HOME`, readable by its owner only.
"""

import json as jsonlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from cli import ROOT, console, options
from cli.errors import CliError
from cli.stack import project as stack_project
from cli.stack import pulumi_program, stack_config, state_dir
from cli.stack.stackfile import StackFile
from cluster.config import ClusterConfig
from cluster.printable import one_line
from components.clouds import ENVIRONMENTS, STATE_BUCKETS, state_buckets
from components.state_bucket import Backend, BucketRecord, Environment, Key, parse_version

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
    record = state_buckets("nebius").record(
        _config_of(stack),
        tenant=tenant,
        project=project,
        region=region,
        name=name,
        account=service_account,
        lifetime=_lifetime(expires),
        known=load_record,
    )
    _init(_backend_of(record), dry_run=dry_run, json=json, show_secrets=show_secrets, write=write)


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
    record = state_buckets("gcs").record(
        _config_of(stack), project=project, bucket=bucket, location=location, keep=keep
    )
    _init(_backend_of(record), dry_run=dry_run, json=json, show_secrets=show_secrets, write=write)


def list_(*, json: options.Json = False) -> None:
    """List the state buckets that were initialized from this machine."""
    rows = [
        {
            "kind": record.kind,
            "bucket": record.bucket,
            "project": record.project,
            "expires": record.key.expires.isoformat() if record.key and record.key.complete else "",
        }
        for record in load_records()
    ]
    if json:
        console.json(rows)
    elif rows:
        table = [(row["bucket"], row["kind"], row["project"], row["expires"] or "-") for row in rows]
        console.table([("BUCKET", "KIND", "PROJECT", "KEY VALID UNTIL"), *table])
    else:
        console.note("There are no state buckets yet: create one with ./hpc backend init nebius|gcs")


def _config_of(stack: str | None) -> ClusterConfig | None:
    return stack_config.parse(stack_project.require_file(stack)) if stack else None


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
    environment = _environment_of_bucket(backend)
    shown = _with_hidden(environment.variables, frozenset() if show_secrets else environment.secret)
    if write is not None and not dry_run:
        try:
            state_dir.write_private(write, "".join(f"{line}\n" for line in exports(environment.variables)))
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
        console.lines(exports(environment.variables))
    for note in environment.notes:
        console.note(note)
    if dry_run:
        console.note("Nothing was changed (--dry-run).")
    else:
        console.note(f'Use it in this shell: eval "$(./hpc env STACK --backend {backend.record.bucket})"')


def _lifetime(text: str) -> timedelta:
    """Parse a time such as 12h or 1d, from one hour to a year."""
    if match := re.fullmatch("([0-9]{1,5})([hd])", text):
        lifetime = timedelta(**{"hours" if match[2] == "h" else "days": int(match[1])})
        if timedelta(hours=1) <= lifetime <= timedelta(days=365):
            return lifetime
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
    file = stack_project.require_file(stack)
    platform = stack_config.platform_of(file)
    of_cloud = ENVIRONMENTS.get(platform.name) if platform else None
    config = stack_config.parse(file) if of_cloud or not unset else None
    cloud = of_cloud(config) if of_cloud and config else None
    bucket = _bucket_of_stack(file, backend, cloud.project if cloud else "")
    if unset:
        names = [*(cloud.names if cloud else ()), *(bucket.names if bucket else (_URL,)), _PASSPHRASE_FILE]
        console.lines(f"unset {name}" for name in names)
        return
    own = cloud.read() if cloud else Environment()
    notes = list(own.notes)
    login = platform.login if platform else None
    if login and not login.found(file.settings or {}):
        notes.insert(0, f"There are no {login.title} credentials here. To do: {login.todo}")
    if bucket:
        notes.append(f"State: bucket {bucket.record.bucket} ({bucket.title})")
        if renewed := bucket.renew():
            notes.append(renewed)
        state = _environment_of_bucket(bucket)
    else:
        url, setting = state_dir.located(stack)
        notes.append(f"State: {url} ({setting}). A bucket for it is created by: ./hpc backend init nebius|gcs")
        state = Environment(variables={_URL: url})
    variables = {**own.variables, **state.variables}
    if not os.environ.get(_PASSPHRASE):
        variables[_PASSPHRASE_FILE] = os.environ.get(_PASSPHRASE_FILE) or str(state_dir.passphrase_file())
    for note in (*notes, *state.notes):
        console.note(note)
    visible = show_secrets or not (json or console.stdout().is_terminal)
    hidden = frozenset() if visible else own.secret | state.secret
    if json:
        console.json(_with_hidden(variables, hidden))
    else:
        console.lines(exports(variables, hidden))


_URL = "PULUMI_BACKEND_URL"
_PASSPHRASE = "PULUMI_CONFIG_PASSPHRASE"  # noqa: S105 - the name of a variable
_PASSPHRASE_FILE = "PULUMI_CONFIG_PASSPHRASE_FILE"  # noqa: S105 - the name of a variable


def _bucket_of_stack(file: StackFile, chosen: str | None, project: str) -> Backend | None:
    """Return the bucket that holds a stack's state: the chosen one, else that of its project, else the one in use."""
    if chosen is not None:
        record = load_record(chosen)
        if record is None:
            known = ", ".join(record.bucket for record in load_records()) or "none"
            raise CliError(f"--backend\n  given: {chosen}\n  allowed: {known}\n  to do: ./hpc backend init nebius|gcs")
        return _backend_of(record)
    records = load_records()
    own = [record for record in records if project and record.project == project]
    if len(own) > 1:
        listed = ", ".join(record.bucket for record in own)
        raise CliError(f"project {project} has {len(own)} state buckets. Choose one with --backend: {listed}")
    url = state_dir.backend(file.stack).partition("?")[0]
    in_use = [record for record in records if url.partition("://")[2] == record.bucket]
    return _backend_of((own or in_use)[0]) if own or in_use else None


def _environment_of_bucket(backend: Backend) -> Environment:
    return backend.environment(parse_version(pulumi_program.running_version()))


def _with_hidden(variables: Mapping[str, str], hidden: frozenset[str]) -> dict[str, str]:
    return {name: "[secret]" if name in hidden else value for name, value in variables.items()}


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b"'\\")


def exports(variables: Mapping[str, str], hidden: frozenset[str] = frozenset()) -> Sequence[str]:
    """Return the `export` lines of variables, with a comment in place of each hidden one."""
    return [
        f"# export {name}=[secret]" if name in hidden else f"export {name}={quote(name, value)}"
        for name, value in variables.items()
    ]


def quote(name: str, value: str) -> str:
    """Quote the value of a variable as one word of a shell, which evaluates to exactly this value.

    Raises CliError: no variable can have this name or value.
    """
    if not _NAME.fullmatch(name) or "\0" in value:
        raise CliError(
            f"{name}={value!r}: not an environment variable: names have letters, digits and _, values no NUL"
        )
    if value == one_line(value):
        return shlex.quote(value)
    encoded = os.fsencode(value)
    return "$'" + "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in encoded) + "'"


def _records_folder() -> Path:
    return state_dir.directory() / "backends"


def _record_file(bucket: str) -> Path:
    return _records_folder() / f"{bucket}.json"


def save_record(record: BucketRecord) -> None:
    """Write a record atomically, mode 0600. Raises CliError: it can't be written."""
    file = _record_file(record.bucket)
    try:
        state_dir.write_file(file, jsonlib.dumps(asdict(record), indent=2, default=datetime.isoformat) + "\n")
    except OSError as error:
        raise CliError(f"{file}: can't be written: {error.strerror}.") from None


def load_record(bucket: str) -> BucketRecord | None:
    """Return the record of a bucket, None if there is none. Raises CliError: it can't be read."""
    file = _record_file(bucket)
    return _read_record(file) if file.exists() else None


def load_records() -> list[BucketRecord]:
    """Return all records, sorted by the name of their bucket. Raises CliError: one can't be read."""
    return [_read_record(file) for file in sorted(_records_folder().glob("*.json"))]


def _read_record(file: Path) -> BucketRecord:
    try:
        row: Any = jsonlib.loads(file.read_text(encoding="utf-8"))
        key = row.pop("key")
        if key:
            key |= {name: datetime.fromisoformat(key[name]) for name in ("created", "expires")}
            key = Key(**key)
        return BucketRecord(key=key, **row)
    except OSError as error:
        raise CliError(f"{file}: can't be read: {error.strerror}.") from None
    except (ValueError, TypeError, AttributeError, KeyError):
        raise CliError(
            f"{file}: not a record of a state bucket. Delete it and run `./hpc backend init` again."
        ) from None


def _backend_of(record: BucketRecord) -> Backend:
    """Return the bucket of a record. Raises CliError: this version has no such kind of bucket."""
    if record.kind not in STATE_BUCKETS:
        raise CliError(
            f"bucket {record.bucket}: kind {record.kind!r} is not known here; allowed: {', '.join(STATE_BUCKETS)}."
        )
    return state_buckets(record.kind).backend(record, save_record, _records_folder())
