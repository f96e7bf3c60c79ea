"""Runs an operation with the Pulumi CLI, and converts its JSON events to the JSON document of the embedded engine.

`up`, `destroy` and `refresh --json` print one event a line (sdk/go/common/apitype/events.go). A preview does so if a
variable is set; without it, it prints a document of another shape.
"""

import json as jsonlib
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cli import console
from cli.display.views import choose_view, output_lines
from cli.interrupts import INTERRUPTED, leave_ctrl_c_to_child
from cli.operation.run_options import RunOptions
from cli.stack import outputs, project, stackfile, state_dir
from cli.stack.impact_of_edit import Effects
from cli.stack.pulumi_program import run_captured, run_on_terminal, with_source
from cli.stack.stackfile import StackFile
from engine.core.diff import differences, mark_replacing
from engine.events import Change, Event, LogLine, Planned, Result, Started, StepFailed
from engine.values import show

_STREAMED = "PULUMI_ENABLE_STREAMING_JSON_PREVIEW"
_OPS = {
    "create-replacement": "replace",
    "delete-replaced": "replace",
    "import": "create",
    "import-replacement": "replace",
    "read-replacement": "read",
}
"""Operations of the embedded engine for the CLI's steps (pkg/resource/deploy/step.go) of other names."""
_SILENT = {"discard-replaced", "read-discarded", "remove-pending-replace"}


