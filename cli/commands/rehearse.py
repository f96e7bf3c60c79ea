"""`./hpc rehearse`."""

import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import yaml
from typer import Exit, Option

from cli import console, options
from cli.cluster import user_config
from cli.errors import CliError
from cli.operation import drain_recovery, operation
from cli.operation.run_options import RunOptions
from cli.stack import project, rehearsals, stack_config, stackfile, state_dir
from cluster.platforms import registry
from components.local.host.paths import HostError
from components.rehearsal import Rehearsal, Request

_EMBEDDED = options.EngineName.EMBEDDED


def rehearse(
    stack: options.Stack,
    *,
    nodes: Annotated[
        int | None,
        Option(
            min=1,
            max=10_000,
            metavar="N",
            help="Nodes of each nodeset, also more than the stack has. Default: the stack's, up to 4.",
        ),
    ] = None,
    cidr: Annotated[
        str | None,
        Option(
            metavar="NETWORK",
            help="Private network for the machines. Default: the last time's, else a free one, e.g. 10.78.0.0/20.",
        ),
    ] = None,
    real_prolog: Annotated[
        bool,
        Option("--real-prolog", help="Run the file of slurm.rxdm itself, with stand-ins for docker, gcloud and GPUs."),
    ] = False,
    elastic: Annotated[
        bool,
        Option(
            "--elastic", help="Keep elastic nodesets so: their machines come and go. Default: static, up to 4 nodes."
        ),
    ] = False,
    faults: Annotated[
        bool,
        Option("--faults", help="With --elastic: then play a day of faults in minutes, and print what was lost."),
    ] = False,
    preview: Annotated[bool, Option("--preview", help="Show what would happen, and do nothing.")] = False,
    destroy: Annotated[bool, Option("--destroy", help="Remove the rehearsal, with all that is on it.")] = False,
    json: options.Json = False,
    parallel: options.Parallel = None,
    config_file: options.ConfigFile = None,
    yes: options.Yes = False,
) -> None:
    """Bring up a cloud stack's own Slurm cluster on this machine.

    The same host names, partitions, users, accounts, limits, prologs and mount points, with production's slurm.conf but
    for lines that are listed. A stack on Nebius runs as it is, against stand-ins for the cloud and for Soperator.
    No account, credential or network is needed. The rehearsal of `a3mega` is the stack
    `a3mega-rehearsal` for all other commands. Run it again after an edit of the stack file: it takes the edit over as
    `up` does.

    On this machine it needs root, and installs the host's missing packages after saying so.
    """
    if preview and destroy:
        raise CliError("--preview shows what would be made, --destroy removes it: leave out one of them.")
    if faults and (preview or destroy or not elastic):
        raise CliError("--faults plays faults of the cloud that --elastic has: give both, and no other action.")
    of, name = rehearsals.of(rehearsals.file(stack)), rehearsals.name(stack)
    if of and rehearsals.file(stack).exists():
        raise CliError(f"{stack} is the rehearsal of {of}, which is what to name: ./hpc rehearse {of}")
    if destroy:
        raise Exit(_destroy(stack, name, config_file, json=json, parallel=parallel, yes=yes))
    file = project.require_file(stack, config_file)
    config = stack_config.parse(file)
    if stack_config.on_this_host(file):
        raise CliError(f"stack {stack} is on this machine as it is, and needs no rehearsal: ./hpc up {stack}")
    if (project.ROOT / f"Pulumi.{name}.yaml").exists():
        raise CliError(f"Pulumi.{name}.yaml is a stack file of its own: rename it, so that {name} is this rehearsal.")
    request = Request(
        stack=stack,
        file=file.path,
        nodes=nodes,
        cidr=cidr,
        kept=stackfile.read(project.ROOT, name).network,
        real_prolog=real_prolog,
        elastic=elastic,
        faults=faults,
        folder=rehearsals.own_folder(name),
    )
    platform = registry.get(config.platform)
    if not platform.rehearsal:
        raise CliError(f"stack {stack} is on {platform.title}, which has no rehearsal on this machine.")
    made: Rehearsal = import_module(platform.rehearsal).rehearse(config, request)
    differences = [{key: row[key] for key in row if key != "counted"} for row in made.differences]
    report = {"of": file.stack, "file": str(file.path), "differences": differences, "stood_in": list(made.stood_in)}
    if not json:
        _print_differences(stack, made)
    if preview:
        raise Exit(_preview(name, _text(file.path, made), report, json=json, parallel=parallel))
    made.start(console.note)
    state_dir.write_file(rehearsals.file(name), _text(file.path, made))
    chosen = RunOptions(engine=_EMBEDDED, json=json, parallel=parallel, yes=True, more={"rehearsal": report})
    code = operation.run("up", name, chosen)
    if code == 0 and not json:
        console.line(f"     ./hpc run {name} -- sinfo")
        console.line(f"     ./hpc ssh {name}{made.ssh}")
        console.line(f"     ./hpc status {name}")
        options_given = [
            f" --nodes {nodes}" if nodes else "",
            " --elastic" if elastic else "",
            f" --config-file {config_file}" if config_file else "",
        ]
        console.line(f"After an edit of {file.path.name}: ./hpc rehearse {stack}{''.join(options_given)}")
        console.line(f"To remove it: ./hpc rehearse {stack} --destroy")
    if code == 0 and faults:
        code = made.play_faults()
    raise Exit(code)


