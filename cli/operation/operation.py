"""Runs a preview, up, destroy or refresh, from the stack file to the exit code.

Which engine runs it, what an edit does to running jobs, and who agrees before a stack is destroyed.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace as changed
from typing import Any

from cli import console, error_handler
from cli.display import views
from cli.display.changes import is_interrupted
from cli.errors import CliError
from cli.interrupts import INTERRUPTED
from cli.operation import drain_recovery, pulumi_cli, slurm_upgrade
from cli.operation.run_options import Kind, RunOptions
from cli.options import EngineName
from cli.stack import impact, outputs, project, stack_config, stackfile, state_dir, state_edit
from cli.stack.pulumi_program import require_pulumi
from cli.stack.stack_config import StackFileError, needs_cli, on_this_host, parse, platform, protected
from cli.stack.stackfile import StackFile
from cluster.config import ClusterConfig
from cluster.findings import listing
from cluster.platforms import registry
from cluster.platforms.base import Credentials
from engine import EngineError, NotRunnableError, Result
from engine.events import Started


def run(kind: Kind, stack: str, chosen: RunOptions) -> int:
    """Do one of the four, and show it; the exit code. An upgrade of Slurm is several `up`s."""
    code = _run(kind, stack, chosen)
    if kind != "up" or code == INTERRUPTED:
        return code
    if code:
        _go_back(stack, chosen)
    while code == 0 and slurm_upgrade.goes_on(stack, chosen):
        console.line("The upgrade goes on.", style="bold")
        code = _run(kind, stack, chosen)
    return code


def _go_back(stack: str, chosen: RunOptions) -> None:
    """After an `up` that failed: where that was because another release of Slurm did not take over, recreate the
    controller with the one before."""
    file = project.require_file(stack, chosen.config_file)
    old = slurm_upgrade.put_back(file, chosen, parse(file).slurm_version)
    if not old:
        return
    console.line(f"Going back to Slurm {old}.", style="bold")
    with slurm_upgrade.as_before(file, chosen) as before:
        code = _run("up", stack, before)
    end = f"runs Slurm {old} again. Put it back in {file.path.name}, or correct what the error above says"
    console.error(f"stack {stack} {end}." if code == 0 else f"Slurm {old} did not come up either: see above.")


def _run(kind: Kind, stack: str, chosen: RunOptions) -> int:
    config = None
    if kind in ("preview", "up"):
        file = project.require_file(stack, chosen.config_file)
        config = _parsed(file, kind, json=chosen.json)
    else:
        # What is wrong with a stack file, or that it is gone, must not keep its cluster from being removed.
        file = stackfile.read(project.ROOT, stack, chosen.config_file)
    asked = registry.get(config.platform) if config and kind == "preview" else None
    summary = list(asked.summary(config)) if asked and config else []
    if summary:
        chosen = changed(chosen, more={**chosen.more, "asks": summary})
    pulumi = choose(chosen.engine, file, kind)
    if kind in ("destroy", "refresh") and _never_was(kind, file, pulumi, json=chosen.json):
        return 0
    sure = kind == "destroy" and confirmed(file, chosen, pulumi)
    impacts = impact.of(stack, config, pulumi) if config else None
    if impacts and kind == "up":
        _warn(impacts, json=chosen.json)
    if on_this_host(file) and kind != "preview":
        _prepare(stack, config)
    earlier = kind == "up" and drain_recovery.begin(stack)
    turned = impacts.static if impacts and kind == "up" and not (chosen.targets or chosen.excludes) else ()
    _vacate(stack, turned, config, quiet=chosen.json, ask=bool(pulumi) and not chosen.yes)
    if pulumi:
        # The CLI asks by itself; on a rehearsal there is nothing to lose, and the embedded engine does not ask either.
        yes = chosen.yes or sure or not protected(file)
        code = pulumi_cli.update(pulumi, kind, file, chosen, yes=yes, impact=impacts)
    else:
        code = _embedded(kind, file, chosen, impacts)
    if code == 0 and summary and not chosen.json:
        console.line(f"What the stack asks {asked.title if asked else ''} for, whole", style="bold")
        console.lines(f"  {line}" for line in summary)
    if code == 0 and earlier:
        drain_recovery.recover(stack, outputs.read(stack, show_secrets=True), quiet=chosen.json)
    elif code == 0 and kind in ("up", "destroy"):
        drain_recovery.end(stack)
    if code == 0 and kind == "destroy" and not (chosen.targets or chosen.excludes):
        _remove_ssh_files(stack)
    return code


def _prepare(stack: str, config: ClusterConfig | None) -> None:
    from cli.operation import localhost

    if config:
        localhost.refuse_leftovers(config.name, stack)
    localhost.prepare()


def _remove_ssh_files(stack: str) -> None:
    from cli.cluster import user_config

    user_config.Files(stack).remove()


def nothing(kind: Kind, stack: str, *, json: bool) -> None:
    """Show that there was nothing to do for a stack that has no state."""
    if not json:
        console.note(f"Nothing to do: stack {stack} has not been brought up.")
        return
    view = views.choose_view(json=True)
    view.on_event(Started(kind, stack, project.name()))
    view.close(Result(kind, ok=True))


def _parsed(file: StackFile, kind: Kind, *, json: bool) -> ClusterConfig:
    try:
        return parse(file)
    except StackFileError as error:
        if json:
            console.json({"kind": kind, **error.document})
        raise


def _warn(impacts: impact.Effects, *, json: bool) -> None:
    """Before the first step of an `up`: refuse what can't be done, and say what will be waited for."""
    try:
        impacts.refuse()
    except CliError as error:
        if json:
            document = {"stack": impacts.stack, "kind": "up", "ok": False, "error": str(error)}
            console.json({**document, "effects": impacts.document()})
        raise
    if impacts.waits and not json:
        for text, style in impacts.lines(steps=True):
            console.line(text, style=style)


