"""preview, up, destroy, refresh."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Exit, Option

from cli import console, effects, engines, guard, options, project, stackfile, unfinished
from cli.commands import outputs
from cli.errors import CliError, words

if TYPE_CHECKING:
    from cluster.config import ClusterConfig

Kind = Literal["preview", "up", "destroy", "refresh"]


def preview(
    stack: options.Stack,
    *,
    engine: options.Engine = None,
    json: options.Json = False,
    parallel: options.Parallel = None,
    config_file: options.ConfigFile = None,
) -> None:
    """Show what `up` would do, and do nothing; the last lines say what an edit does to running jobs.

    Needs neither root nor credentials. Exit code 0 also when there are changes, or some that `up` would refuse.
    """
    raise Exit(run("preview", stack, engine=engine, json=json, parallel=parallel, config_file=config_file, yes=False))


def up(
    stack: options.Stack,
    *,
    engine: options.Engine = None,
    json: options.Json = False,
    parallel: options.Parallel = None,
    config_file: options.ConfigFile = None,
    yes: options.Yes = False,
) -> None:
    """Make the cluster what its stack file says.

    Safe to repeat: what is right already is left alone, and an `up` that was stopped half-way goes on where it was.
    On this machine it needs root, and installs the host's missing packages after saying so.
    """
    raise Exit(run("up", stack, engine=engine, json=json, parallel=parallel, config_file=config_file, yes=yes))


def destroy(
    stack: options.Stack,
    *,
    engine: options.Engine = None,
    json: options.Json = False,
    parallel: options.Parallel = None,
    config_file: options.ConfigFile = None,
    yes: options.Yes = False,
    leftovers: Annotated[
        bool, Option("--leftovers", help="Remove what is on this host of a stack whose state is lost.")
    ] = False,
) -> None:
    """Remove everything the stack made.

    Asks first if the stack has deletion_protection or is not a rehearsal on this machine.
    """
    if leftovers:
        from cli import leftovers as left

        left.remove(stackfile.read(project.ROOT, stack, config_file), yes=yes, json=json)
        return
    raise Exit(run("destroy", stack, engine=engine, json=json, parallel=parallel, config_file=config_file, yes=yes))


def refresh(
    stack: options.Stack,
    *,
    engine: options.Engine = None,
    json: options.Json = False,
    parallel: options.Parallel = None,
    config_file: options.ConfigFile = None,
    yes: options.Yes = False,
) -> None:
    """Compare the state with what is really there, and correct the state.

    Changes nothing else: the next `up` mends what has drifted.
    """
    raise Exit(run("refresh", stack, engine=engine, json=json, parallel=parallel, config_file=config_file, yes=yes))


def run(
    kind: Kind,
    stack: str,
    *,
    engine: options.EngineName | None,
    json: bool,
    parallel: int | None,
    config_file: Path | None,
    yes: bool,
    more: Mapping[str, Any] | None = None,
) -> int:
    """Do one of the four, and show it; the exit code. `more` goes into the JSON document."""
    config = None
    if kind in ("preview", "up"):
        file = project.require_file(stack, config_file)
        config = file.parse()
    else:
        # What is wrong with a stack file, or that it is gone, must not keep its cluster from being removed.
        file = stackfile.read(project.ROOT, stack, config_file)
    asked = _asked(config) if config and kind == "preview" else []
    if asked:
        more = {**(more or {}), "asks": asked}
    pulumi = engines.choose(engine, file, kind)
    if kind == "destroy" and not _never_up(file, pulumi):
        _confirm_destroy(file, yes=yes, pulumi_asks=pulumi is not None)
    told = effects.of(stack, config, pulumi) if config else None
    if told and kind == "up":
        _warn(told, json=json)
    if file.local and kind != "preview":
        _prepare(stack, config)
    earlier = kind == "up" and unfinished.begin(stack)
    if pulumi:
        from cli import pulumi_cli

        # The CLI asks by itself; on a rehearsal there is nothing to lose, and the embedded engine does not ask either.
        yes = yes or not file.protected
        code = pulumi_cli.update(
            pulumi, kind, file, json=json, parallel=parallel, config_file=config_file, yes=yes, told=told
        )
    else:
        code = _embedded(kind, file, json=json, parallel=parallel, told=told, more=more)
    if code == 0 and asked and not json:
        console.line("What the stack asks Google Cloud for, whole", style="bold")
        for text in asked:
            console.line(f"  {text}")
    if code == 0 and earlier:
        unfinished.settle(stack, outputs.read(stack, show_secrets=True), quiet=json)
    elif code == 0 and kind in ("up", "destroy"):
        unfinished.end(stack)
    return code


def _prepare(stack: str, config: "ClusterConfig | None") -> None:
    """Before anything is made or removed on this machine; `config` is what an `up` is to make."""
    from cli import leftovers, localhost

    if config:
        leftovers.refuse(config.name, stack)
    localhost.prepare()


def _asked(config: "ClusterConfig") -> list[str]:
    """What a stack asks a cloud for, in lines; nothing of a rehearsal, which costs nothing."""
    if config.platform != "gcp":
        return []
    from cluster.gcp.request import told

    return told(config)


def _warn(told: effects.Effects, *, json: bool) -> None:
    """Before the first step of an `up`: refuse what can't be done, and say what will be waited for."""
    try:
        told.refuse()
    except CliError as error:
        if json:
            document = {"stack": told.stack, "kind": "up", "ok": False, "error": str(error)}
            console.json({**document, "effects": told.document()})
        raise
    if told.waits and not json:
        for text, style in told.lines(steps=True):
            console.line(text, style=style)


