"""`./hpc examples`."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Option

from cli import console, options
from cli.cluster.cluster import Cluster, from_outputs
from cli.cluster.jobs import Jobs
from cli.errors import CliError
from cli.stack import outputs, project, stack_config
from cluster.config import ClusterConfig
from cluster.jobs.examples import EXAMPLES, RECORD, Examples, example_files, needs, on_cluster, parse_record, record
from cluster.jobs.examples import examples as examples_of
from cluster.jobs.script import ENV
from cluster.load import parse_output
from cluster.platforms.capability import Capability

_RECORD = f"{EXAMPLES}/{RECORD}"


@dataclass(frozen=True)
class Written:
    """The files that a run changed: names, or paths of those beside the folder."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Files of an earlier version that somebody changed since."""

    def counts(self) -> list[tuple[str, list[str]]]:
        return [("new", self.new), ("changed", self.changed), ("removed", self.removed)]

    def document(self) -> dict[str, list[str]]:
        """Return the same as data for JSON."""
        return {**dict(self.counts()), "kept": self.kept}


def write(jobs: Jobs, files: Mapping[str, str]) -> Written:
    """Have these files on the cluster, by absolute path, and none that an earlier version wrote into EXAMPLES.

    The record has, at every moment, at least the files of ours that are there: a run that is stopped leaves none
    behind that the next one does not know.

    Raises:
        CliError: the login machine does not answer, or the folder is not root's alone.
    """
    ours = {path.removeprefix(f"{EXAMPLES}/"): text for path, text in files.items() if path.startswith(f"{EXAMPLES}/")}
    there = parse_record(jobs.run(f"cat {_RECORD} 2>/dev/null || true"))
    wanted = record(ours)
    old = {name: found for name, found in there.items() if name not in ours}
    if old or there.keys() != ours.keys():
        jobs.put({_RECORD: "".join(sorted([*wanted.splitlines(keepends=True), *_lines(old)]))})
    put = [path.removeprefix(f"{EXAMPLES}/") for path in jobs.put(files)]
    removed, kept = _remove(jobs, old)
    jobs.put({_RECORD: wanted})
    return Written(
        new=[name for name in put if name in ours and name not in there],
        changed=[name for name in put if name not in ours or name in there],
        removed=removed,
        kept=kept,
    )


def _remove(jobs: Jobs, old: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Remove files that are as they were written; also those that somebody changed since, which stay."""
    if not old:
        return [], []
    names = shlex.join(sorted(old))
    sums = parse_record(jobs.run(f"cd {EXAMPLES} && sha256sum -- {names} 2>/dev/null || true"))
    same = sorted(name for name, found in sums.items() if old.get(name) == found)
    if same:
        jobs.run(f"cd {EXAMPLES} && rm -f -- {shlex.join(same)}")
    return same, sorted(set(sums) - set(same))


def _lines(found: Mapping[str, str]) -> list[str]:
    return [f"{digest}  {name}\n" for name, digest in found.items()]


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
    found = examples_of(config)
    if list_:
        return _list(found, json=json)
    files = on_cluster(config, found)
    if dry_run and json:
        return console.json({"files": list(files), "left_out": found.left_out})
    if dry_run:
        console.lines(files)
        return _left_out(found)
    if copy_to is not None:
        return _copy(copy_to, {"env.sh": files[ENV], **example_files(config, found)}, found, json=json)
    if cluster is None:
        raise CliError(f"stack {stack} is not up. Bring it up with: ./hpc up {stack}")
    written = write(Jobs(cluster, stack, "root"), files)
    if json:
        return console.json({**written.document(), "files": list(files), "left_out": found.left_out})
    return _say(stack, cluster, written, files, found)


def _cluster(stack: str, config_file: Path | None, *, needed: bool) -> tuple[ClusterConfig, Cluster | None]:
    """The configuration of the cluster that is up, and how it is reached; where it is not needed, a stack that is not
    up is described by its file."""
    if config_file is None:
        try:
            values = outputs.read(stack, show_secrets=True)
        except CliError:
            if needed:
                raise
            values = {}
        if needed or "config" in values:
            cluster = from_outputs(stack, values, Capability.RUN)
            return parse_output(values["config"]), cluster
    elif needed:
        raise CliError("--config-file describes a stack that need not be up: give --list, --dry-run or --copy-to.")
    return stack_config.parse(project.require_file(stack, config_file)), None


def _list(found: Examples, *, json: bool) -> None:
    if json:
        rows = [{"name": row.name, "title": row.title, "options": dict(row.options)} for row in found.scripts]
        console.json({"examples": rows, "left_out": found.left_out})
        return
    rows = [(script.name, needs(script), script.title) for script in found.scripts]
    console.table([("EXAMPLE", "NEEDS", "WHAT IT DOES"), *rows])
    _left_out(found)


def _copy(folder: Path, files: dict[str, str], found: Examples, *, json: bool) -> None:
    """Write what differs into a folder."""
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
        return console.json({"folder": str(folder), "changed": changed, "left_out": found.left_out})
    console.line(f"{len(files)} files in {folder}, {len(changed)} of them new or changed.")
    console.line(f"The scripts expect {ENV} on the cluster, and programs in {EXAMPLES}.")
    return _left_out(found)


def _say(stack: str, cluster: Cluster, written: Written, files: dict[str, str], found: Examples) -> None:
    changes = [(sum(name != ENV for name in names), what) for what, names in written.counts()]
    counts = [f"{count} {what}" for count, what in changes if count]
    console.line(f"{len(files) - 1} files in {EXAMPLES}: {', '.join(counts) or 'nothing to change'}.")
    if ENV in written.changed:
        console.line(f"Wrote {ENV}, which they source.")
    for name in written.kept:
        console.note(f"{EXAMPLES}/{name}: no example any more, but somebody changed it, so it stays.")
    _left_out(found)
    if not found.scripts:
        return
    who = f" --as {cluster.users[0]}" if cluster.users else " --as USER"
    first = found.scripts[0]
    console.line("Run first:")
    console.line(f"  ./hpc run {stack}{who} -- sbatch --wait {EXAMPLES}/{first.name}")
    console.line(f"  ./hpc run {stack}{who} -- sh -c 'cat {first.options['job-name']}-*.out'")
    console.line(f"All of them: ./hpc run {stack} -- cat {EXAMPLES}/README")


def _left_out(found: Examples) -> None:
    if found.left_out:
        console.line("Left out, because they do not fit this cluster:")
        console.table([(f"  {name}", reason) for name, reason in found.left_out.items()])
