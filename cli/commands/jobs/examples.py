"""`./hpc examples`."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Option

from cli import console, options
from cli.cluster.cluster import Cluster, from_outputs
from cli.cluster.jobs import Jobs
from cli.errors import CliError
from cli.stack import outputs, project, stack_config
from cluster.capability import Capability
from cluster.config import ClusterConfig
from cluster.jobs.examples import (
    EXAMPLES,
    RECORD,
    Examples,
    describe_request,
    installed_files,
    parse_record,
    record,
)
from cluster.jobs.examples import examples as examples_of
from cluster.jobs.script import ENV

_RECORD = f"{EXAMPLES}/{RECORD}"


@dataclass(frozen=True)
class Written:
    """The files that a run changed: names in the folder EXAMPLES, or paths of other files."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Files of an earlier version that somebody changed since."""


def write(jobs: Jobs, files: Mapping[str, str]) -> Written:
    """Write these files, by absolute path, to the cluster, and remove files that an earlier version wrote into
    EXAMPLES.

    A record lists the files in EXAMPLES that were written. It is written before them, so that a run that was stopped
    leaves no file behind that the next run does not find in the record.

    Raises:
        CliError: the login machine does not answer, or the folder is not root's alone.
    """
    examples = {
        path.removeprefix(f"{EXAMPLES}/"): text for path, text in files.items() if path.startswith(f"{EXAMPLES}/")
    }
    recorded = parse_record(jobs.run(f"cat {_RECORD} 2>/dev/null || true"))
    new_record = record(examples)
    old = {name: digest for name, digest in recorded.items() if name not in examples}
    if old or recorded.keys() != examples.keys():
        old_lines = [f"{digest}  {name}\n" for name, digest in old.items()]
        jobs.put({_RECORD: "".join(sorted([*new_record.splitlines(keepends=True), *old_lines]))})
    changed = [path.removeprefix(f"{EXAMPLES}/") for path in jobs.put(files)]
    removed, kept = _remove_unchanged(jobs, old)
    jobs.put({_RECORD: new_record})
    return Written(
        new=[name for name in changed if name in examples and name not in recorded],
        changed=[name for name in changed if name not in examples or name in recorded],
        removed=removed,
        kept=kept,
    )


