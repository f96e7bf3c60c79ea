"""Runs a preview, up, destroy or refresh, from the stack file to the exit code.

It chooses the engine, shows an edit's effects on running jobs, asks before it destroys a stack, and runs the steps of
an upgrade of Slurm.
"""

import json
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cli import console, error_handler
from cli.display import views
from cli.display.changes import is_interrupted
from cli.errors import CliError
from cli.interrupts import INTERRUPTED
from cli.operation import cloud_check, drain_recovery, pulumi_cli
from cli.operation.run_options import Kind, RunOptions
from cli.options import EngineName
from cli.stack import impact_of_edit, outputs, project, stack_config, stackfile, state_dir, state_edit
from cli.stack.pulumi_program import require_pulumi
from cli.stack.stack_config import needs_cli, on_this_host, parse, platform_of, protected
from cli.stack.stackfile import StackFile
from cluster.config import ClusterConfig
from cluster.cost import text
from cluster.cost.estimate import estimate
from cluster.findings import listing
from cluster.impact import upgrade
from cluster.load import deployed_config
from cluster.platform_interface import Platform, ProviderLogin
from cluster.platforms import registry
from engine import EngineError, NotRunnableError, Result, yamlfile
from engine.events import Started


def run(kind: Kind, stack: str, chosen: RunOptions) -> int:
    """Run one operation and show it. Returns the exit code. An upgrade of Slurm takes several `up`s."""
    try:
        return _run_all(kind, stack, chosen)
    except CliError as error:
        error.document = {"kind": kind, **error.document}
        raise


def _run_all(kind: Kind, stack: str, chosen: RunOptions) -> int:
    code = _run(kind, stack, chosen)
    if kind != "up" or code == INTERRUPTED:
        return code
    if code:
        _restore_release(stack, chosen)
    while code == 0 and _upgrade_continues(stack, chosen):
        console.line("The upgrade goes on.", style="bold")
        code = _run(kind, stack, chosen)
    return code


def _restore_release(stack: str, chosen: RunOptions) -> None:
    """Recreate the controller with the earlier release of Slurm if an `up` failed because a new one did not start."""
    file = project.require_file(stack, chosen.config_file)
    old = _release_before(file, chosen, parse(file).slurm_version)
    if not old:
        return
    console.line(f"Going back to Slurm {old}.", style="bold")
    with _options_as_before(file, chosen) as before:
        code = _run("up", stack, before)
    end = f"runs Slurm {old} again. Put it back in {file.path.name}, or correct what the error above says"
    console.error(f"stack {stack} {end}." if code == 0 else f"Slurm {old} did not come up either: see above.")


def _run(kind: Kind, stack: str, chosen: RunOptions) -> int:
    config = None
    if kind in ("preview", "up"):
        file = project.require_file(stack, chosen.config_file)
        config = parse(file)
    else:
        # A stack file that has errors or is gone must not keep its cluster from being removed.
        file = stackfile.read(project.ROOT, stack, chosen.config_file)
    platform = registry.get(config.platform) if config and kind == "preview" else None
    summary = list(platform.describe_request(config)) if platform and config else []
    if config and summary and chosen.json:
        known, price = cloud_check.last(stack), estimate(config, cloud_check.kept_prices()).document()
        more = {"asks": summary, "price": price, "seen": known.document() if known else None}
        chosen = replace(chosen, more={**chosen.more, **more})
    pulumi = choose_engine(chosen.engine, file, kind)
    if kind in ("destroy", "refresh") and _has_no_state(kind, file, pulumi, json=chosen.json):
        return 0
    confirmed = kind == "destroy" and confirm_destroy(file, chosen, pulumi)
    asked = bool(chosen.targets or chosen.excludes or chosen.replace or chosen.refresh)
    impacts = impact_of_edit.effects_of_edit(stack, config, pulumi, asked=asked) if config else None
    if config and kind == "up":
        _ask_before_up(stack, config, impacts, chosen)
    if on_this_host(file) and kind != "preview":
        _prepare_host(stack, config)
    earlier_failed = kind == "up" and drain_recovery.begin(stack)
    new_static = impacts.static if impacts and kind == "up" and not (chosen.targets or chosen.excludes) else ()
    _vacate(stack, new_static, config, quiet=chosen.json, ask=bool(pulumi) and not chosen.yes)
    if pulumi:
        # Without --yes the CLI asks. For a rehearsal, which has nothing to lose, neither engine asks.
        yes = chosen.yes or confirmed or not protected(file)
        code = pulumi_cli.update(pulumi, kind, file, chosen, yes=yes, impact=impacts)
    else:
        code = _run_embedded(kind, file, chosen, impacts)
    if code == 0 and platform and config and summary and not chosen.json:
        _show_request(platform, config, summary, impacts)
        console.lines(cloud_check.seen(stack, config))
    if code == 0 and earlier_failed:
        drain_recovery.recover(stack, outputs.read(stack, show_secrets=True), quiet=chosen.json)
    elif code == 0 and kind in ("up", "destroy"):
        drain_recovery.end(stack)
    if code == 0 and kind == "destroy" and not (chosen.targets or chosen.excludes):
        _remove_ssh_files(stack)
    return code


