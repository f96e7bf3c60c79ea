"""The command line: all commands with their examples, and the sections of the help."""

import ast
import functools
import inspect
import os
import shutil
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from cli import error_handler
from cli.options import COMMAND_FOLLOWS, COMPLETE

_FOLDER = Path(__file__).parent / "commands"
_NARROW = 80
"""Columns of a terminal below which a command's help is plain text."""


class LazyCommand(TyperCommand):
    """A command that is a function of a module in cli/commands. The function's docstring is the command's help."""

    def __init__(self, name: str, target: str, panel: str | None, *examples: str, hidden: bool = False) -> None:
        """`target` is MODULE:FUNCTION, `panel` the section of the help that lists it."""
        super().__init__(name, rich_help_panel=panel, hidden=hidden)
        self.module, _, self.function = target.partition(":")
        self.examples = examples

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:  # noqa: ANN401
        """Import the module, and parse the command line with the parameters of its function."""
        if args and not args[0].startswith("-"):
            from cli.stack import project  # completion and --help do not need it

            project.begin_unlock(args[0])
        return self.load().make_context(info_name, args, *rest, **extra)

    def load(self) -> TyperCommand:
        """Import the module, and create a command from its function."""
        with error_handler.handle_errors():
            function = getattr(import_module(f"cli.commands.{self.module}"), self.function)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the function's own
            about = {"stack": kwargs["stack"]} if "stack" in kwargs else {}
            with error_handler.handle_errors(about if kwargs.get("json") else None):
                function(*args, **kwargs)

        epilog = "\n\n".join(["Examples:", *self.examples]) if self.examples else None
        # In a narrow terminal the columns of rich's tables are narrower than the options' names, which it cuts off.
        markup = "rich" if shutil.get_terminal_size().columns >= _NARROW else None
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=markup)
        app.command(self.name, help=_unwrapped(function.__doc__ or ""), epilog=epilog)(run)
        return cast(TyperCommand, typer.main.get_command(app))


def _unwrapped(docstring: str) -> str:
    """Return a docstring with each paragraph on one line, so that it is wrapped once, for the terminal."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(docstring).split("\n\n"))


class LazyGroup(TyperGroup):
    """A group of lazy commands and of further groups."""

    def __init__(self, name: str, summary: str, *commands: LazyCommand | TyperGroup, **extra: Any) -> None:  # noqa: ANN401
        super().__init__(name=name, help=summary, commands=commands, no_args_is_help=True, **extra)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - typer's own click
        """Return the names of the commands. Their help is read from the source, since importing all modules takes a
        second."""
        for command in self.commands.values():
            if isinstance(command, LazyCommand):
                command.help = _docstrings(command.module).get(command.function)
        return super().list_commands(ctx)


@functools.cache
def _docstrings(module: str) -> dict[str, str | None]:
    """Return the docstring of each function of a module in cli/commands."""
    tree = ast.parse((_FOLDER / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    return {node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)}


_HELP = """\
Builds Slurm GPU clusters and keeps them in shape.