def _embedded(kind: Kind, file: StackFile, chosen: RunOptions, impacts: impact.Effects | None) -> int:
    space = project.workspace(file.stack, as_new=kind == "preview" and chosen.engine is None)
    stack = space.stack(file.stack, file.path, message=chosen.message)
    more = {} if kind == "refresh" else {"refresh": chosen.refresh}
    with views.choose_view(json=chosen.json) as view:
        view.effects, view.more, view.diff = impacts, chosen.more, chosen.diff
        try:
            result: Result = getattr(stack, kind)(view.on_event, parallel=chosen.parallel, scope=chosen.scope, **more)
        except EngineError as error:
            view.fail(error_handler.message(error))
            if isinstance(error, NotRunnableError):
                require_pulumi("this needs the Pulumi CLI")
            return 1
        view.close(result)
    if result.ok and (pulumi := passed_over(chosen.engine, file, kind)):
        pulumi_cli.ensure_stack(pulumi, kind, file)  # what `pulumi` alone then goes on with
    if on_this_host(file) and result.failures:
        from cli.operation import localhost

        localhost.show_consoles(result.failures, file.stack)
    if kind == "up" and result.ok and on_this_host(file) and not chosen.json:
        console.line(f"Try: ./hpc run {file.stack} -- srun -l hostname")
    if chosen.expect_no_changes and result.ok and result.changes:
        console.error(f"no changes were expected (--expect-no-changes), and there are {len(result.changes)}.")
        return 1
    return INTERRUPTED if is_interrupted(result) else 0 if result.ok else 1