def _show_request(
    platform: Platform, config: ClusterConfig, summary: Sequence[str], impacts: impact_of_edit.Effects | None
) -> None:
    """Show the end of a preview: what the stack asks its platform for, and what that costs."""
    console.line(f"What the stack asks {platform.title} for, whole", style="bold")
    console.lines(f"  {line}" for line in summary)
    kept = cloud_check.kept_prices()
    found, before = estimate(config, kept), estimate(impacts.before, kept) if impacts else None
    if found.rows:
        console.line("What it costs", style="bold")
        console.lines(f"  {line}" for line in text.preview(found, before, datetime.now(timezone.utc).date()))


def _prepare_host(stack: str, config: ClusterConfig | None) -> None:
    from cli.operation import localhost

    if config:
        localhost.refuse_leftovers(config.name, stack)
    localhost.prepare()


def _remove_ssh_files(stack: str) -> None:
    from cli.cluster import user_config

    user_config.StackFiles(stack).remove()


def show_nothing_to_do(kind: Kind, stack: str, *, json: bool) -> None:
    """Show that there is nothing to do for a stack without state."""
    if not json:
        console.note(f"Nothing to do: stack {stack} has not been brought up.")
        return
    view = views.choose_view(json=True)
    view.on_event(Started(kind, stack, project.name()))
    view.close(Result(kind, ok=True))


def _refuse_or_announce(impacts: impact_of_edit.Effects, *, json: bool) -> None:
    """Before the first step of an `up`, print what it will wait for. Raises CliError: the edit can't be made."""
    try:
        impacts.refuse()
    except CliError as error:
        error.document = {"effects": impacts.document()}
        raise
    if impacts.waits and not json:
        for text, style in impacts.lines(steps=True):
            console.line(text, style=style)


def _ask_before_up(
    stack: str, config: ClusterConfig, impacts: impact_of_edit.Effects | None, chosen: RunOptions
) -> None:
    """Refuse or announce an edit, and ask the cloud for what it adds. Raises CliError: `up` can't be run."""
    if impacts:
        _refuse_or_announce(impacts, json=chosen.json)
    if not chosen.no_check:
        cloud_check.before_up(stack, config, impacts.before if impacts else None, quiet=chosen.json)


def _run_embedded(kind: Kind, file: StackFile, chosen: RunOptions, impacts: impact_of_edit.Effects | None) -> int:
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
    if result.ok and (pulumi := _cli_without_credentials(chosen.engine, file, kind)):
        pulumi_cli.ensure_stack(pulumi, kind, file)  # so that `pulumi` itself can go on with the stack
    if on_this_host(file) and result.failures:
        from cli.operation import localhost

        localhost.show_consoles(result.failures, file.stack)
    if kind == "up" and result.ok and on_this_host(file) and not chosen.json:
        console.line(f"Try: ./hpc run {file.stack} -- srun -l hostname")
    if chosen.expect_no_changes and result.ok and result.changes:
        console.error(f"no changes were expected (--expect-no-changes), and there are {len(result.changes)}.")
        return 1
    return INTERRUPTED if is_interrupted(result) else 0 if result.ok else 1


def _has_no_state(kind: Kind, file: StackFile, pulumi: str | None, *, json: bool) -> bool:
    """Return whether the stack has no state. If so, show that there is nothing to do.

    Raises:
        CliError: there is no such stack at all.
    """
    if pulumi_cli.has(pulumi, file.stack) if pulumi else file.stack in project.workspace(file.stack).stacks():
        return False
    if file.settings is None:
        project.require_file(file.stack)  # raises CliError, with the names of all stacks
    show_nothing_to_do(kind, file.stack, json=json)
    drain_recovery.end(file.stack)
    if kind == "destroy":
        from cli.operation import localhost

        _remove_ssh_files(file.stack)
        if not json and (hint := localhost.leftovers_hint(file)):
            console.note(hint)
    return True


