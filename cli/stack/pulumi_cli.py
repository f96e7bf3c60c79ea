"""Runs the Pulumi CLI in the project's folder, with the same state and passphrase as the embedded engine."""

import json as jsonlib
import shutil
import tempfile
from pathlib import Path

from cli import console
from cli.stack import encryption_keys, project, pulumi_json, state_dir
from cli.stack.impact import Effects
from cli.stack.pulumi_process import run_captured, run_on_terminal
from cli.stack.run_options import RunOptions
from cli.stack.stackfile import StackFile


def update(
    pulumi: str, kind: str, file: StackFile, chosen: RunOptions, *, yes: bool, impact: Effects | None = None
) -> int:
    """Run `pulumi KIND` for a stack, which is created first if it is new. Returns the exit code. A preview ends with
    the impact of the edit on running jobs, if that is known. With `yes` the CLI neither asks nor previews."""
    if state_dir.on_files(file.stack):
        stack = project.workspace(file.stack).stack(file.stack, file.path)
        if kind != "preview" or stack.interrupted:
            stack.prepare_for_cli()
    ensure_stack(pulumi, kind, file)
    config = ["--config-file", str(chosen.config_file.absolute())] if chosen.config_file else []
    command = [pulumi, kind, "--stack", file.stack, *config, *chosen.flags()]
    if yes and kind != "preview":
        command += ["--yes", "--skip-preview", *(["--suppress-outputs"] if kind == "up" else [])]
    if chosen.json:
        return pulumi_json.update(command, kind, file.stack, chosen, impact)
    code = run_on_terminal(command, file.stack)
    if impact and impact.changes and kind == "preview" and code == 0:
        for text, style in impact.lines(steps=True):
            console.line(text, style=style)
    return code


def has(pulumi: str, stack: str) -> bool:
    """Whether the backend has a stack."""
    if state_dir.on_files(stack):
        return stack in project.workspace(stack).stacks()
    rows = jsonlib.loads(run_captured([pulumi, "stack", "ls", "--json"], stack))
    return stack in (str(row["name"]).rpartition("/")[2] for row in rows)


def ensure_stack(pulumi: str, kind: str, file: StackFile) -> None:
    """Create the stack if the backend does not have it, with our passphrase. Then add the encryption keys to its file,
    before the CLI does, which would rewrite the whole file."""
    if kind in ("preview", "up") and not has(pulumi, file.stack):
        encryption_keys.append(file.path, _create_stack(pulumi, file))
    elif state_dir.on_files(file.stack) and file.settings is not None and not encryption_keys.read(file.path):
        salt = project.state_salt(file.stack)
        encryption_keys.append(file.path, {encryption_keys.KEYS[0]: salt} if salt else {})


def _create_stack(pulumi: str, file: StackFile) -> dict[str, str]:
    """Make the stack, from a folder of its own: `stack init` knows no --config-file, and writes to the stack file. What
    the stack file has to have then."""
    with tempfile.TemporaryDirectory(prefix="hpc-stack-") as folder:
        shutil.copyfile(project.ROOT / "Pulumi.yaml", Path(folder) / "Pulumi.yaml")
        copy = Path(folder) / f"Pulumi.{file.stack}.yaml"
        copy.write_text(jsonlib.dumps(encryption_keys.read(file.path)), encoding="utf-8")
        provider = encryption_keys.read(file.path).get("secretsprovider", "passphrase")
        init = ["stack", "init", file.stack, "--no-select", "--secrets-provider", provider]
        run_captured([pulumi, *init, "--cwd", folder], file.stack)
        return encryption_keys.read(copy)
