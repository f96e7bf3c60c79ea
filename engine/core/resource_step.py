"""Custom resources: deciding what one needs, and doing it, also after a run that was killed. The rules are the CLI's
(pkg/resource/deploy).

The CLI keeps pending creations forever, also after a later run created the resource. So most of them are stale, and the
resources of the state decide.
"""

import heapq
import re
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlparse

from engine import urn as urns
from engine import values
from engine.core.diff import Diff, differences, keep_old, marked
from engine.core.run import Run, StateChange, StepError, explain, with_outputs
from engine.errors import EngineError
from engine.events import Change
from engine.providers.base import Context, Provider, UnfinishedStepError
from engine.state.resource import Resource, now
from engine.values import Props, Value, from_struct, from_value, plain


@dataclass
class Goal:
    """The resource as it shall be (without id and outputs), and what is no part of its state."""

    new: Resource
    name: str
    version: str = ""
    aliases: list[Value] = field(default_factory=list)
    delete_first: bool | None = None

    @classmethod
    def of_registration(cls, request: Value, stack: str, project: str, root: Path) -> "Goal":
        """Create it from a RegisterResourceRequest. Raises EngineError for what is not supported."""
        where = f"{request.type} {request.name}"
        for wrong, what in (
            (request.importId, "the option import"),
            (request.remote, "a remote component"),
            (request.state_migrations, "the option state_migrations"),
            (request.packageRef, "a parameterized provider"),
        ):
            if wrong:
                raise EngineError(f"{where}: the embedded engine does not support {what}; use the Pulumi CLI")
        parent = request.parent
        if not parent and request.type != urns.STACK_TYPE and not urns.is_provider(request.type):
            parent = urns.root(stack, project)
        timeouts = request.customTimeouts
        deps = {key: sorted(value.urns) for key, value in request.propertyDependencies.items() if value.urns}
        trigger = request.replacement_trigger
        new = Resource(
            urn=urns.make(stack, project, parent, request.type, request.name),
            type=request.type,
            custom=request.custom,
            inputs=from_struct(request.object),
            parent=parent,
            protect=request.protect,
            dependencies=sorted(request.dependencies),
            provider=request.provider,
            property_dependencies=deps,
            additional_secret_outputs=list(request.additionalSecretOutputs),
            custom_timeouts={
                name: _seconds(text, where)
                for name in ("create", "update", "delete")
                if (text := getattr(timeouts, name))
            },
            retain_on_delete=request.retainOnDelete,
            deleted_with=request.deletedWith,
            replace_with=list(request.replace_with),
            source_position=_position(request.sourcePosition, root),
            ignore_changes=list(request.ignoreChanges),
            replace_on_changes=list(request.replaceOnChanges),
            replacement_trigger=from_value(trigger) if request.HasField("replacement_trigger") else None,
        )
        first = request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None
        return cls(new, request.name, request.version, list(request.aliases), first)

    @classmethod
    def of_read(cls, request: Value, stack: str, project: str) -> "Goal":
        """Create it from a ReadResourceRequest."""
        parent = request.parent or urns.root(stack, project)
        new = Resource(
            urn=urns.make(stack, project, parent, request.type, request.name),
            type=request.type,
            custom=True,
            external=True,
            id=request.id,
            inputs=from_struct(request.properties),
            parent=parent,
            dependencies=sorted(request.dependencies),
            provider=request.provider,
            additional_secret_outputs=list(request.additionalSecretOutputs),
        )
        return cls(new, request.name, request.version)

    def old_urns(self, stack: str, project: str, parent_was: str) -> list[str]:
        """The URNs that its aliases name, and those that it had if its parent had another (`parent_was`)."""
        new = self.new
        found = [self._collapse(alias, stack, project) for alias in self.aliases]
        if parent_was:
            was = [(new.type, self.name), *((urns.type_of(u), urns.name_of(u)) for u in found)]
            before, after = urns.name_of(new.parent), urns.name_of(parent_was)
            for type_, name in was:
                # Children are named after their parents, so a parent's alias renames them too.
                renamed = after + name[len(before) :] if name.startswith(before) else name
                found += [urns.make(stack, project, parent_was, type_, name) for name in dict.fromkeys((renamed, name))]
        return list(dict.fromkeys(found))

    def _collapse(self, alias: Value, stack: str, project: str) -> str:
        if alias.WhichOneof("alias") == "urn":
            return alias.urn
        spec = alias.spec
        parent = "" if spec.noParent else spec.parentUrn or self.new.parent
        names = spec.stack or stack, spec.project or project
        return urns.make(*names, parent, spec.type or self.new.type, spec.name or self.name)