def _never_was(kind: Kind, file: StackFile, pulumi: str | None, *, json: bool) -> bool:
    """Return whether there is no state of the stack, so that nothing is to be done; that is shown.

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
        from cli.operation import localhost

        _remove_ssh_files(file.stack)
        if not json and (hint := localhost.leftovers_hint(file)):
            console.note(hint)
    return True


def choose(wanted: EngineName | None, file: StackFile, kind: str) -> str | None:
    """The Pulumi CLI to run this with, or None for the embedded engine.

    Without `wanted`, the CLI on PATH; without one, the embedded engine as far as it goes: it keeps state in files, and
    creates nothing where a provider has to log in (a preview creates nothing at all). It also runs what `./hpc
    rehearse` wrote, and a preview without credentials, for which the CLI would need them.

    Raises:
        CliError: the CLI is needed, not there, and not wanted.
    """
    on_path = shutil.which("pulumi")
    on_files, (url, who) = state_dir.on_files(file.stack), state_dir.located(file.stack)
    missing = _missing(wanted, file, kind)
    new = "" if on_files else f" It shows a new stack, since it can't read the state at {url} ({who})."
    if missing and (on_path or new):
        console.note(
            f"No {missing.title} credentials are here, so the embedded engine shows this preview.{new} The Pulumi "
            f"CLI does with --engine pulumi, or once there are some: {missing.todo}"
        )
    if missing or wanted is EngineName.EMBEDDED or file.rehearses:
        return None
    if on_path:
        return on_path
    if wanted is EngineName.PULUMI:
        why = "--engine pulumi asks for the Pulumi CLI"
    elif not on_files:
        here = "" if needs_cli(file) else f"; PULUMI_BACKEND_URL={state_dir.own()} would keep it on this machine"
        why = f"state at {url} ({who}{here}) needs the Pulumi CLI"
    elif not needs_cli(file) or kind == "preview":
        return None
    elif kind != "up" and file.settings is not None and file.stack not in project.workspace(file.stack).stacks():
        return None  # nothing was created
    else:
        why = (
            f"{kind} of a stack on {file.platform} is for `pulumi {kind} --stack {file.stack}`, since the embedded "
            "engine creates machines on this host only. That needs the Pulumi CLI"
        )
    return require_pulumi(why)


def passed_over(wanted: EngineName | None, file: StackFile, kind: str) -> str | None:
    """The Pulumi CLI on PATH that a preview did without, for lack of credentials; its state is in files, and somebody
    chose where: a stack in our own folder by default would stay there after a `pulumi login` elsewhere."""
    chosen = state_dir.on_files(file.stack) and state_dir.located(file.stack)[1] != "the default"
    return shutil.which("pulumi") if chosen and _missing(wanted, file, kind) else None


def _missing(wanted: EngineName | None, file: StackFile, kind: str) -> Credentials | None:
    """Credentials that the CLI would need for a preview, where no engine is asked for, and nobody has here."""
    found = platform(file)
    credentials = found.credentials if found else None
    if wanted is not None or kind != "preview" or file.rehearses or credentials is None:
        return None
    return None if credentials.found(file.settings or {}) else credentials


_MOST = 20
"""Lines of what will be lost; more are counted."""


def confirmed(file: StackFile, chosen: RunOptions, pulumi: str | None) -> bool:
    """Have the user agree, as far as that is needed; whether nobody needs to be asked again.

    What is protected is refused before the first step, and not after half of the stack has gone; with --unprotect it is
    protected no more, once the user has typed the cluster's name. Raises CliError: the user does not agree, can't be
    asked, or must say more."""
    rows = state_edit.rows(file.stack, pulumi)
    protected = [row for row in rows if row.get("protect") and not row.get("delete")]
    if chosen.unprotect:
        if chosen.targets or chosen.excludes:
            raise CliError("--unprotect destroys the whole stack: leave out --target and --exclude.")
        if pulumi is None and stack_config.needs_cli(file):
            raise CliError(
                f"the embedded engine can't destroy what is on {file.platform}: leave out --engine embedded."
            )
        _typed(file, chosen, protected, rows)
        if protected:
            state_edit.unprotect(file.stack, None, pulumi)
        return True
    if protected and not (chosen.targets or chosen.excludes):
        raise CliError(
            "\n".join(
                [
                    f"stack {file.stack} holds data that is protected, and nothing was destroyed:",
                    *_lines(protected),
                    f"To destroy it with its data: ./hpc destroy {file.stack} --unprotect",
                ]
            )
        )
    _agreed(file, yes=chosen.yes, pulumi_asks=pulumi is not None)
    return False


def _agreed(file: StackFile, *, yes: bool, pulumi_asks: bool) -> None:
    if yes or not stack_config.protected(file) or (pulumi_asks and console.interactive()):
        return
    why = "has deletion_protection" if stack_config.on_this_host(file) else "is not a rehearsal on this machine"
    if file.settings is None:
        why = f"has lost its file {file.path.name}, which says what protects it"
    question = f"Stack {file.stack} {why}. Destroy everything it made?"
    console.confirm(question, doing=f"stack {file.stack} {why}: destroying it", no="nothing was destroyed.")


def _typed(
    file: StackFile, chosen: RunOptions, protected: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> None:
    name = _name(file, rows)
    others = sum(1 for row in rows if row.get("custom") and not row["type"].startswith("pulumi:")) - len(protected)
    if not chosen.json:
        console.line(
            f"This destroys cluster {name} (stack {file.stack}). Lost for good, with all data in it:", style="bold red"
        )
        for text in _lines(protected) or ["  nothing that is protected"]:
            console.line(text)
        console.line(f"  and {others} other resources: machines, networks, keys")
    given = chosen.confirm
    if not given:
        if not console.interactive():
            raise CliError("destroying what is protected without a terminal needs --confirm NAME, the cluster's name.")
        given = console.answer(f"Type the cluster's name ({name}) to destroy it: ")
    if given != name:
        raise CliError(f"{given!r} is not the cluster's name, which is {name}: nothing was destroyed.")


def _lines(protected: Sequence[Mapping[str, Any]]) -> list[str]:
    found = [f"  {row['urn'].rpartition('::')[2]}  {row['type']}" for row in protected]
    return found[:_MOST] + ([f"  and {len(found) - _MOST} more"] if len(found) > _MOST else [])


def _name(file: StackFile, rows: Sequence[Mapping[str, Any]]) -> str:
    """The cluster's name as the stack exports it; of a stack that never came so far, as its file says, or its own."""
    outputs = next((row.get("outputs") or {} for row in rows if row["type"] == "pulumi:pulumi:Stack"), {})
    return str(outputs.get("cluster") or file.cluster or file.stack)


