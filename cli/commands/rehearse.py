"""rehearse."""

import ipaddress
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import yaml
from typer import Exit, Option

from cli import console, options
from cli.commands import operation
from cli.errors import CliError
from cli.stack import project, rehearsals, stack_config, stackfile, state_dir
from cli.stack.run_options import RunOptions
from cluster.config import ClusterConfig
from cluster.config.validators.places import cluster_cidr
from cluster.findings import ConfigError, Refused
from cluster.load.parse import parse
from cluster.platforms.local.rehearsal import COUNT, candidates, differences, rehearsed, room, stood_in
from components.local.host.errors import HostError
from components.local.host.networks.network import taken_by
from components.local.host.paths import host_root

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
            show_default=False,
        ),
    ] = None,
    cidr: Annotated[
        str | None,
        Option(
            metavar="NETWORK",
            help="Private network for the machines. Default: the last time's, else a free one, e.g. 10.78.0.0/20.",
            show_default=False,
        ),
    ] = None,
    real_prolog: Annotated[
        bool,
        Option("--real-prolog", help="Run the file of slurm.rxdm itself, with stand-ins for docker, gcloud and GPUs."),
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
    for lines that are listed. No account, credential or network is needed. The rehearsal of `a3mega` is the stack
    `a3mega-rehearsal` for all other commands. Run it again after an edit of the stack file: it takes the edit over as
    `up` does.

    On this machine it needs root, and installs the host's missing packages after saying so.
    """
    if preview and destroy:
        raise CliError("--preview shows what would be made, --destroy removes it: leave out one of them.")
    _refuse_rehearsal(stack)
    name = rehearsals.name(stack)
    if destroy:
        raise Exit(_destroy(stack, name, config_file, json=json, parallel=parallel, yes=yes))
    file = project.require_file(stack, config_file)
    config = stack_config.parse(file)
    if stack_config.on_this_host(file):
        raise CliError(f"stack {stack} is on this machine as it is, and needs no rehearsal: ./hpc up {stack}")
    if (project.ROOT / f"Pulumi.{name}.yaml").exists():
        raise CliError(f"Pulumi.{name}.yaml is a stack file of its own: rename it, so that {name} is this rehearsal.")
    _refuse_download(file.path, config, real_prolog=real_prolog)
    section = _section(name, config, nodes=nodes, cidr=cidr, real_prolog=real_prolog)
    local = _parsed(stack, section)
    text = _text(file.path, section)
    report = _report(file, config, local, nodes=nodes, real_prolog=real_prolog)
    if not json:
        _say(stack, report)
    if preview:
        raise Exit(_preview(name, text, report, json=json, parallel=parallel))
    state_dir.write_file(rehearsals.file(name), text)
    chosen = RunOptions(engine=_EMBEDDED, json=json, parallel=parallel, yes=True, more={"rehearsal": report})
    code = operation.run("up", name, chosen)
    if code == 0 and not json:
        console.line(f"     ./hpc run {name} -- sinfo")
        console.line(f"     ./hpc ssh {name} controller")
        console.line(f"     ./hpc status {name}")
        options_given = [f" --nodes {nodes}" if nodes else "", f" --config-file {config_file}" if config_file else ""]
        console.line(f"After an edit of {file.path.name}: ./hpc rehearse {stack}{''.join(options_given)}")
        console.line(f"To remove it: ./hpc rehearse {stack} --destroy")
    raise Exit(code)


def _refuse_rehearsal(stack: str) -> None:
    of = rehearsals.of(rehearsals.file(stack))
    if of and rehearsals.file(stack).exists():
        raise CliError(f"{stack} is the rehearsal of {of}, which is what to name: ./hpc rehearse {of}")


def _refuse_download(path: Path, config: ClusterConfig, *, real_prolog: bool) -> None:
    rxdm = config.slurm.rxdm
    if real_prolog and rxdm and not rxdm.file:
        raise CliError(
            f"{path}: slurm.rxdm names no file, and a rehearsal has no way out to download its script. Leave out "
            "--real-prolog for its stand-in; or download the script, and name it there: rxdm: {file: ..., ...}"
        )


def _section(
    name: str, config: ClusterConfig, *, nodes: int | None, cidr: str | None, real_prolog: bool
) -> dict[str, Any]:
    """The rehearsal's cluster, on the network that is asked for, that it has, or that is free."""
    if cidr is None:
        kept = stackfile.read(project.ROOT, name).network
        cidr = _free(config.name, room(config, nodes=nodes), kept)
    try:
        cluster_cidr(cidr)
    except Refused as error:
        raise CliError(f"--cidr {cidr}: allowed is {error.allowed}; {error.todo}.") from None
    return rehearsed(config, nodes=nodes, cidr=cidr, real_prolog=real_prolog)


def _free(cluster: str, room: int, kept: str | None) -> str:
    """A network with room for the machines that nobody else on this host uses; `kept`, if it is one."""

    first: list[str] = []
    with suppress(ValueError):  # the file was edited: it is written again now
        first = [kept] if kept and ipaddress.IPv4Network(kept).prefixlen <= room else []
    for one in chain(first, candidates(room)):
        try:
            if taken_by(host_root(), cluster, ipaddress.IPv4Network(one)) is None:
                return one
        except HostError:
            return one  # a host that can't say, such as one that only previews; making the network would tell
    raise CliError(f"no private network of /{room} is free on this machine: give --nodes a smaller N, or --cidr.")


def _parsed(stack: str, section: dict[str, Any]) -> ClusterConfig:
    try:
        return parse({"hpc:cluster": section})
    except ConfigError as error:
        raise CliError(f"the rehearsal of {stack} can't be made on this machine: {error}") from None


def _text(source: Path, section: dict[str, Any]) -> str:
    """The stack file."""
    head = [
        f"Written by `./hpc rehearse` from {source} at {time.strftime('%Y-%m-%d %H:%M:%S %Z')}.",
        "It is written again each time: change that file, and not this one.",
    ]
    body = yaml.safe_dump(
        {"config": {"hpc:cluster": section}}, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )
    return "".join(f"# {line}\n" for line in head) + body


def _report(
    file: stackfile.StackFile, config: ClusterConfig, local: ClusterConfig, *, nodes: int | None, real_prolog: bool
) -> dict[str, Any]:
    """What differs from the stack, as programs read it."""
    return {
        "of": file.stack,
        "file": str(file.path),
        "differences": [
            {**{name: value for name, value in asdict(one).items() if name != "key"}, "text": str(one)}
            for one in differences(config, local)
        ],
        "stood_in": stood_in(config, nodes=nodes, real_prolog=real_prolog),
    }


def _say(stack: str, report: dict[str, Any]) -> None:
    counted = [one for one in report["differences"] if one["why"] == COUNT]
    others = [one for one in report["differences"] if one["why"] != COUNT]
    lines = [one["text"] for one in others]
    lines += [f"{len(counted)} names of nodes that follow from their number"] if counted else []
    console.line(f"Rehearses {stack} on this machine. Slurm's files are production's but for:", style="bold")
    for line in lines:
        console.line(f"  {line}")
    if report["stood_in"]:
        console.line("What else is not as in production:", style="bold")
    for line in report["stood_in"]:
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
    if not there and not rehearsals.file(name).exists():
        if not config_file:
            project.require_file(stack)  # says which stacks there are
        operation.nothing("destroy", name, json=json)
        return 0
    code = operation.run("destroy", name, RunOptions(engine=_EMBEDDED, json=json, parallel=parallel, yes=yes))
    if code == 0:
        rehearsals.remove(name)
        project.workspace(name).stack(name).forget()
    return code