def _remove_unchanged(jobs: Jobs, files: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Remove files, given with their digests, that nobody has changed. Returns the removed and the changed ones."""
    if not files:
        return [], []
    names = shlex.join(sorted(files))
    digests = parse_record(jobs.run(f"cd {EXAMPLES} && sha256sum -- {names} 2>/dev/null || true"))
    unchanged = sorted(name for name, digest in digests.items() if files.get(name) == digest)
    if unchanged:
        jobs.run(f"cd {EXAMPLES} && rm -f -- {shlex.join(unchanged)}")
    return unchanged, sorted(set(digests) - set(unchanged))


def examples(
    stack: options.Stack,
    *,
    list_: Annotated[bool, Option("--list", help="List the examples, and write nothing.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="List the files that would be written, and write none.")] = False,
    copy_to: Annotated[
        Path | None, Option(metavar="DIR", help="Write the files into a folder of this machine instead.")
    ] = None,
    config_file: options.ConfigFile = None,
    json: options.Json = False,
) -> None:
    """Put ready job scripts onto the cluster, for its own partitions, GPUs and network.

    They lie in /opt/apps/hpc/examples, on the file system that all machines share: a single GPU, a full node, PyTorch
    on several nodes, MPI, containers, arrays, and training that survives the loss of a node. Those that do not fit the
    cluster are left out. Scripts that an earlier version of this program wrote, and that this one has no more, are
    removed; files of others stay.

    With --list, --dry-run or --copy-to the stack need not be up: its file says what it will have.
    """
    if list_ + dry_run + (copy_to is not None) > 1:
        raise CliError("--list, --dry-run and --copy-to do different things: give one of them.")
    config, cluster = _cluster(stack, config_file, needed=not (list_ or dry_run or copy_to))
    chosen = examples_of(config)
    if list_:
        return _print_list(chosen, json=json)
    files = installed_files(config, chosen)
    if dry_run and json:
        return console.json({"files": list(files), "left_out": chosen.left_out})
    if dry_run:
        console.lines(files)
        return _print_left_out(chosen)
    if copy_to is not None:
        return _copy(copy_to, {"env.sh": files[ENV], **chosen.files}, chosen, json=json)
    if cluster is None:
        raise CliError(f"stack {stack} is not up. Bring it up with: ./hpc up {stack}")
    written = write(Jobs(cluster, "root"), files)
    if json:
        return console.json({**asdict(written), "files": list(files), "left_out": chosen.left_out})
    return _print_written(stack, cluster, written, files, chosen)


def _cluster(stack: str, config_file: Path | None, *, needed: bool) -> tuple[ClusterConfig, Cluster | None]:
    """Return the configuration of the cluster that is up, and its connection. Unless the cluster is `needed`, a stack
    that is not up has the configuration of its file."""
    if config_file is None:
        try:
            values = outputs.read(stack, show_secrets=True)
        except CliError:
            if needed:
                raise
            values = {}
        if needed or "config" in values:
            cluster = from_outputs(stack, values, Capability.RUN)
            return stack_config.from_outputs(stack, values), cluster
    elif needed:
        raise CliError("--config-file describes a stack that need not be up: give --list, --dry-run or --copy-to.")
    return stack_config.parse(project.require_file(stack, config_file)), None


def _print_list(chosen: Examples, *, json: bool) -> None:
    if json:
        rows = [{"name": row.name, "title": row.title, "options": dict(row.options)} for row in chosen.scripts]
        console.json({"examples": rows, "left_out": chosen.left_out})
        return
    rows = [(script.name, describe_request(script), script.title) for script in chosen.scripts]
    console.table([("EXAMPLE", "NEEDS", "WHAT IT DOES"), *rows])
    _print_left_out(chosen)


def _copy(folder: Path, files: dict[str, str], chosen: Examples, *, json: bool) -> None:
    """Write the files that differ into a folder of this machine."""
    changed: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path = folder / name
            if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text:
                path.write_text(text, encoding="utf-8")
                changed.append(name)
            if name.endswith(".sh"):
                path.chmod(0o755)
    except OSError as error:
        raise CliError(f"can't write to {error.filename or folder}: {error.strerror or error}.") from None
    if json:
        return console.json({"folder": str(folder), "changed": changed, "left_out": chosen.left_out})
    console.line(f"{len(files)} files in {folder}, {len(changed)} of them new or changed.")
    console.line(f"The scripts expect {ENV} on the cluster, and programs in {EXAMPLES}.")
    return _print_left_out(chosen)


def _print_written(stack: str, cluster: Cluster, written: Written, files: dict[str, str], chosen: Examples) -> None:
    lists = {"new": written.new, "changed": written.changed, "removed": written.removed}
    examples = {what: sum(name != ENV for name in names) for what, names in lists.items()}
    counts = [f"{count} {what}" for what, count in examples.items() if count]
    console.line(f"{len(files) - 1} files in {EXAMPLES}: {', '.join(counts) or 'nothing to change'}.")
    if ENV in written.changed:
        console.line(f"Wrote {ENV}, which they source.")
    for name in written.kept:
        console.note(f"{EXAMPLES}/{name}: no example any more, but somebody changed it, so it stays.")
    _print_left_out(chosen)
    if not chosen.scripts:
        return
    who = f" --as {cluster.users[0]}" if cluster.users else " --as USER"
    first = chosen.scripts[0]
    console.line("Run first:")
    console.line(f"  ./hpc run {stack}{who} -- sbatch --wait {EXAMPLES}/{first.name}")
    console.line(f"  ./hpc run {stack}{who} -- sh -c 'cat {first.options['job-name']}-*.out'")
    console.line(f"All of them: ./hpc run {stack} -- cat {EXAMPLES}/README")


def _print_left_out(chosen: Examples) -> None:
    if chosen.left_out:
        console.line("Left out, because they do not fit this cluster:")
        console.table([(f"  {name}", reason) for name, reason in chosen.left_out.items()])
