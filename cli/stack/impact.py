"""The effect of an edit of a stack file on running jobs: found before a run, shown with it."""

import json as jsonlib
from dataclasses import dataclass
from typing import Any

from cli.errors import CliError
from cli.stack import project, pulumi_program, state_dir
from cluster import roster
from cluster.config import ClusterConfig
from cluster.config.impact import Effect
from cluster.impact.table import WAY_OUT, FieldChange, deployed_config, effects, refusal, todo, worst_effect
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
    changes: tuple[FieldChange, ...]
    """Worst first."""
    static: tuple[str, ...] = ()
    """Nodes whose machines Slurm has asked for, and that get a machine that stays."""

    @property
    def worst(self) -> Effect:
        """The effect that harms running jobs most."""
        return worst_effect(list(self.changes))

    @property
    def waits(self) -> bool:
        """True if `up` waits for jobs, or takes machines away from them."""
        return self.worst.harm >= Effect.DRAIN.harm

    def refuse(self) -> None:
        """Return if every changed field can be changed on a running cluster.

        Raises:
            CliError: which fields, why, and the way out.
        """
        if text := refusal(self.changes, self.stack):
            raise CliError(text)

    def lines(self, *, steps: bool) -> list[Line]:
        """The end of a preview: the worst effect in a sentence, then every field, by effect. `steps`: whether there is
        anything to do at all."""
        if not self.changes:
            return [(_UNEDITED, "")] if steps else []
        found: list[Line] = [(self.worst.sentence, _STYLES.get(self.worst.value, "bold"))]
        for effect in reversed(Effect):
            rows = [change for change in self.changes if change.effect is effect]
            found += [(f"  {effect.value}", _STYLES.get(effect.value, "bold"))] if rows else []
            for change in rows:
                found += [(f"    {change.shown}", ""), (f"      {change.reason}{todo(change, self.stack)}", "dim")]
            if rows and effect is Effect.REFUSED:
                found.append((f"    {WAY_OUT.format(self.stack)}", ""))
        return [(line, style) for text, style in found for line in text.splitlines()]

    def document(self) -> dict[str, Any]:
        """The effects for programs: {worst, sentence, fields: [{path, old, new, effect, reason, command}]}."""
        keys = ("path", "old", "new", "reason", "command")
        fields = [
            {**{key: getattr(change, key) for key in keys}, "effect": change.effect.value} for change in self.changes
        ]
        return {"worst": self.worst.value, "sentence": self.worst.sentence, "fields": fields}


def of(stack: str, now: ClusterConfig, pulumi: str | None) -> Effects | None:
    """Return what the stack file's edit does; None where nothing is known of what the cluster runs with: a new stack,
    or one that an older version of this program made. `pulumi` is the CLI, where that runs the stack."""
    was = deployed_config(_exported(stack, pulumi))
    if was is None:
        return None
    machines = not registry.get(now.platform).observer  # else there are pods, which have no state here
    static = [node for name in now.nodesets if machines for node in roster.newly_static(was, now, name)]
    return Effects(stack=stack, changes=tuple(effects(was, now, stack)), static=tuple(static))


def _exported(stack: str, pulumi: str | None) -> Any:  # noqa: ANN401 - an output may be anything
    """The stack's output `config`, None if there is none."""
    if state_dir.on_files(stack):
        space = project.workspace(stack)
        return space.stack(stack).outputs().get("config") if stack in space.stacks() else None
    if pulumi is None:
        return None
    try:
        printed = pulumi_program.run_captured([pulumi, "stack", "output", "--stack", stack, "--json"], stack)
        return jsonlib.loads(printed).get("config")
    except CliError:
        return None  # a new stack, or a backend that does not answer: the run itself will say so
