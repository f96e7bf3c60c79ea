"""The cluster of a stack whose users are edited: what it runs with, and the `up` that applies an edit."""

from pathlib import Path

from cli import console
from cli.errors import CliError
from cli.operation import operation
from cli.operation.run_options import RunOptions
from cli.stack import outputs, project, stack_config, state_dir
from cli.users.in_effect import Seen, look
from cluster.config import ClusterConfig
from cluster.findings import ConfigError
from cluster.impact.table import effects
from cluster.load.parse import parse_output


class Running:
    """The cluster of a stack, if it is up."""

    def __init__(self, stack: str, config_file: Path | None) -> None:
        self.stack, self._config_file = stack, config_file
        self.config: ClusterConfig | None = None
        """What it runs with; None if it is not up, or its state can't be read here."""
        self._why = f"stack {stack} is not up."
        try:
            self.config = parse_output(outputs.read(stack, show_secrets=True)["config"])
        except (CliError, ConfigError) as error:
            self._why = str(error)
        except KeyError:  # never finished, or of an older version
            pass

    def has(self, name: str) -> bool:
        """Whether it was given a user of this name."""
        return self.config is not None and any(user.name == name for user in self.config.users)

    def may_have(self, name: str) -> bool:
        """`has`; also where that can't be known here: the state can't be read, or no `up` has ended."""
        if self.config is not None:
            return self.has(name)
        return not state_dir.on_files(self.stack) or self.stack in project.workspace(self.stack).stacks()

    def seen(self) -> Seen:
        """What is on it; nothing if it is not up or does not answer, which is printed."""
        if self.config is None:
            return Seen()
        try:
            return look(self.stack, outputs.read(self.stack, show_secrets=True), [])
        except CliError as error:
            console.note(f"The cluster was not asked for uids of home directories: {error}")
            return Seen()

    def confirm_other_edits(self, name: str, *, yes: bool) -> None:
        """Before the file is edited: `up` applies all that it says. Raises CliError: somebody has edited more than this
        user, and that is not to be applied, or nobody can be asked."""
        if self.config is None:
            return
        file = project.require_file(self.stack, self._config_file)
        mine = (f"users.{name}", f"former_users.{name}")
        others = [
            change
            for change in effects(self.config, stack_config.parse(file), self.stack)
            if not f"{change.path}.".startswith(tuple(f"{one}." for one in mine))
        ]
        if not others:
            return
        console.note(f"{file.path.name} has other edits, which `up` applies as well:")
        for change in others:
            console.note(f"  {change.effect.value}: {change.shown}")
        if not yes:
            no = "nothing was changed. To edit the file only: --no-apply"
            hint = "--yes, or --no-apply. Nothing was changed."
            console.confirm("Apply them too?", doing="applying them", no=no, hint=hint)

    def apply(self, chosen: RunOptions) -> int:
        """Run `up`; its exit code. However it ends, the file stays edited, and how to go on is printed. A cluster that
        is not up is not created by this."""
        if self.config is None:
            console.note(f"Not applied: {self._why}")
            return 0
        code = 1
        try:
            code = operation.run("up", self.stack, chosen)
        finally:
            if code != 0:
                console.note(f"The stack file is edited. To apply it: {self.command}")
        return code

    @property
    def command(self) -> str:
        """The `up` of the stack, as somebody types it."""
        return f"./hpc up {self.stack}" + (f" --config-file {self._config_file}" if self._config_file else "")