A cluster is a stack: `dev` is described by Pulumi.dev.yaml. Edit the file, read the preview, run up.
"""
_CHANGE: Final = "Build and change"
_USE: Final = "Use"
_KEEP: Final = "Look after"
_DEVELOP: Final = "Develop"

app = LazyGroup("./hpc", _HELP,
    LazyCommand("preview", "up:preview", _CHANGE,
        "./hpc preview dev", "./hpc preview a3mega --json", "./hpc preview dev --diff"),
    LazyCommand("up", "up:up", _CHANGE,
        "./hpc up dev", "./hpc up dev --target '**::dev-cpu-0' --replace '**::dev-cpu-0'"),
    LazyCommand("destroy", "up:destroy", _CHANGE,
        "./hpc destroy dev", "./hpc destroy a3mega --yes", "./hpc destroy a3mega --unprotect"),
    LazyCommand("refresh", "up:refresh", _CHANGE, "./hpc refresh dev"),
    LazyCommand("import", "up:import_", _CHANGE,
        "./hpc import a3mega -- gcp:compute/network:Network a3mega-system projects/p/global/networks/n --yes"),
    LazyCommand("cost", "cost:cost", _CHANGE,
        "./hpc cost a3mega", "./hpc cost a3mega --against deployed", "./hpc cost a3mega --json"),
    LazyCommand("rehearse", "rehearse:rehearse", _CHANGE,
        "./hpc rehearse a3mega", "./hpc rehearse a3mega --nodes 16", "./hpc run a3mega-rehearsal -- srun -N2 hostname",
        "./hpc rehearse a3mega --destroy"),
    LazyCommand("run", "ssh:run", _USE,
        "./hpc run dev -- srun -N2 -l hostname", "./hpc run dev --as alice -- sh -c 'sinfo | tail -n +2'",
        "./hpc run dev -- sbatch <job.sh", "./hpc run dev"),
    LazyCommand("ssh", "ssh:ssh", _USE,
        "./hpc ssh dev", "./hpc ssh dev controller -- tail -f /var/log/slurm/slurmctld.log",
        "./hpc ssh dev cpu-0 --as alice"),
    LazyCommand("ssh-config", "ssh:ssh_config", _USE,
        "./hpc ssh-config dev", "./hpc ssh-config dev -u alice", "./hpc ssh-config dev --admin-key"),
    LazyCommand("examples", "jobs.examples:examples", _USE,
        "./hpc examples dev", "./hpc examples a3mega --list", "./hpc examples nebius --copy-to /tmp/examples"),
    LazyCommand("status", "status:status", _KEEP, "./hpc status dev", "./hpc status dev --json"),
    LazyCommand("health", "health:health", _KEEP,
        "./hpc health dev", "./hpc health dev gpu-0 --run", "./hpc health dev --json"),
    LazyCommand("dashboard", "dashboard:dashboard", _KEEP,
        "./hpc dashboard dev", "./hpc dashboard dev --job 7", "./hpc dashboard dev --grafana grafana/"),
    LazyCommand("drift", "drift:drift", _KEEP,
        "./hpc drift dev", "./hpc drift dev --mend", "./hpc drift dev --json"),
    LazyCommand("outputs", "state:outputs", _USE,
        "./hpc outputs dev", "./hpc outputs dev login", "./hpc outputs dev --json --show-secrets"),
    LazyCommand("logs", "logs:logs", _KEEP,
        "./hpc logs dev slurmctld -f", "./hpc logs dev slurmd --since 15m", "./hpc logs dev prolog --on cpu-0 -n 200",
        "./hpc logs dev controller"),
    LazyCommand("nodes", "nodes:nodes", _KEEP,
        "./hpc nodes dev", "./hpc nodes dev drain cpu-[0-3] --reason 'new driver' --wait",
        "./hpc nodes dev resume cpu-0 cpu-1", "./hpc nodes dev reboot gpu-0"),
    LazyCommand("warm-up", "jobs.warm_up:warm_up", _KEEP,
        "./hpc warm-up a3mega", "./hpc warm-up nebius --image nvcr.io/nvidia/pytorch:24.04-py3 --nodes gpu-[0-3]"),
    LazyCommand("usage", "usage:usage", _KEEP,
        "./hpc usage dev", "./hpc usage dev --by account --since 2026-11-01 --until 2026-12-01",
        "./hpc usage dev --user alice --since 7d --json"),
    LazyCommand("job", "job:job", _USE, "./hpc job dev 7", "./hpc job dev 7_3 --json"),
    LazyCommand("topology", "job:topology", _KEEP, "./hpc topology a3mega", "./hpc topology a3mega --job 7"),
    LazyCommand("reliability", "usage:reliability", _KEEP,
        "./hpc reliability dev", "./hpc reliability a3mega --since 90d --checkpoint 30m --restart 10m --json"),
    LazyCommand("report", "report:report", _KEEP,
        "./hpc report dev", "./hpc report a3mega --since 90d --output /tmp/a3mega.html"),
    LazyCommand("env", "backend:env", _USE,
        'eval "$(./hpc env nebius)"', 'eval "$(./hpc env nebius --unset)"', "./hpc env a3mega --json"),
    LazyCommand("stacks", "state:stacks", _KEEP, "./hpc stacks"),
    LazyCommand("ls", "state:stacks", None, hidden=True),
    LazyCommand("nebius-token", "nebius_token:nebius_token", None, hidden=True),
    LazyCommand("install-pulumi", "installation:install_pulumi", _KEEP, "./hpc install-pulumi"),
    LazyCommand("completion", "installation:completion", _KEEP,
        'eval "$(./hpc completion bash)"', "./hpc completion fish | source"),
    LazyCommand("version", "installation:version", _KEEP, "./hpc version"),
    LazyCommand("test", "test:run_tests", _DEVELOP,
        "./hpc test --fast", "./hpc test --only types --only tests", "./hpc test --only tests -- -k quoting -x"),
    LazyCommand("schema", "installation:schema", _DEVELOP, "./hpc schema --write"),
    LazyGroup("check", "Check the cloud before `up`, and with small jobs that a cluster works as users need it.",
        LazyCommand("cloud", "cloud:cloud", None,
            "./hpc check cloud classic", "./hpc check cloud a3mega --json",
            "./hpc check cloud a3mega --send seen.json"),
        LazyCommand("jobs", "jobs.check:jobs", None,
            "./hpc check jobs dev", "./hpc check jobs a3mega --suite hello --nodes a3mega-[0-3] --as alice",
            "./hpc check jobs dev --json"),
        rich_help_panel=_KEEP,
    ),
    LazyGroup("config", "Write a provider's setting into a stack file.",
        LazyCommand("set", "config:set_", None, "./hpc config set a3mega gcp:credentials --secret <key.json"),
        rich_help_panel=_CHANGE,
    ),
    LazyGroup("user", "Add, remove and list the people who use a cluster.",
        LazyCommand("add", "user:add", None,
            "./hpc user add dev carol --key carol.pub --account research",
            "./hpc user add dev carol --key - --qos normal --qos urgent --sudo <carol.pub"),
        LazyCommand("remove", "user:remove", None, "./hpc user remove dev carol"),
        LazyCommand("list", "user:list_", None, "./hpc user list dev", "./hpc user list dev --json"),
        rich_help_panel=_CHANGE,
    ),
    LazyGroup("accounting", "Back up the records of jobs and users, and bring them back.",
        LazyCommand("backup", "accounting:backup", None,
            "./hpc accounting backup dev", "./hpc accounting backup dev /backups/"),
        LazyCommand("restore", "accounting:restore", None,
            "./hpc accounting restore dev dev-accounting-20261121-053000.sql.gz"),
        rich_help_panel=_KEEP,
    ),
    LazyGroup("nccl", "Measure the bandwidth between GPUs, and compare it with what it should be.",
        LazyCommand("build", "jobs.nccl:build", None,
            "./hpc nccl build a3mega", "./hpc nccl build a3mega --as alice --dry-run"),
        LazyCommand("run", "jobs.nccl:run", None,
            "./hpc nccl run a3mega", "./hpc nccl run a3mega --nodes 4 --collective all_reduce --check",
            "./hpc nccl run a3mega --pairs", "./hpc nccl run nebius --nodes 1 --over fabric",
            "./hpc nccl run a3mega --dry-run | ./hpc run a3mega-rehearsal -- sbatch --test-only"),
        LazyCommand("report", "jobs.nccl_report:report", None,
            "./hpc nccl report nccl-17.log", "./hpc nccl report 17 --stack a3mega --png nccl.png",
            "./hpc nccl report slurm-17.out --machine-type a3-megagpu-8g --nodes 2 --collective all_gather",
            "./hpc nccl report new.log --against earlier/", "./hpc nccl report earlier/ --json"),
        rich_help_panel=_USE,
    ),
    LazyGroup("mlperf", "Run MLPerf's Stable Diffusion and GPT-3, and compare the time of training steps.",
        LazyCommand("prepare", "jobs.mlperf:prepare", None,
            "./hpc mlperf prepare nebius stable-diffusion", "./hpc mlperf prepare nebius stable-diffusion --dry-run",
            "./hpc mlperf prepare a3mega gpt3 --data /lustre/gpt3 --checkpoint mlc:bucket/checkpoint.tar"),
        LazyCommand("run", "jobs.mlperf:run", None,
            "./hpc mlperf run nebius stable-diffusion --nodes 2", "./hpc mlperf run nebius gpt3 --nodes 8 --dry-run"),
        LazyCommand("report", "jobs.mlperf_report:report", None,
            "./hpc mlperf report train.out", "./hpc mlperf report train.out -g 2xH100 --png train.png",
            "./hpc mlperf report 1234 --stack nebius"),
        rich_help_panel=_USE,
    ),
    LazyGroup("backend", "Create the bucket that holds the state of stacks.",
        LazyGroup("init", "Find or create a versioned state bucket, and what Pulumi needs to reach it.",
            LazyCommand("nebius", "backend:nebius", None,
                "./hpc backend init nebius --stack nebius --dry-run",
                "./hpc backend init nebius --tenant tenant-e00abc --project project-e00abc --region eu-north1"),
            LazyCommand("gcs", "backend:gcs", None,
                "./hpc backend init gcs --stack a3mega", "./hpc backend init gcs --project my-project --location EU"),
        ),
        LazyCommand("list", "backend:list_", None, "./hpc backend list", "./hpc backend list --json"),
        rich_help_panel=_KEEP,
    ),
    LazyGroup("state", "Move a stack's state in and out, free its lock, edit single resources in it.",
        LazyCommand("export", "state:export", None,
            "./hpc state export dev dev.json", "./hpc state export dev >dev.json"),
        LazyCommand("import", "state:import_", None, "./hpc state import dev dev.json"),
        LazyCommand("unlock", "state:unlock", None, "./hpc state unlock dev"),
        LazyCommand("unprotect", "state:unprotect", None,
            "./hpc state unprotect dev --all", "./hpc state unprotect dev 'urn:...'"),
        LazyCommand("delete", "state:delete", None, "./hpc state delete dev 'urn:...'"),
        LazyCommand("rename", "state:rename", None, "./hpc state rename dev 'urn:...::old-name' new-name"),
        rich_help_panel=_KEEP,
    ),
    epilog="Start here: ./hpc up dev",
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, and end the process with its exit code. Without a command, print the help."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["ssh"] and "--" in words:
        words.insert(words.index("--") + 1, COMMAND_FOLLOWS)
    words = ["version"] if words == ["--version"] else words
    if COMPLETE in os.environ:
        from typer._completion_classes import completion_init  # commands do not need it

        completion_init()
    app(words or ["--help"], prog_name="./hpc", complete_var=COMPLETE)
