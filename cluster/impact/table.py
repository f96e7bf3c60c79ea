"""The impact of every edit: from the field's own annotations, and from what the stack's platform adds to them.

It is found before an `up`; on the machine, the text of the rendered files decides
(scripts/node/slurm/conf_changes.py). A test compares the two, and the impacts with the models.
`./hpc up` asks for refused edits before it starts an engine, and the program itself for whoever runs `pulumi up`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.config.fields import MEMBER, edit_patterns, patterns
from cluster.config.impact import ByRule, Effect, Impact, Members, Replace
from cluster.config.section import Section
from cluster.findings import ConfigError, show
from cluster.impact import rules
from cluster.impact.edits import Edit, Rule, edits
from cluster.load import parse_output
from cluster.platforms import registry

RULES = {name: one for name, one in vars(rules).items() if isinstance(one, Rule)}
"""Rules by the name that ByRule has."""


@cache
def declared(model: type[Section] = ClusterConfig) -> Mapping[str, Impact | ByRule]:
    """The impacts that fields declare, by pattern: of all platforms."""
    found: dict[str, Impact | ByRule] = {}
    for pattern, info in patterns(model):
        for note in info.metadata:
            if isinstance(note, Impact | ByRule):
                found[f"{pattern}{MEMBER}" if isinstance(note, Members) else pattern] = note
    return found


def find_rule(pattern: str, platform: str | None, model: type[Section] = ClusterConfig) -> Impact | Rule | None:
    """Find the impact or rule at a pattern, else nearest above it; at each the platform's own before the field's."""
    tables = (*([registry.get(platform).impacts()] if platform else ()), declared(model))
    at = pattern
    while at:
        # What adding or removing a member does is not what an edit of its fields does.
        if at == pattern or not at.endswith(MEMBER):
            for table in tables:
                if at in table:
                    return _named(table[at], platform)
        at = at.rpartition(".")[0]
    return None


def _named(found: Impact | Rule | ByRule, platform: str | None) -> Impact | Rule | None:
    if not isinstance(found, ByRule):
        return found
    return RULES.get(found.name) or (registry.get(platform).rules().get(found.name) if platform else None)


def possible(pattern: str, model: type[Section] = ClusterConfig) -> tuple[Effect, ...]:
    """List the effects that an edit can have on any platform, mildest first; none of what holds no value itself."""
    if pattern not in editable(model):
        return ()
    found: set[Effect] = set()
    for platform in registry.names():
        one = find_rule(pattern, platform, model)
        found |= set() if one is None else {one.effect} if isinstance(one, Impact) else {*one.possible}
    return tuple(sorted(found, key=lambda effect: effect.harm))


@cache
def editable(model: type[Section] = ClusterConfig) -> frozenset[str]:
    """Patterns of all edits that there can be."""
    return frozenset(edit_patterns(model))


def impact(edit: Edit) -> Impact | None:
    """The impact of one edit; None of one that changes nothing."""
    found = find_rule(edit.pattern, edit.before.platform, type(edit.before))
    if found is None:
        return Replace(f"platform {edit.before.platform} does not say what this does: read the steps above")
    return found if isinstance(found, Impact) else found(edit)


_NOTHING, _THERE = "nothing", "(as written)"


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """An edit with its impact, as text to be shown."""

    path: str
    """Dotted, such as `partitions.cpu.max_time`."""
    old: str
    new: str
    effect: Effect
    reason: str
    command: str
    """The command to type."""
    by_image: bool = False
    """True if machines get another image for it."""

    @property
    def shown(self) -> str:
        """Path and values on one line."""
        if self.old == _NOTHING and self.new == _THERE:
            return f"{self.path}: added"
        if self.old == _THERE and self.new == _NOTHING:
            return f"{self.path}: removed"
        return f"{self.path}: {self.old} -> {self.new}"


def effects(before: ClusterConfig, after: ClusterConfig, stack: str) -> list[FieldChange]:
    """Return what leads from one configuration to another does to running jobs: worst first, then in the order of the
    file.

    `before` is what the cluster runs with; `stack` its stack's name, for the commands.
    """
    keep = registry.get(before.platform).keep
    before, after = keep(None, before), keep(before, after)
    found = [
        FieldChange(
            path=edit.dotted,
            old=_shown(edit.old),
            new=_shown(edit.new),
            effect=one.effect,
            reason=one.reason,
            command=one.command.format(stack=stack),
            by_image=one.by_image,
        )
        for edit in edits(before, after)
        if (one := impact(edit))
    ]
    return sorted(found, key=lambda change: -change.effect.harm)


def worst(changes: list[FieldChange]) -> Effect:
    """The effect that harms running jobs most; of no change, none."""
    return max((change.effect for change in changes), key=lambda effect: effect.harm, default=Effect.NOTHING)


def _shown(value: Any) -> str:  # noqa: ANN401 - a field may be anything
    if isinstance(value, Section):
        return show(value.model_dump(exclude_none=True)) if value.one_value else _THERE
    return show(value)


WAY_OUT = "Put the old value back; or, if the cluster may go with all its data: ./hpc destroy {0} && ./hpc up {0}"


def made_with(exported: Any) -> ClusterConfig | None:  # noqa: ANN401 - an output may be anything
    """Return what a cluster runs with, from the stack's output `config`; None where nothing is known of it: a new
    stack, or one that an older version of this program made."""
    if exported is None:
        return None
    try:
        return parse_output(exported)
    except ConfigError:
        return None


def refused(changes: Sequence[FieldChange]) -> list[FieldChange]:
    """The edits that a running cluster can't take."""
    return [change for change in changes if change.effect is Effect.REFUSED]


def refusal(changes: Sequence[FieldChange], stack: str) -> str:
    """Return which fields can't be changed, why, and the way out; empty if all can."""
    found = refused(changes)
    if not found:
        return ""
    body = [f"  {change.shown}\n    {change.reason}{todo(change, stack)}" for change in found]
    return "\n".join([Effect.REFUSED.sentence, *body, WAY_OUT.format(stack)])


def todo(change: FieldChange, stack: str) -> str:
    """The command, on a line of its own, where it is another one than the `up` that follows every preview, or than the
    way out that stands below all that is refused."""
    plain = (f"./hpc up {stack}", f"./hpc destroy {stack} && ./hpc up {stack}")
    return "" if change.command in plain else f"\n      to do: {change.command}"