def _position(position: Value, root: Path) -> str:
    """`project:///FILE#LINE`, as the CLI writes it; nothing for files outside the project."""
    path = Path(urlparse(position.uri).path)
    if not position.uri or not path.is_relative_to(root):
        return ""
    return f"project:///{path.relative_to(root)}#{position.line}"


def _seconds(text: str, where: str) -> float:
    """A duration as Go writes it: 1h30m, 90s, 500ms."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    parts = re.findall(r"([0-9.]+)(ms|us|ns|h|m|s)", text)
    if "".join(number + unit for number, unit in parts) != text:
        raise EngineError(f"{where}: custom_timeouts: {text!r} is no duration; write 90s, 5m or 1h30m")
    return sum(float(number) * units[unit] for number, unit in parts)


class ResourceSteps:
    """The custom resources of one run: what was replaced, what had to go along with it."""

    def __init__(self, run: Run, seen: dict[str, str]) -> None:
        """`seen` holds the URNs that were registered so far, and grows."""
        self._run, self._state, self._seen = run, run.state, seen
        self._replaced: set[str] = set()
        self._deleted_first: dict[str, threading.Event] = {}
        self._found = run.state.olds
        # The places, among what was found, of all that name a resource.
        self._named_by: dict[str, list[int]] = {}
        for place, old in enumerate(self._found):
            for urn in {*old.needs(), *old.replace_with}:
                self._named_by.setdefault(urn, []).append(place)

    def is_deleted_first(self, urn: str) -> bool:
        """Return whether a resource was deleted with what it depends on, so that it must be recreated."""
        return urn in self._deleted_first

    def apply(self, goal: Goal, old: Resource | None, provider: Provider) -> Resource:
        """Create, update, replace or leave a resource. Raises StepError, after printing it; RunInterruptedError; and
        whatever a provider's check or diff raises."""
        run, new, ctx = self._run, goal.new, self._run.context(goal.new)
        if event := self._deleted_first.get(new.urn):
            event.wait()
            if new.urn in run.failed:
                run.fail(new, "skip", "left alone: its old self could not be deleted")
                raise StepError("skipped")
        given = new.inputs
        recreate = bool(
            old and (old.pending_replacement or old.external or new.urn in self._deleted_first or not old.custom)
        )
        before = {} if old is None or recreate else old.inputs
        if before and new.ignore_changes:
            given, failed = keep_old(given, before, new.ignore_changes)
            if failed:
                run.log("info", f"ignore_changes: {', '.join(failed)}: was added or removed, not ignored", new.urn)
        inputs = self._check(provider, ctx, before, given)
        if old is None:
            run.plan(new, "create", reason=resumed(run, new))
            undo_unless_resumed(run, new, inputs)
            return self._create(new, None, inputs, "create")
        changes = differences(old.inputs, inputs)
        if recreate:
            run.plan(new, "replace", changes, "recreated along with what it depends on")
            undo_unless_resumed(run, new, inputs)
            self._replaced.add(new.urn)
            return self._create(new, old, inputs, "replace")
        diff, reason = self._compare(goal, old, provider, inputs)
        changes = marked(changes, diff.replaces, new.replace_on_changes if diff.changes is None else [])
        if diff.replaces or any(change.replaces for change in changes):
            # A replacement keeps nothing of the old inputs, neither defaults nor what was to be ignored.
            inputs = self._check(provider, ctx, {}, new.inputs)
            undo_unless_resumed(run, new, inputs)
            changes = changes or tuple(Change(key, "update", replaces=True) for key in diff.replaces)
            run.plan(new, "replace", changes, reason)
            return self._replace(goal, old, inputs, diff)
        undo_unless_resumed(run, new, None)
        if diff.changes or (diff.changes is None and changes) or old.init_errors:
            run.plan(new, "update", changes, reason or ("" if changes else "what is there differs"))
            return self._update(new, old, inputs)
        run.plan(new, "same")
        done = replace(new, id=old.id, inputs=inputs, outputs=old.outputs, modified=old.modified)
        done.outputs |= {k: values.secret(done.outputs[k]) for k in new.additional_secret_outputs if k in done.outputs}
        self._state.put(done, old)
        return done

    @staticmethod
    def _check(provider: Provider, ctx: Context, olds: Props, news: Props) -> Props:
        return values.keep_secrets(provider.check(ctx, plain(olds), plain(news)), news)

    def _compare(self, goal: Goal, old: Resource, provider: Provider, inputs: Props) -> tuple[Diff, str]:
        """Return what is to become of a resource, and why if that is not plain from its inputs."""
        new = goal.new
        if self._run.scope.replaces(new.urn):
            # The provider is not asked, as by the CLI: whether the old one goes first is the program's word alone.
            return Diff(changes=True, replaces=("id",)), "its replacement was asked for"
        for cause, urn in (*(("replaceWith", u) for u in new.replace_with), ("deletedWith", new.deleted_with)):
            if urn in self._replaced:
                return Diff(changes=True, replaces=(cause,)), f"replaced with {urns.name_of(urn)}"
        was, trigger = old.replacement_trigger, new.replacement_trigger
        unclear = values.contains_unknown(was) or values.contains_unknown(trigger)
        if unclear or (was is not None and trigger is not None and not values.same(was, trigger)):
            return Diff(changes=True, replaces=("replacementTrigger",)), "its replacement trigger changed"
        if self._half_deleted(old):
            return Diff(changes=True, replaces=("id",)), "its deletion was interrupted"
        diff = self._diff(old, provider, inputs)
        if (old.urn, "updating") in self._state.pending and not (diff.changes or diff.replaces):
            return replace(diff, changes=True), "its update was interrupted"
        return diff, ""

    def _half_deleted(self, old: Resource) -> bool:
        pending = self._state.pending.get((old.urn, "deleting"))
        return pending is not None and not pending.delete

    def _diff(self, old: Resource, provider: Provider, inputs: Props) -> Diff:
        ctx = self._run.context(old)
        return provider.diff(ctx, old.id, plain(old.inputs), plain(old.outputs), plain(inputs))

    def _create(
        self, new: Resource, old: Resource | None, inputs: Props, op: str, *, keep: Resource | None = None
    ) -> Resource:
        """Create. `old` goes from the state in the same moment, `keep` is marked as to be deleted later."""

        def take(done: Resource) -> None:
            self._state.put(done, old)
            if keep:
                self._state.mark(keep, delete=True)

        made = [replace(new, inputs=inputs, outputs=inputs)]
        if self._run.dry:
            take(made[0])
            return made[0]

        def work(provider: Provider, ctx: Context) -> StateChange:
            id_, outputs = provider.create(ctx, plain(inputs))
            made[0] = replace(with_outputs(new, id_, outputs, inputs), created=now(), modified=now())
            return lambda: take(made[0])

        self._run.step(op, "creating", replace(new, inputs=inputs), work)
        return made[0]

    def _update(self, new: Resource, old: Resource, inputs: Props) -> Resource:
        made = [replace(new, id=old.id, inputs=inputs, outputs=inputs)]
        if self._run.dry:
            self._state.put(made[0], old)
            return made[0]

        def work(provider: Provider, ctx: Context) -> StateChange:
            outputs = provider.update(ctx, old.id, plain(old.inputs), plain(old.outputs), plain(inputs))
            made[0] = replace(with_outputs(new, old.id, outputs, inputs), modified=now())
            return lambda: self._state.put(made[0], old)

        self._run.step("update", "updating", replace(new, id=old.id, inputs=inputs), work)
        return made[0]

    def _replace(self, goal: Goal, old: Resource, inputs: Props, diff: Diff) -> Resource:
        new = goal.new
        if new.protect and old.protect:
            self._run.fail(new, "replace", "it is protected and would be replaced: unprotect it first (protect=False)")
            raise StepError("protected")
        first = diff.delete_first if goal.delete_first is None else goal.delete_first
        if not first and not self._half_deleted(old):
            self._replaced.add(new.urn)
            return self._create(new, None, inputs, "replace", keep=old)
        dependents = self._dependents(old)
        self._replaced.add(new.urn)
        try:
            for resource in (*reversed(dependents), old):
                self._delete_first(resource, new)
        except StepError:
            self._run.failed.update(resource.urn for resource in dependents)
            raise
        finally:
            for resource in dependents:
                self._deleted_first[resource.urn].set()
        return self._create(new, old, inputs, "replace")

    # -- delete before replace ---------------------------------------------------------------------------------

    def _dependents(self, root: Resource) -> list[Resource]:
        """Old resources that can't outlive `root` or will be replaced with it; each after what it depends on. They
        are noted: if the program registers them again, they are recreated."""
        replaced, dependents = {root.urn}, []
        with self._run.lock:
            # Who might fall are those that name one that does, in the state's order: each after what it depends on.
            found = set(self._named_by.get(root.urn, ()))
            left = sorted(found)
            while left:
                old = self._found[heapq.heappop(left)]
                if old.delete or old.urn in self._seen or not old.custom or old.external or old is root:
                    continue
                if self._state.waits(old) and self._must_go(old, replaced):
                    replaced.add(old.urn)
                    dependents.append(old)
                    self._deleted_first.setdefault(old.urn, threading.Event())
                    for place in self._named_by.get(old.urn, ()):
                        if place not in found:
                            found.add(place)
                            heapq.heappush(left, place)
        return dependents

    def _must_go(self, old: Resource, replaced: set[str]) -> bool:
        if (
            old.provider.rsplit("::", 1)[0] in replaced
            or old.deleted_with in replaced
            or {*old.replace_with} & replaced
        ):
            return True
        touched = [key for key, wanted in old.property_dependencies.items() if replaced & {*wanted}]
        if not touched:
            return False
        inputs = {**old.inputs, **{key: values.UNKNOWN for key in touched if key in old.inputs}}
        diff = self._diff(old, self._run.providers.of(old.type), inputs)
        patterns = old.replace_on_changes if diff.changes is None else []
        return any(c.replaces for c in marked(differences(old.inputs, inputs), diff.replaces, patterns))

    def _delete_first(self, old: Resource, because: Resource) -> None:
        if old.pending_replacement:
            return
        if old.protect and old.urn != because.urn:
            self._run.fail(
                old, "delete", f"it is protected and would be replaced with {because.name}: unprotect it first"
            )
            raise StepError("protected")
        if self._run.dry:
            return

        def work(provider: Provider, ctx: Context) -> StateChange:
            if not old.retain_on_delete and old.deleted_with not in self._replaced | self._deleted_first.keys():
                provider.delete(ctx, old.id, plain(old.inputs), plain(old.outputs))
            return lambda: self._state.mark(old, pending_replacement=True)

        self._run.step("delete-replaced", "deleting", old, work)