def _confirm_destroy(file: stackfile.StackFile, *, yes: bool, pulumi_asks: bool) -> None:
    if yes or not file.protected or (pulumi_asks and console.interactive()):
        return
    why = "has deletion_protection" if file.local else "is not a rehearsal on this machine"
    if file.settings is None:
        why = f"has lost its file {file.path.name}, which says what protects it"
    if not console.interactive():
        raise CliError(f"stack {file.stack} {why}: destroying it without a terminal needs --yes.")
    if not console.ask(f"Stack {file.stack} {why}. Destroy everything it made?"):
        raise CliError("nothing was destroyed.")


def _embedded(
    kind: Kind,
    file: stackfile.StackFile,
    *,
    json: bool,
    parallel: int | None,
    told: effects.Effects | None,
    more: Mapping[str, Any] | None,
) -> int:
    """Run on the embedded engine; the exit code."""
    from cli import display
    from cli.display.summary import interrupted
    from engine import EngineError, NotRunnable, Result

    if kind in ("destroy", "refresh") and _never_up(file, None):
        if file.settings is None:
            project.require_state(file.stack)  # says which stacks there are
        nothing(kind, file.stack, json=json)
        from cli import leftovers

        if kind == "destroy" and not json and (hint := leftovers.hint(file)):
            console.note(hint)
        return 0
    stack = project.workspace().stack(file.stack, file.path)
    with display.choose(json=json) as view:
        view.effects, view.more = told, more or {}
        try:
            result: Result = getattr(stack, kind)(view.on_event, parallel=parallel)
        except EngineError as error:
            view.failed(words(error))
            if isinstance(error, NotRunnable):
                engines.require_pulumi("this needs the Pulumi CLI")
            return 1
        view.close(result)
    if file.local and result.failures:
        from cli import consoles

        consoles.show(result.failures, file.stack)
    if kind == "up" and result.ok and file.local and not json:
        console.line(f"Try: ./hpc run {file.stack} -- srun -l hostname")
    return guard.INTERRUPTED if interrupted(result) else 0 if result.ok else 1


def _never_up(file: stackfile.StackFile, pulumi: str | None) -> bool:
    """Whether the embedded engine, which keeps its state in files, has none of the stack."""
    return pulumi is None and file.stack not in project.workspace().stacks()


def nothing(kind: Kind, stack: str, *, json: bool) -> None:
    """Show that there was nothing to do for a stack that has no state."""
    if not json:
        console.note(f"Nothing to do: stack {stack} has not been brought up.")
        return
    from cli import display
    from engine import Result
    from engine.events import Started

    view = display.choose(json=True)
    view.on_event(Started(kind, stack, project.workspace().project.name))
    view.close(Result(kind, ok=True))