def choose_engine(name: EngineName | None, file: StackFile, kind: str) -> str | None:
    """Return the path of the Pulumi CLI that is to run this, or None for the embedded engine. `name` is the user's
    choice.

    Without a choice it is the CLI on PATH. Without that it is the embedded engine if it can: it needs state in files,
    and creates nothing with a provider that logs in (a preview creates nothing at all). The embedded engine also runs
    rehearsals of `./hpc rehearse`, and previews without credentials, which the CLI would need.

    Raises:
        CliError: the CLI is needed and not installed, and the user does not install it.
    """
    on_path = shutil.which("pulumi")
    on_files, (url, who) = state_dir.on_files(file.stack), state_dir.located(file.stack)
    missing = _missing_credentials(name, file, kind)
    new = "" if on_files else f" It shows a new stack, since it can't read the state at {url} ({who})."
    if missing and (on_path or new):
        console.note(
            f"No {missing.title} credentials are here, so the embedded engine shows this preview.{new} The Pulumi "
            f"CLI does with --engine pulumi, or once there are some: {missing.todo}"
        )
    if missing or name is EngineName.EMBEDDED or file.rehearses:
        return None
    if on_path:
        return on_path
    if name is EngineName.PULUMI:
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


def _cli_without_credentials(name: EngineName | None, file: StackFile, kind: str) -> str | None:
    """Return the Pulumi CLI on PATH that a preview did not use, for lack of credentials.

    None if nobody chose where the stack's state is: a stack in the default folder would stay there after a `pulumi
    login` elsewhere."""
    chosen = state_dir.on_files(file.stack) and state_dir.located(file.stack)[1] != "the default"
    return shutil.which("pulumi") if chosen and _missing_credentials(name, file, kind) else None


def _missing_credentials(name: EngineName | None, file: StackFile, kind: str) -> ProviderLogin | None:
    """Return the credentials that the CLI would need for a preview and that are not here, if no engine was chosen."""
    stack_platform = platform_of(file)
    login = stack_platform.login if stack_platform else None
    if name is not None or kind != "preview" or file.rehearses or login is None:
        return None
    return None if login.found(file.settings or {}) else login


_MOST = 20
"""Number of protected resources that are listed before they are destroyed."""


def confirm_destroy(file: StackFile, chosen: RunOptions, pulumi: str | None) -> bool:
    """Ask the user before a stack is destroyed, as far as that is needed. Returns whether the CLI need not ask again.

    A stack with protected resources is refused before the first step. With --unprotect their protection is removed
    once the user has typed the cluster's name. Raises CliError: the user does not agree or can't be asked, or an
    option is missing."""
    rows = state_edit.rows(file.stack, pulumi)
    protected = [row for row in rows if row.get("protect") and not row.get("delete")]
    if chosen.unprotect:
        if chosen.targets or chosen.excludes:
            raise CliError("--unprotect destroys the whole stack: leave out --target and --exclude.")
        if pulumi is None and stack_config.needs_cli(file):
            raise CliError(
                f"the embedded engine can't destroy what is on {file.platform}: leave out --engine embedded."
            )
        _confirm_by_name(file, chosen, protected, rows)
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
    cli_asks = pulumi is not None and console.interactive()
    if not chosen.yes and stack_config.protected(file) and not cli_asks:
        why = "has deletion_protection" if stack_config.on_this_host(file) else "is not a rehearsal on this machine"
        if file.settings is None:
            why = f"has lost its file {file.path.name}, which says what protects it"
        question = f"Stack {file.stack} {why}. Destroy everything it made?"
        console.confirm(question, doing=f"stack {file.stack} {why}: destroying it", no="nothing was destroyed.")
    return False