def drop_stale(run: Run) -> None:
    """Remove pending operations that do not fit the resources of the state. Call this before anything reads them."""
    state = run.state
    held = [r for r in state.olds if r.custom and r.id and not r.delete and not r.pending_replacement]
    for (urn, kind), note in list(state.pending.items()) if held else ():
        mine = next((r for r in held if r.urn == urn or urn in r.aliases), None)
        if kind == "creating":
            stale = not _replaces(run, note, mine) if mine else any(_alike(note, r) for r in held)
        else:
            # One that is gone, or another that took its place since.
            stale = mine is not None and (note.id, note.created) != (mine.id, mine.created)
        if stale:
            del state.pending[urn, kind]


def resumed(run: Run, new: Resource) -> str:
    """The reason shown with a creation that resumes an interrupted one."""
    return "its creation was interrupted" if (new.urn, "creating") in run.state.pending else ""


def undo_unless_resumed(run: Run, new: Resource, inputs: Props | None) -> None:
    """Remove what an interrupted creation left, unless a creation with the same inputs takes it over. `inputs` None
    stands for no creation."""
    left = run.state.pending.get((new.urn, "creating"))
    if left is None:
        return
    if run.dry:
        # In a preview, this keeps it from being shown again at the end.
        del run.state.pending[new.urn, "creating"]
    elif inputs is None or not values.same(_own(left.inputs), _own(inputs)):
        undo(run, left)


