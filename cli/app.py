"""The command line: which commands there are, and how their help is arranged."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import typer

from cli import error_handler
from cli.commands import (
    accounting,
    adopt,
    bench,
    checks,
    config,
    environment,
    health,
    logs,
    nodes,
    outputs,
    reach,
    rehearse,
    schema,
    stacks,
    state,
    update,
    usage,
)

_HELP = """\
Builds Slurm GPU clusters and keeps them in shape.

A cluster is a stack: `dev` is described by Pulumi.dev.yaml. Edit the file, read the preview, run up.
"""
_CHANGE: Final = "Build and change"
_USE: Final = "Use"
_KEEP: Final = "Look after"
_DEVELOP: Final = "Develop"

app = typer.Typer(
    name="./hpc",
    help=_HELP,
    epilog="Start here: ./hpc up dev",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_accounting = typer.Typer(
    name="accounting", help="Back up the records of jobs and users, and bring them back.", no_args_is_help=True
)
_config = typer.Typer(name="config", help="Write a provider's setting into a stack file.", no_args_is_help=True)
_state = typer.Typer(
    name="state",
    help="Move a stack's state in and out, free its lock, edit single resources in it.",
    no_args_is_help=True,
)


def _guarded(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - whatever the command takes
        with error_handler.shown():
            function(*args, **kwargs)

    return command


def _add(
    function: Callable[..., None], panel: str | None, *examples: str, name: str | None = None, to: typer.Typer = app
) -> None:
    """Add a command with its examples, each on a line of its own."""
    epilog = "\n\n".join(["Examples:", *examples]) if examples else None
    to.command(name, rich_help_panel=panel, epilog=epilog)(_guarded(function))


_add(update.preview, _CHANGE, "./hpc preview dev", "./hpc preview a3mega --json", "./hpc preview dev --diff")
_add(update.up, _CHANGE, "./hpc up dev", "./hpc up dev --target '**::dev-cpu-0' --replace '**::dev-cpu-0'")
_add(update.destroy, _CHANGE, "./hpc destroy dev", "./hpc destroy a3mega --yes", "./hpc destroy a3mega --unprotect")
_add(update.refresh, _CHANGE, "./hpc refresh dev")
_add(config.set_, None, "./hpc config set a3mega gcp:credentials --secret <key.json", name="set", to=_config)
app.add_typer(_config, rich_help_panel=_CHANGE)
_add(
    adopt.import_,
    _CHANGE,
    "./hpc import a3mega -- gcp:compute/network:Network a3mega-system projects/p/global/networks/n --yes",
    name="import",
)
_add(
    rehearse.rehearse,
    _CHANGE,
    "./hpc rehearse a3mega",
    "./hpc rehearse a3mega --nodes 16",
    "./hpc run a3mega-rehearsal -- srun -N2 hostname",
    "./hpc rehearse a3mega --destroy",
)
_add(
    reach.run,
    _USE,
    "./hpc run dev -- srun -N2 -l hostname",
    "./hpc run dev --as alice -- sh -c 'sinfo | tail -n +2'",
    "./hpc run dev -- sbatch <job.sh",
    "./hpc run dev",
)
_add(
    reach.ssh,
    _USE,
    "./hpc ssh dev",
    "./hpc ssh dev controller -- tail -f /var/log/slurm/slurmctld.log",
    "./hpc ssh dev cpu-0 --as alice",
)
_add(health.status, _KEEP, "./hpc status dev", "./hpc status dev --json")
_add(health.drift, _KEEP, "./hpc drift dev", "./hpc drift dev --mend", "./hpc drift dev --json")
_add(
    outputs.outputs,
    _USE,
    "./hpc outputs dev",
    "./hpc outputs dev login",
    "./hpc outputs dev --json --show-secrets",
)
_add(
    logs.logs,
    _KEEP,
    "./hpc logs dev slurmctld -f",
    "./hpc logs dev slurmd --since 15m",
    "./hpc logs dev prolog --on cpu-0 -n 200",
    "./hpc logs dev controller",
)
_add(
    nodes.nodes,
    _KEEP,
    "./hpc nodes dev",
    "./hpc nodes dev drain cpu-[0-3] --reason 'new driver' --wait",
    "./hpc nodes dev resume cpu-0 cpu-1",
    "./hpc nodes dev reboot gpu-0",
)
_add(
    usage.usage,
    _KEEP,
    "./hpc usage dev",
    "./hpc usage dev --by account --since 2026-11-01 --until 2026-12-01",
    "./hpc usage dev --user alice --since 7d --json",
)
_add(accounting.backup, None, "./hpc accounting backup dev", "./hpc accounting backup dev /backups/", to=_accounting)
_add(accounting.restore, None, "./hpc accounting restore dev dev-accounting-20261121-053000.sql.gz", to=_accounting)
app.add_typer(_accounting, rich_help_panel=_KEEP)
_add(stacks.stacks, _KEEP, "./hpc stacks")
_add(stacks.stacks, None, name="ls")
app.registered_commands[-1].hidden = True
_add(state.export, None, "./hpc state export dev dev.json", "./hpc state export dev >dev.json", to=_state)
_add(state.import_, None, "./hpc state import dev dev.json", name="import", to=_state)
_add(state.unlock, None, "./hpc state unlock dev", to=_state)
_add(state.unprotect, None, "./hpc state unprotect dev --all", "./hpc state unprotect dev 'urn:...'", to=_state)
_add(state.delete, None, "./hpc state delete dev 'urn:...'", to=_state)
_add(state.rename, None, "./hpc state rename dev 'urn:...::old-name' new-name", to=_state)
app.add_typer(_state, rich_help_panel=_KEEP)
_add(environment.install_pulumi, _KEEP, "./hpc install-pulumi", name="install-pulumi")
_add(environment.version, _KEEP, "./hpc version")
_add(
    checks.run_checks,
    _DEVELOP,
    "./hpc test --fast",
    "./hpc test --only types --only tests",
    "./hpc test --only tests -- -k quoting -x",
    name="test",
)
_add(bench.bench, _DEVELOP, "./hpc bench --quick", "./hpc bench up jobs", "./hpc bench --write")
_add(schema.schema, _DEVELOP, "./hpc schema --write")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, which ends the process with the exit code. Without a command, show the help."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["ssh"] and "--" in given:
        given.insert(given.index("--") + 1, reach.COMMAND_FOLLOWS)
    app(given or ["--help"], prog_name="./hpc")