OFF_SECONDS = 900
"""Until machines are deleted, beyond the time for their jobs: longer than the set-up waits (jobs/drain.py)."""


def _vacate(stack: str, names: Sequence[str], config: ClusterConfig | None, *, quiet: bool, ask: bool) -> None:
    """Drain these nodes, and have their machines deleted. `ask`: agree first, as the Pulumi CLI asks only after this.

    Raises:
        CliError: jobs still run there, the controller does not answer, or the user does not agree.
    """
    if not names or config is None:
        return
    # Slow to import, and most runs have no such nodes.
    from cli.access import remote
    from cli.cluster.cluster import from_outputs
    from components.slurm.payload import phase_command

    what = f"{listing(names)} become{'s' if len(names) == 1 else ''} static"
    if ask and console.interactive():
        console.confirm(f"{what}. Drain now, and delete the elastic machines?", doing=what)
    if not quiet:
        console.line(f"{what}: waiting until no job runs there, and the elastic machines are deleted.")
    reached = from_outputs(stack, outputs.read(stack, show_secrets=True))
    done = remote.capture(
        reached.controller,
        reached.admin_key,
        phase_command("vacate"),
        stdin=json.dumps({"nodes": list(names)}),
        seconds=config.slurm.drain_seconds + OFF_SECONDS,
    )
    for line in () if quiet else done.out.splitlines():
        console.line(f"  {reached.controller.name}: {line}", style="dim")
    if done.code:
        raise CliError(f"{what}, and may still have elastic machines: {(done.err or done.out).strip()}")
