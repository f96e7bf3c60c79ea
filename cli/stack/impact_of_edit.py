"""The effects of an edit of a stack file on running jobs, which a run shows."""

import json as jsonlib
from dataclasses import dataclass
from typing import Any

from cli.errors import CliError
from cli.stack import project, pulumi_program, state_dir
from cluster import roster
from cluster.config import ClusterConfig
from cluster.config.impact_annotations import Effect
from cluster.impact.table import WAY_OUT, FieldChange, effects, refusal, todo, worst_effect
from cluster.load import deployed_config
from cluster.platforms import registry

Line = tuple[str, str]
_STYLES = {"refused": "bold red", "replace": "bold red", "drain": "bold yellow"}
_UNEDITED = (
    "The stack file says what this cluster was made with: the steps above come from an upgrade that is not at its end, "
    "a file that it names, another version of this program, or what was found on the machines."
)


@dataclass(frozen=True, kw_only=True)
class Effects:
    """The effects of the changes between the configuration that the cluster runs with and its stack file."""

    stack: str
    before: ClusterConfig
    """The configuration that the cluster runs with."""
    changes: tuple[FieldChange, ...]
    """Worst first."""
    static: tuple[str, ...] = ()
    """Nodes that were elastic and become static."""
    asked: bool = False
    """True if options of the run, such as --replace, have steps without an edit."""

    @property
    def worst(self) -> Effect:
        """The effect that harms running jobs most."""
        return worst_effect(list(self.changes))

    @property
    def waits(self) -> bool:
        """True if `up` waits for jobs, or takes machines away from them."""
        return self.worst.harm >= Effect.DRAIN.harm

    def refuse(self) -> None:
        """Raise CliError if a field was edited that can't be changed on a running cluster."""
        if text := refusal(self.changes, self.stack):
            raise CliError(text)

    def lines(self, *, steps: bool) -> list[Line]:
        """Return the end of a preview: the worst effect in a sentence, then every field, by effect. `steps`: whether
        the preview has any step."""
        if not self.changes:
            return [(_UNEDITED, "")] if steps and not self.asked else []
        lines: list[Line] = [(self.worst.sentence, _STYLES.get(self.worst.value, "bold"))]
        for effect in reversed(Effect):
            rows = [change for change in self.changes if change.effect is effect]
            lines += [(f"  {effect.value}", _STYLES.get(effect.value, "bold"))] if rows else []
            for change in rows:
                lines += [(f"    {change.shown}", ""), (f"      {change.reason}{todo(change, self.stack)}", "dim")]
            if rows and effect is Effect.REFUSED:
                lines.append((f"    {WAY_OUT.format(self.stack)}", ""))
        return [(line, style) for text, style in lines for line in text.splitlines()]

    def document(self) -> dict[str, Any]:
        """Return the effects for programs: {worst, sentence, fields: [{path, old, new, effect, reason, command}]}."""
        keys = ("path", "old", "new", "reason", "command")
        fields = [
            {**{key: getattr(change, key) for key in keys}, "effect": change.effect.value} for change in self.changes
        ]
        return {"worst": self.worst.value, "sentence": self.worst.sentence, "fields": fields}


def effects_of_edit(stack: str, after: ClusterConfig, pulumi: str | None, *, asked: bool = False) -> Effects | None:
    """Return the effects of the stack file's edit; None if the configuration that the cluster runs with is not known,
    as for a new stack or one of an older version of this program. `pulumi` is the CLI if that runs the stack. `asked`:
    options of the run may have steps without an edit."""
    before = running_config(stack, pulumi)
    if before is None:
        return None
    has_machines = registry.get(after.platform).installs_slurm  # pods have no elastic machines of this program
    static = [node for name in after.nodesets if has_machines for node in roster.newly_static(before, after, name)]
    changes = tuple(effects(before, after, stack))
    return Effects(stack=stack, before=before, changes=changes, static=tuple(static), asked=asked)


def running_config(stack: str, pulumi: str | None) -> ClusterConfig | None:
    """Return the configuration that a cluster runs with; None if it is not known, as for a new stack."""
    return deployed_config(_config_output(stack, pulumi))


def _config_output(stack: str, pulumi: str | None) -> Any:  # noqa: ANN401 - an output may be anything
    """Return the stack's output `config`, None if there is none."""
    if state_dir.on_files(stack):
        space = project.workspace(stack)
        return space.stack(stack).outputs().get("config") if stack in space.stacks() else None
    if pulumi is None:
        return None
    try:
        printed = pulumi_program.run_captured([pulumi, "stack", "output", "--stack", stack, "--json"], stack)
        return jsonlib.loads(printed).get("config")
    except CliError:
        return None  # a new stack, or a backend that does not answer, which the run itself reports