def _text(source: Path, made: Rehearsal) -> str:
    """The rehearsal's stack file."""
    head = [
        f"Written by `./hpc rehearse` from {source} at {time.strftime('%Y-%m-%d %H:%M:%S %Z')}.",
        "It is written again each time: change that file, and not this one.",
    ]
    body = yaml.safe_dump(
        {"config": dict(made.settings())}, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )
    return "".join(f"# {line}\n" for line in head) + body


def _print_differences(stack: str, made: Rehearsal) -> None:
    counted = [difference for difference in made.differences if difference["counted"]]
    lines = [difference["text"] for difference in made.differences if not difference["counted"]]
    lines += [f"{len(counted)} names of nodes that follow from their number"] if counted else []
    but = " Slurm's files are production's but for:" if made.differences else ""
    console.line(f"Rehearses {stack} on this machine.{but}", style="bold")
    for line in lines:
        console.line(f"  {line}")
    if made.stood_in:
        console.line("What else is not as in production:" if lines else "What is not as in production:", style="bold")
    for line in made.stood_in:
        console.line(f"  {line}")


def _preview(name: str, text: str, report: dict[str, Any], *, json: bool, parallel: int | None) -> int:
    """Preview the stack file that would be written, without writing it where it would be found."""
    with tempfile.TemporaryDirectory(prefix="hpc-rehearsal-") as folder:
        file = Path(folder) / f"Pulumi.{name}.yaml"
        file.write_text(text, encoding="utf-8")
        chosen = RunOptions(
            engine=_EMBEDDED, json=json, parallel=parallel, config_file=file, more={"rehearsal": report}
        )
        return operation.run("preview", name, chosen)


def _destroy(stack: str, name: str, config_file: Path | None, *, json: bool, parallel: int | None, yes: bool) -> int:
    there = name in project.workspace(name).stacks()
    if not there and not rehearsals.file(name).exists() and not rehearsals.own(name):
        if not config_file:
            project.require_file(stack)  # says which stacks there are
        operation.nothing("destroy", name, json=json)
        return 0
    own, lost = rehearsals.own(name), False
    if own and there:
        try:
            own.resume(rehearsals.own_folder(name), console.note)
        except HostError as error:
            # After a power failure, say. Nothing of the stack is anywhere but in what stands in.
            console.note(f"What stands in can't be started again, and is removed with all that is on it: {error}")
            lost = True
    if (there and not lost) or not own:
        code = operation.run("destroy", name, RunOptions(engine=_EMBEDDED, json=json, parallel=parallel, yes=yes))
        if code:
            return code
    if own:
        own.remove(rehearsals.own_folder(name), console.note)
    rehearsals.remove(name)
    state = project.workspace(name).stack(name)
    if lost:
        state.edit(lambda _rows: [])
        drain_recovery.end(name)
        user_config.Files(name).remove()
        if json:
            operation.nothing("destroy", name, json=json)
    state.forget()
    return 0
