"""Runs the Pulumi CLI in the project's folder, with the same state and passphrase as the embedded engine."""

import json as jsonlib
import shutil
import tempfile
from pathlib import Path

from cli import console
from cli.stack import project, pulumi_json, salt, state_dir
from cli.stack.impact import Effects
from cli.stack.pulumi_process import run_captured, run_on_terminal
from cli.stack.run_options import Wishes
from cli.stack.stackfile import StackFile


def update(pulumi: str, kind: str, file: StackFile, wishes: Wishes, *, yes: bool, told: Effects | None = None) -> int:
    """Run `pulumi KIND` for a stack, which is made first if it is new; the exit code. A preview ends with what the edit
    does to running jobs, if that is known. With `yes` nobody is asked, and nothing is worked out to be asked about."""
    if state_dir.on_files(file.stack):
        stack = project.workspace(file.stack).stack(file.stack, file.path)
        if kind != "preview" or stack.interrupted:
            stack.hand_over()
    _ensure_stack(pulumi, kind, file)
    config = ["--config-file", str(wishes.config_file.absolute())] if wishes.config_file else []
    command = [pulumi, kind, "--stack", file.stack, *config, *wishes.flags()]
    if yes and kind != "preview":
        command += ["--yes", "--skip-preview", *(["--suppress-outputs"] if kind == "up" else [])]
    if wishes.json:
        return pulumi_json.update(command, kind, file.stack, wishes, told)
    code = run_on_terminal(command, file.stack)
    for text, style in told.lines(steps=True) if told and kind == "preview" and code == 0 and told.changes else ():
        console.line(text, style=style)
    return code


def has(pulumi: str, stack: str) -> bool:
    """Whether the backend has a stack."""
    if state_dir.on_files(stack):
        return stack in project.workspace(stack).stacks()
    rows = jsonlib.loads(run_captured([pulumi, "stack", "ls", "--json"], stack))
    return stack in (str(row["name"]).rpartition("/")[2] for row in rows)


def _ensure_stack(pulumi: str, kind: str, file: StackFile) -> None:
    """Make the stack if the backend does not have it, encrypting its secrets with our passphrase; and see that its file
    says so, before the CLI does, which would write the whole file anew."""
    if kind in ("preview", "up") and not has(pulumi, file.stack):
        salt.append(file.path, _made(pulumi, file))
    elif state_dir.on_files(file.stack) and file.settings is not None and not salt.kept(file.path):
        kept = (
            project.workspace(file.stack).stack(file.stack).export_state()["deployment"].get("secrets_providers") or {}
        )
        if kept.get("type") == "passphrase":
            salt.append(file.path, {salt.KEYS[0]: kept["state"]["salt"]})


def _made(pulumi: str, file: StackFile) -> dict[str, str]:
    """Make the stack, from a folder of its own: `stack init` knows no --config-file, and writes to the stack file. What
    the stack file has to have then."""
    with tempfile.TemporaryDirectory(prefix="hpc-stack-") as folder:
        shutil.copyfile(project.ROOT / "Pulumi.yaml", Path(folder) / "Pulumi.yaml")
        copy = Path(folder) / f"Pulumi.{file.stack}.yaml"
        copy.write_text(jsonlib.dumps(salt.kept(file.path)), encoding="utf-8")
        provider = salt.kept(file.path).get("secretsprovider", "passphrase")
        init = ["stack", "init", file.stack, "--no-select", "--secrets-provider", provider]
        run_captured([pulumi, *init, "--cwd", folder], file.stack)
        return salt.kept(copy)
