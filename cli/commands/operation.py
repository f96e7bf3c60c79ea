"""One preview, up, destroy or refresh, from the stack file to the exit code."""

from dataclasses import replace as changed

from cli import console, error_handler
from cli.access import machine_console
from cli.cluster import user_config
from cli.display import views
from cli.display.changes import interrupted
from cli.errors import CliError
from cli.interrupts import INTERRUPTED
from cli.stack import (
    destruction,
    drain_recovery,
    engines,
    impact,
    leftovers,
    localhost,
    outputs,
    project,
    pulumi_cli,
    stackfile,
)
from cli.stack.pulumi_install import require_pulumi
from cli.stack.run_options import Kind, RunOptions
from cli.stack.stack_config import StackFileError, on_this_host, parse, protected
from cluster.config import ClusterConfig
from cluster.platforms import registry
from engine import EngineError, NotRunnable, Result
from engine.events import Started


def run(kind: Kind, stack: str, chosen: RunOptions) -> int:
    """Do one of the four, and show it; the exit code."""
    config = None
    if kind in ("preview", "up"):
        file = project.require_file(stack, chosen.config_file)
        config = _parsed(file, kind, json=chosen.json)
    else:
        # What is wrong with a stack file, or that it is gone, must not keep its cluster from being removed.
        file = stackfile.read(project.ROOT, stack, chosen.config_file)
    title, summary = _summary(config) if config and kind == "preview" else ("", [])
    if summary:
        chosen = changed(chosen, more={**chosen.more, "asks": summary})
    pulumi = engines.choose(chosen.engine, file, kind)
    if kind in ("destroy", "refresh") and _never_was(kind, file, pulumi, json=chosen.json):
        return 0
    sure = kind == "destroy" and destruction.confirmed(file, chosen, pulumi)
    told = impact.of(stack, config, pulumi) if config else None
    if told and kind == "up":
        _warn(told, json=chosen.json)
    if on_this_host(file) and kind != "preview":
        _prepare(stack, config)
    earlier = kind == "up" and drain_recovery.begin(stack)
    if pulumi:
        # The CLI asks by itself; on a rehearsal there is nothing to lose, and the embedded engine does not ask either.
        yes = chosen.yes or sure or not protected(file)
        code = pulumi_cli.update(pulumi, kind, file, chosen, yes=yes, impact=told)
    else:
        code = _embedded(kind, file, chosen, told)
    if code == 0 and summary and not chosen.json:
        console.line(f"What the stack asks {title} for, whole", style="bold")
        console.lines(f"  {line}" for line in summary)
    if code == 0 and earlier:
        drain_recovery.recover(stack, outputs.read(stack, show_secrets=True), quiet=chosen.json)
    elif code == 0 and kind in ("up", "destroy"):
        drain_recovery.end(stack)
    if code == 0 and kind == "destroy" and not (chosen.targets or chosen.excludes):
        user_config.Files(stack).remove()
    return code


def _parsed(file: stackfile.StackFile, kind: Kind, *, json: bool) -> ClusterConfig:
    try:
        return parse(file)
    except StackFileError as error:
        if json:
            console.json({"kind": kind, **error.document})
        raise


def _prepare(stack: str, config: ClusterConfig | None) -> None:
    """Before anything is made or removed on this machine; `config` is what an `up` is to make."""
    if config:
        leftovers.refuse(config.name, stack)
    localhost.prepare()


def _summary(config: ClusterConfig) -> tuple[str, list[str]]:
    """What a stack asks its platform for: the platform's title, and lines."""
    platform = registry.get(config.platform)
    return platform.title, list(platform.summary(config))


def _warn(told: impact.Effects, *, json: bool) -> None:
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


def _embedded(kind: Kind, file: stackfile.StackFile, chosen: RunOptions, told: impact.Effects | None) -> int:
    """Run on the embedded engine; the exit code."""
    space = project.workspace(file.stack, as_new=kind == "preview" and chosen.engine is None)
    stack = space.stack(file.stack, file.path, message=chosen.message)
    more = {} if kind == "refresh" else {"refresh": chosen.refresh}
    with views.choose(json=chosen.json) as view:
        view.effects, view.more, view.diff = told, chosen.more, chosen.diff
        try:
            result: Result = getattr(stack, kind)(view.on_event, parallel=chosen.parallel, scope=chosen.scope, **more)
        except EngineError as error:
            view.failed(error_handler.message(error))
            if isinstance(error, NotRunnable):
                require_pulumi("this needs the Pulumi CLI")
            return 1
        view.close(result)
    if result.ok and (pulumi := engines.passed_over(chosen.engine, file, kind)):
        pulumi_cli.ensure_stack(pulumi, kind, file)  # what `pulumi` alone then goes on with
    if on_this_host(file) and result.failures:
        machine_console.show(result.failures, file.stack)
    if kind == "up" and result.ok and on_this_host(file) and not chosen.json:
        console.line(f"Try: ./hpc run {file.stack} -- srun -l hostname")
    if chosen.expect_no_changes and result.ok and result.changes:
        console.error(f"no changes were expected (--expect-no-changes), and there are {len(result.changes)}.")
        return 1
    return INTERRUPTED if interrupted(result) else 0 if result.ok else 1


def _never_was(kind: Kind, file: stackfile.StackFile, pulumi: str | None, *, json: bool) -> bool:
    """Whether there is no state of the stack, so that nothing is to be done; that is shown.

    Raises:
        CliError: there is no such stack at all.
    """
    there = pulumi_cli.has(pulumi, file.stack) if pulumi else file.stack in project.workspace(file.stack).stacks()
    if there:
        return False
    if file.settings is None:
        project.require_file(file.stack)  # says which stacks there are
    nothing(kind, file.stack, json=json)
    drain_recovery.end(file.stack)
    if kind == "destroy":
        user_config.Files(file.stack).remove()
    if kind == "destroy" and not json and (hint := leftovers.hint(file)):
        console.note(hint)
    return True


def nothing(kind: Kind, stack: str, *, json: bool) -> None:
    """Show that there was nothing to do for a stack that has no state."""
    if not json:
        console.note(f"Nothing to do: stack {stack} has not been brought up.")
        return
    view = views.choose(json=True)
    view.on_event(Started(kind, stack, project.name()))
    view.close(Result(kind, ok=True))