def undo(run: Run, left: Resource) -> None:
    """Remove what an interrupted creation left. One that can't be finished has left nothing: that is the rule for
    providers (see `Provider`)."""

    held = frozenset(r.id for r in run.state.resources() if r.type == left.type and not r.delete)

    def work(provider: Provider, ctx: Context) -> StateChange:
        try:
            provider.abandon(ctx, plain(left.inputs), held)
        except UnfinishedStepError:
            raise
        except Exception as error:  # noqa: BLE001 - providers are other people's code
            ctx.log("warning", f"its interrupted creation could not be finished ({explain(error)}): forgotten")
        return lambda: None

    run.step("delete", "creating", left, work)


def _alike(note: Resource, held: Resource) -> bool:
    """Return whether both may be one thing, that has moved to another parent or to another name."""
    if note.type != held.type:
        return False
    return note.name == held.name or values.same(_own(note.inputs), _own(held.inputs))


def _replaces(run: Run, note: Resource, held: Resource) -> bool:
    """Return whether the note is of a creation that was to replace what the state still holds, and made another thing
    beside it. Both engines give the new one the time when the old one was made, until it is there itself."""
    if not note.created or note.created != held.created or values.same(_own(note.inputs), _own(held.inputs)):
        return False
    provider, ctx = run.providers.of(held.type), run.context(held)
    try:
        diff = provider.diff(ctx, held.id, plain(held.inputs), plain(held.outputs), plain(note.inputs))
    except Exception:  # noqa: BLE001 - providers are other people's code
        return False
    return bool(diff.replaces) and not diff.delete_first


def _own(inputs: Props) -> Props:
    # A dynamic provider's code may change between runs without changing what it made.
    return {k: v for k, v in inputs.items() if k != "__provider"}