def _update_by_events(command: Sequence[str], kind: str, stack: str, chosen: RunOptions, impact: Effects | None) -> int:
    """Run `pulumi KIND --json`, and show its events as those of the embedded engine. Returns the exit code."""
    env = {**state_dir.environment(stack), _STREAMED: "true"}
    with choose_view(json=chosen.json) as view:
        view.effects, view.more, view.diff = impact, chosen.more, chosen.diff
        view.on_event(Started(kind, stack, project.name()))  # type: ignore[arg-type]
        with (
            leave_ctrl_c_to_child() as interrupts,
            subprocess.Popen(
                command,
                cwd=project.ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
        ):
            out, stderr = process.communicate()
        code = INTERRUPTED if process.returncode and interrupts else process.returncode
        events = RunEvents(line for line in out.splitlines() if line.startswith("{"))
        for event in events.all():
            view.on_event(event)
        values = outputs.read(stack, show_secrets=False) if kind == "up" and code == 0 else {}
        result = events.result(kind, ok=code == 0, outputs=values)
        if code == 0 or result.failures or (events.ended and code == INTERRUPTED):
            if stderr.strip():
                console.note(stderr.rstrip("\n"))
            view.close(result)
        else:
            why = events.why or stderr.strip().removeprefix("error: ") or f"pulumi {kind} ended with {code}"
            view.fail(with_source(why))
    return code


class RunEvents:
    """Collects the CLI's events of one run."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.ended = False
        self.why = ""
        """The first error that does not belong to a resource."""
        self.messages: list[dict[str, Any]] = []
        self._seconds = 0.0
        self._planned: dict[str, Planned] = {}
        self._failed: dict[str, str] = {}
        self._errors: dict[str, list[str]] = {}
        for line in lines:
            self._add(jsonlib.loads(line))

    def _add(self, event: Mapping[str, Any]) -> None:
        if diagnostic := event.get("diagnosticEvent"):
            self._add_message(diagnostic)
        elif before := event.get("resourcePreEvent"):
            self._add_step(before["metadata"], preview=bool(before.get("planning")))
        elif failed := event.get("resOpFailedEvent"):
            self._failed[failed["metadata"]["urn"]] = failed["metadata"]["op"]
        elif summary := event.get("summaryEvent"):
            self.ended, self._seconds = True, float(summary.get("durationSeconds") or 0)

    def _add_message(self, diagnostic: Mapping[str, Any]) -> None:
        severity, urn, text = diagnostic["severity"], diagnostic.get("urn"), str(diagnostic["message"]).strip()
        if severity not in ("info", "warning", "error") or diagnostic.get("ephemeral") or not text:
            return  # the output of the program's process, line by line, and debug messages of the SDK
        if severity == "error" and urn and "pulumi:pulumi:Stack::" not in urn:
            self._errors.setdefault(urn, []).append(text)
        elif severity == "error":
            self.why = self.why or text
        message = {"severity": severity, "message": text, "urn": urn}
        if message not in self.messages:
            self.messages.append(message)

    def _add_step(self, step: Mapping[str, Any], *, preview: bool) -> None:
        urn, type_, name = str(step["urn"]), str(step["type"]), str(step["op"])
        op = _OPS.get(name, name)
        before = self._planned.get(urn)
        # Where the old resource goes first, its deletion is the first step of a replacement, and has no new inputs.
        deleted = name == "delete-replaced"
        # The SDK's own providers: IsDefaultProvider in sdk/go/common/providers/reference.go (v3.274.1).
        default = type_.startswith("pulumi:providers:") and urn.rpartition("::")[2].startswith("default")
        if op in _SILENT or default:
            return
        if before and before.op == "replace" and (before.changes or deleted):
            return
        old, new = step.get("old") or {}, step.get("new") or {}
        if op == "delete" and not old.get("custom"):
            return  # a component: the embedded engine only reports its children
        before_inputs, inputs = show(old.get("inputs") or {}), show(new.get("inputs") or {})
        changes = _changes(before_inputs, inputs, step) if op in ("update", "replace") and not deleted else ()
        parent = (new or old).get("parent") or ""
        created = op == "create" and preview
        shown = {key: value for key, value in inputs.items() if key != "__provider"} if created else {}
        self._planned[urn] = Planned(urn, type_, urn.rpartition("::")[2], parent, op, changes, inputs=shown)

    def all(self) -> Iterator[Event]:
        """Yield the messages and the steps."""
        for message in self.messages:
            yield LogLine(message["severity"], message["message"], message["urn"])
        yield from self._planned.values()

    def result(self, kind: str, *, ok: bool, outputs: dict[str, Any]) -> Result:
        counts = dict(Counter(plan.op for plan in self._planned.values()))
        failed = dict(self._failed) | {urn: "diff" for urn in self._errors if urn not in self._failed}
        failures = tuple(
            StepFailed(urn, op, "\n".join(self._errors.get(urn) or [self.why or "failed"]))
            for urn, op in failed.items()
        )
        changes = tuple(plan for plan in self._planned.values() if plan.op != "same")
        return Result(kind, ok, counts, changes, failures, outputs, self._seconds)  # type: ignore[arg-type]


def _changes(before: Any, after: Any, step: Mapping[str, Any]) -> tuple[Change, ...]:  # noqa: ANN401 - inputs
    """Return the differences between the inputs, and changes that only the provider reports, such as those of
    secrets. A replacement without any has what the CLI gives as its cause, such as `id` for one that was asked for."""
    detailed = step.get("detailedDiff") or {}
    forced = [path for path, how in detailed.items() if how["diffKind"].endswith("-replace")]
    visible = mark_replacing(differences(before, after), tuple(step.get("keys") or forced), [])
    paths = {change.path for change in visible}
    hidden = [path for path in detailed if not any(visible_path.startswith(path) for visible_path in paths)]
    changes = visible + tuple(Change(path, "update", "[secret]", "[secret]", path in forced) for path in hidden)
    return changes or tuple(Change(key, "update", replaces=True) for key in step.get("keys") or ())


def update(
    pulumi: str, kind: str, file: StackFile, chosen: RunOptions, *, yes: bool, impact: Effects | None = None
) -> int:
    """Run `pulumi KIND` for a stack, and create the stack first if it is new. Returns the exit code.

    A preview ends with the edit's effects on running jobs if they are known. With `yes` the CLI neither asks nor
    previews."""
    if state_dir.on_files(file.stack):
        stack = project.workspace(file.stack).stack(file.stack, file.path)
        if kind != "preview" or stack.interrupted:
            stack.prepare_for_cli()
        else:
            project.check_passphrase(file)
    ensure_stack(pulumi, kind, file)
    config = ["--config-file", str(chosen.config_file.absolute())] if chosen.config_file else []
    command = [pulumi, kind, "--stack", file.stack, *config, *chosen.flags()]
    if yes and kind != "preview":
        command += ["--yes", "--skip-preview"]
    if kind in ("preview", "up"):
        # Most outputs are for programs, such as the whole configuration as one line.
        command.append("--suppress-outputs")
    if chosen.json:
        return _update_by_events(command, kind, file.stack, chosen, impact)
    if kind == "preview" and chosen.diff:
        # The CLI prints the whole value of each input that changes, of which many are configuration files.
        return _update_by_events([*command, "--json"], kind, file.stack, chosen, impact)
    code = run_on_terminal(command, file.stack)
    if kind == "up" and code == 0:
        for text, style in output_lines(outputs.read(file.stack, show_secrets=False)):
            console.line(text, style=style)
    if impact and impact.changes and kind == "preview" and code == 0:
        for text, style in impact.lines(steps=True):
            console.line(text, style=style)
    return code


def has(pulumi: str, stack: str) -> bool:
    """Return whether the backend has a stack."""
    if state_dir.on_files(stack):
        return stack in project.workspace(stack).stacks()
    rows = jsonlib.loads(run_captured([pulumi, "stack", "ls", "--json"], stack))
    return stack in (str(row["name"]).rpartition("/")[2] for row in rows)


def ensure_stack(pulumi: str, kind: str, file: StackFile) -> None:
    """Create the stack if the backend does not have it, and add the encryption keys to its file. The CLI would add them
    too, but rewrites the whole file."""
    if kind in ("preview", "up") and not has(pulumi, file.stack):
        stackfile.add_encryption_keys(file.path, _create_stack(pulumi, file))
    elif state_dir.on_files(file.stack) and file.settings is not None and not stackfile.encryption_keys(file.path):
        salt = project.state_salt(file.stack)
        stackfile.add_encryption_keys(file.path, {stackfile.ENCRYPTION_KEYS[0]: salt} if salt else {})


def _create_stack(pulumi: str, file: StackFile) -> dict[str, str]:
    """Create the stack and return the encryption keys for its file.

    It is created from a temporary folder: `stack init` has no --config-file, and writes to the stack file."""
    with tempfile.TemporaryDirectory(prefix="hpc-stack-") as folder:
        shutil.copyfile(project.ROOT / "Pulumi.yaml", Path(folder) / "Pulumi.yaml")
        copy = Path(folder) / f"Pulumi.{file.stack}.yaml"
        copy.write_text(jsonlib.dumps(stackfile.encryption_keys(file.path)), encoding="utf-8")
        provider = stackfile.encryption_keys(file.path).get("secretsprovider", "passphrase")
        init = ["stack", "init", file.stack, "--no-select", "--secrets-provider", provider]
        run_captured([pulumi, *init, "--cwd", folder], file.stack)
        return stackfile.encryption_keys(copy)
