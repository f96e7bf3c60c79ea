"""The impact of every edit: annotations of fields, rules, and what the stack's platform adds to them.

The impact is known before an `up`. On the machine, the text of the rendered files decides
(scripts/node/slurm/conf_changes.py). A test compares the two, and the impacts with the models. `./hpc up` looks for
refused edits before it starts an engine; with `pulumi up` the program itself does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from cluster import platform_interface
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import MEMBER, edit_patterns, patterns
from cluster.config.impact_annotations import Effect, Impact, Replace
from cluster.config.section import Section, metadata
from cluster.edits import Edit, ImpactRule, edits
from cluster.findings import show
from cluster.impact.rules import RULES


@cache
def declared_impacts(model: type[Section] = ClusterConfig) -> Mapping[str, Impact]:
    """Return the impacts that fields declare, on all platforms, by pattern."""
    return {pattern: note for pattern, info in patterns(model) if (note := metadata(info, Impact))}


def find_rule(pattern: str, platform: str | None, model: type[Section] = ClusterConfig) -> Impact | ImpactRule | None:
    """Return the impact or rule of a pattern, else the nearest one above it. At each level the platform's own comes
    before the field's."""
    own = platform_interface.get(platform).impacts() if platform else {}
    tables: tuple[Mapping[str, Impact | ImpactRule], ...] = (own, RULES, declared_impacts(model))
    level = pattern
    while level:
        # The impact of adding or removing a member is not that of an edit of its fields.
        if level == pattern or not level.endswith(MEMBER):
            for table in tables:
                if level in table:
                    return table[level]
        level = level.rpartition(".")[0]
    return None


def possible_effects(pattern: str, model: type[Section] = ClusterConfig) -> tuple[Effect, ...]:
    """Return the effects that an edit of a field can have on any platform, mildest first; none for a section."""
    if pattern not in editable_patterns(model):
        return ()
    found: set[Effect] = set()
    for platform in platform_interface.names():
        rule = find_rule(pattern, platform, model)
        found |= set() if rule is None else {rule.effect} if isinstance(rule, Impact) else {*rule.possible}
    return tuple(sorted(found, key=lambda effect: effect.harm))


@cache
def editable_patterns(model: type[Section] = ClusterConfig) -> frozenset[str]:
    """Return the patterns of all possible edits."""
    return frozenset(edit_patterns(model))


def impact(edit: Edit) -> Impact | None:
    """Return the impact of an edit; None if it changes nothing."""
    rule = find_rule(edit.pattern, edit.before.platform, type(edit.before))
    if rule is None:
        return Replace(f"platform {edit.before.platform} does not say what this does: read the steps above")
    return rule if isinstance(rule, Impact) else rule(edit)


_NOTHING, _SECTION = "nothing", "(as written)"


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """An edit with its impact, as text."""

    path: str
    """Dotted, such as `partitions.cpu.max_time`."""
    old: str
    new: str
    effect: Effect
    reason: str
    command: str
    """The command to type."""
    by_image: bool
    """True if machines get another image for it."""

    @property
    def shown(self) -> str:
        """Path and values on one line."""
        if self.old == _NOTHING and self.new == _SECTION:
            return f"{self.path}: added"
        if self.old == _SECTION and self.new == _NOTHING:
            return f"{self.path}: removed"
        return f"{self.path}: {self.old} -> {self.new}"


def effects(before: ClusterConfig, after: ClusterConfig, stack: str) -> list[FieldChange]:
    """Return the edits between the configuration that a cluster runs with and another one, with their effects on
    running jobs: worst first, then in the order of the file. Commands name `stack`."""
    keep = platform_interface.get(before.platform).keep
    before, after = keep(None, before), keep(before, after)
    changes = [
        FieldChange(
            path=edit.dotted,
            old=_text(edit.old),
            new=_text(edit.new),
            effect=found.effect,
            reason=found.reason,
            command=found.command.format(stack=stack),
            by_image=found.by_image,
        )
        for edit in edits(before, after)
        if (found := impact(edit))
    ]
    return sorted(changes, key=lambda change: -change.effect.harm)


def worst_effect(changes: list[FieldChange]) -> Effect:
    """Return the effect that harms running jobs most; NOTHING without changes."""
    return max((change.effect for change in changes), key=lambda effect: effect.harm, default=Effect.NOTHING)


def _text(value: Any) -> str:  # noqa: ANN401 - a field may be anything
    if isinstance(value, Section):
        return show(value.model_dump(exclude_none=True)) if value.one_value else _SECTION
    return show(value)


WAY_OUT = "Put the old value back; or, if the cluster may go with all its data: ./hpc destroy {0} && ./hpc up {0}"


def refused(changes: Sequence[FieldChange]) -> list[FieldChange]:
    """Return the changes that a running cluster can't take."""
    return [change for change in changes if change.effect is Effect.REFUSED]


def refusal(changes: Sequence[FieldChange], stack: str) -> str:
    """Return a message about the fields that can't be changed, why, and the way out; empty if there are none."""
    body = [f"  {change.shown}\n    {change.reason}{todo(change, stack)}" for change in refused(changes)]
    return "\n".join([Effect.REFUSED.sentence, *body, WAY_OUT.format(stack)]) if body else ""


def todo(change: FieldChange, stack: str) -> str:
    """Return the line with a change's command; empty for `up`, which follows every preview, and for the way out, which
    stands below all refused changes."""
    usual = (f"./hpc up {stack}", f"./hpc destroy {stack} && ./hpc up {stack}")
    return "" if change.command in usual else f"\n      to do: {change.command}"
