"""`./hpc rehearse`."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from cli import console, options
from cli.errors import CliError
from cli.operation import operation
from cli.operation.run_options import RunOptions
from cli.stack import project, rehearsals, stack_config, stackfile, state_dir
from components.local.rehearsal import Rehearsal, Request
from engine import yamlfile

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
    for lines that are listed. Of a stack on Nebius it shows Slurm's side only, not Kubernetes and Soperator.
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
    )
    rehearsal = Rehearsal(config, request)
    differences = [{key: row[key] for key in row if key != "counted"} for row in rehearsal.differences]
    stood_in = list(rehearsal.stood_in)
    report = {"of": file.stack, "file": str(file.path), "differences": differences, "stood_in": stood_in}
    run_options = RunOptions(engine=_EMBEDDED, json=json, parallel=parallel, more={"rehearsal": report})
    if not json:
        _print_differences(stack, rehearsal)
    if preview:
        with tempfile.TemporaryDirectory(prefix="hpc-rehearsal-") as folder:
            stack_file = Path(folder) / f"Pulumi.{name}.yaml"
            stack_file.write_text(_stack_file(file.path, rehearsal), encoding="utf-8")
            raise Exit(operation.run("preview", name, replace(run_options, config_file=stack_file)))
    state_dir.write_file(rehearsals.file(name), _stack_file(file.path, rehearsal))
    code = operation.run("up", name, replace(run_options, yes=True))
    if code == 0 and not json:
        console.line(f"     ./hpc run {name} -- sinfo")
        console.line(f"     ./hpc ssh {name} controller")
        console.line(f"     ./hpc status {name}")
        options_given = [
            f" --nodes {nodes}" if nodes else "",
            " --elastic" if elastic else "",
            f" --config-file {config_file}" if config_file else "",
        ]
        console.line(f"After an edit of {file.path.name}: ./hpc rehearse {stack}{''.join(options_given)}")
        console.line(f"To remove it: ./hpc rehearse {stack} --destroy")
    if code == 0 and faults:
        code = rehearsal.play_faults()
    raise Exit(code)


def _stack_file(source: Path, rehearsal: Rehearsal) -> str:
    """Return the text of the rehearsal's stack file."""
    head = [
        f"Written by `./hpc rehearse` from {source} at {time.strftime('%Y-%m-%d %H:%M:%S %Z')}.",
        "It is written again each time: change that file, and not this one.",
    ]
    body = yamlfile.dump(
        {"config": dict(rehearsal.settings())}, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )
    return "".join(f"# {line}\n" for line in head) + body


def _print_differences(stack: str, rehearsal: Rehearsal) -> None:
    """Print how Slurm's files differ from production's, and what a stand-in replaces."""
    counted = [difference for difference in rehearsal.differences if difference["counted"]]
    lines = [difference["text"] for difference in rehearsal.differences if not difference["counted"]]
    lines += [f"{len(counted)} names of nodes that follow from their number"] if counted else []
    but = " Slurm's files are production's but for:" if rehearsal.differences else ""
    console.line(f"Rehearses {stack} on this machine.{but}", style="bold")
    for line in lines:
        console.line(f"  {line}")
    if rehearsal.stood_in:
        console.line("What else is not as in production:" if lines else "What is not as in production:", style="bold")
    for line in rehearsal.stood_in:
        console.line(f"  {line}")


def _destroy(stack: str, name: str, config_file: Path | None, *, json: bool, parallel: int | None, yes: bool) -> int:
    if name not in project.workspace(name).stacks() and not rehearsals.file(name).exists():
        if not config_file:
            project.require_file(stack)  # its error lists the stacks
        operation.show_nothing_to_do("destroy", name, json=json)
        return 0
    code = operation.run("destroy", name, RunOptions(engine=_EMBEDDED, json=json, parallel=parallel, yes=yes))
    if code == 0:
        rehearsals.remove(name)
        project.workspace(name).stack(name).forget()
    return code