def _confirm_by_name(
    file: StackFile, chosen: RunOptions, protected: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> None:
    """List what will be lost, and have the user type the cluster's name. Raises CliError: another text was typed."""
    # A stack that did not get as far as its outputs has the name of its file.
    stack_outputs = next((row.get("outputs") or {} for row in rows if row["type"] == "pulumi:pulumi:Stack"), {})
    name = str(stack_outputs.get("cluster") or file.cluster or file.stack)
    others = sum(1 for row in rows if row.get("custom") and not row["type"].startswith("pulumi:")) - len(protected)
    if not chosen.json:
        console.line(
            f"This destroys cluster {name} (stack {file.stack}). Lost for good, with all data in it:", style="bold red"
        )
        for text in _lines(protected) or ["  nothing that is protected"]:
            console.line(text)
        console.line(f"  and {others} other resources: machines, networks, keys")
    typed = chosen.confirm
    if not typed:
        if not console.interactive():
            raise CliError("destroying what is protected without a terminal needs --confirm NAME, the cluster's name.")
        typed = console.answer(f"Type the cluster's name ({name}) to destroy it: ")
    if typed != name:
        raise CliError(f"{typed!r} is not the cluster's name, which is {name}: nothing was destroyed.")


def _lines(protected: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [f"  {row['urn'].rpartition('::')[2]}  {row['type']}" for row in protected]
    return lines[:_MOST] + ([f"  and {len(lines) - _MOST} more"] if len(lines) > _MOST else [])


OFF_SECONDS = 900
"""Time until machines are deleted, beyond that for their jobs: longer than the set-up waits (jobs/drain_leaving.py)."""


def _vacate(stack: str, names: Sequence[str], config: ClusterConfig | None, *, quiet: bool, ask: bool) -> None:
    """Drain these nodes and wait until their machines are deleted. `ask`: ask the user first, since the Pulumi CLI asks
    only after this.

    Raises:
        CliError: jobs still run there, the controller does not answer, or the user does not agree.
    """
    if not names or config is None:
        return
    # Slow to import, and most runs have no such nodes.
    from cli.access import remote
    from cli.cluster.cluster import connect
    from components.slurm.payload import phase_command

    what = f"{listing(names)} become{'s' if len(names) == 1 else ''} static"
    if ask and console.interactive():
        console.confirm(f"{what}. Drain now, and delete the elastic machines?", doing=what)
    if not quiet:
        console.line(f"{what}: waiting until no job runs there, and the elastic machines are deleted.")
    cluster = connect(stack)
    done = remote.capture(
        cluster.controller,
        cluster.admin_key,
        phase_command("vacate"),
        stdin=json.dumps({"nodes": list(names)}),
        seconds=config.slurm.drain_seconds + OFF_SECONDS,
    )
    for line in () if quiet else done.out.splitlines():
        console.line(f"  {cluster.controller.name}: {line}", style="dim")
    if done.code:
        raise CliError(f"{what}, and may still have elastic machines: {(done.err or done.out).strip()}")


_RELEASE_SECONDS = 60
_READ_RELEASES = "cat /var/lib/hpc/controller/upgrade/release.json; slurmctld -V"
"""Prints the release that has written state and database on the controller (scripts/node/slurm/upgrade.py), and the
release that is installed."""
_CLUSTER, _SECTIONS = "hpc:cluster", ("image", "slurm")


def _upgrade_continues(stack: str, chosen: RunOptions) -> bool:
    """Return whether an `up` has moved some machines to another image, and others are left for the next one."""
    if not _may_take_steps(chosen):
        return False
    return not upgrade.is_complete(upgrade.current_boots(outputs.read(stack, show_secrets=False), upgrade.Boot("", "")))


def _release_before(file: StackFile, chosen: RunOptions, release: str) -> str:
    """Return the release that has written state and database, if the controller's machine has another one that did not
    start; empty if there is nothing to restore."""
    if not _may_take_steps(chosen):
        return ""
    # Slow to import, and most runs do not fail.
    from cli.access import remote
    from cli.cluster.cluster import from_outputs

    values = outputs.read(file.stack, show_secrets=True)
    before = deployed_config(values.get("config"))
    if before is None or before.slurm_version == release or not values.get("releases"):
        return ""
    cluster = from_outputs(file.stack, values)
    done = remote.capture(cluster.controller, cluster.admin_key, _READ_RELEASES, seconds=_RELEASE_SECONDS)
    record, _, installed = done.out.strip().partition("\n")
    unchanged = record == json.dumps({"release": before.slurm_version})
    return before.slurm_version if unchanged and f" {before.slurm_version}." not in installed else ""


@contextmanager
def _options_as_before(file: StackFile, chosen: RunOptions) -> Generator[RunOptions]:
    """Yield options for an `up` of the stack file with the image and Slurm settings that the cluster runs with."""
    before = deployed_config(outputs.read(file.stack, show_secrets=False).get("config"))
    if before is None:
        raise CliError(f"stack {file.stack} has no output of its configuration.")
    document = yamlfile.read(file.path)
    cluster, old = document["config"][_CLUSTER], before.model_dump(mode="json", exclude_unset=True)
    kept = {name: value for name, value in cluster.items() if name not in _SECTIONS}
    document["config"][_CLUSTER] = {**kept, **{name: old[name] for name in _SECTIONS if name in old}}
    with tempfile.TemporaryDirectory(prefix="hpc-before-") as folder:
        path = Path(folder) / file.path.name
        path.write_text(yamlfile.dump(document), encoding="utf-8")
        yield replace(chosen, config_file=path, no_check=True)


def _may_take_steps(chosen: RunOptions) -> bool:
    """Return whether an upgrade may take several runs: `--json` and a choice of resources are for one run."""
    return not (chosen.json or chosen.targets or chosen.excludes)
