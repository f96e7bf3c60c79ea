"""Steps on custom resources: create, update, replace or keep, also after a run that was killed. The rules are the CLI's
(pkg/resource/deploy).

The CLI keeps pending creations forever, also after a later run created the resource. So most of them are stale, and
resources in the state take precedence over them.
"""

import heapq
import re
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlparse

from engine import urn as urns
from engine import values
from engine.core.diff import Diff, differences, keep_old, mark_replacing
from engine.core.run import Run, StateChange, StepError, error_text, with_outputs
from engine.errors import EngineError
from engine.events import Change
from engine.providers.base import Context, Provider
from engine.state.resource import Resource, now
from engine.values import Props, Value, from_struct, from_value, plain


@dataclass
class Goal:
    """The resource that the program declares (without id and outputs), and options that the state does not keep."""

    new: Resource
    name: str
    version: str = ""
    aliases: list[Value] = field(default_factory=list)
    delete_first: bool | None = None

    @classmethod
    def of_registration(cls, request: Value, stack: str, project: str, root: Path) -> "Goal":
        """Create it from a RegisterResourceRequest. Raises EngineError for what is not supported."""
        place = f"{request.type} {request.name}"
        for is_given, feature in (
            (request.importId, "the option import"),
            (request.remote, "a remote component"),
            (request.state_migrations, "the option state_migrations"),
            (request.packageRef, "a parameterized provider"),
        ):
            if is_given:
                raise EngineError(f"{place}: the embedded engine does not support {feature}; use the Pulumi CLI")
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
                name: _seconds(text, place)
                for name in ("create", "update", "delete")
                if (text := getattr(timeouts, name))
            },
            retain_on_delete=request.retainOnDelete,
            deleted_with=request.deletedWith,
            replace_with=list(request.replace_with),
            source_position=_source_position(request.sourcePosition, root),
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

    def old_urns(self, stack: str, project: str, old_parent: str) -> list[str]:
        """Return the URNs of its aliases, and those below the URN that its parent had before (`old_parent`), if any."""
        new = self.new
        old = [self._alias_urn(alias, stack, project) for alias in self.aliases]
        if old_parent:
            parent_name, old_parent_name = urns.name_of(new.parent), urns.name_of(old_parent)
            for type_, name in [(new.type, self.name), *((urns.type_of(u), urns.name_of(u)) for u in old)]:
                # Children are named after their parents, so a parent's alias renames them too.
                is_named_after = name.startswith(parent_name)
                old_name = old_parent_name + name[len(parent_name) :] if is_named_after else name
                old += [urns.make(stack, project, old_parent, type_, n) for n in dict.fromkeys((old_name, name))]
        return list(dict.fromkeys(old))

    def _alias_urn(self, alias: Value, stack: str, project: str) -> str:
        if alias.WhichOneof("alias") == "urn":
            return alias.urn
        spec = alias.spec
        parent = "" if spec.noParent else spec.parentUrn or self.new.parent
        names = spec.stack or stack, spec.project or project
        return urns.make(*names, parent, spec.type or self.new.type, spec.name or self.name)


def _source_position(position: Value, root: Path) -> str:
    """Return `project:///FILE#LINE`, as the CLI writes it; empty for files outside the project."""
    path = Path(urlparse(position.uri).path)
    if not position.uri or not path.is_relative_to(root):
        return ""
    return f"project:///{path.relative_to(root)}#{position.line}"


def _seconds(text: str, place: str) -> float:
    """Parse a duration as Go writes it: 1h30m, 90s, 500ms."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    parts = re.findall(r"([0-9.]+)(ms|us|ns|h|m|s)", text)
    if "".join(number + unit for number, unit in parts) != text:
        raise EngineError(f"{place}: custom_timeouts: {text!r} is no duration; write 90s, 5m or 1h30m")
    return sum(float(number) * units[unit] for number, unit in parts)


class ResourceSteps:
    """The steps of one run on its custom resources, with the resources that were replaced or deleted for another."""

    def __init__(self, run: Run, registered: set[str]) -> None:
        """`registered` has the URNs that were registered so far, and grows."""
        self._run, self._state, self._registered = run, run.state, registered
        self._replaced: set[str] = set()
        self._deleted_first: dict[str, threading.Event] = {}
        self._olds = run.state.olds
        # For each URN, the indexes in `_olds` of the resources that refer to it.
        self._referrers: dict[str, list[int]] = {}
        for index, old in enumerate(self._olds):
            for urn in {*old.needs(), *old.replace_with}:
                self._referrers.setdefault(urn, []).append(index)

    def is_deleted_first(self, urn: str) -> bool:
        """Return whether a resource was deleted before one that it depends on, so that it must be recreated."""
        return urn in self._deleted_first

    def apply(self, goal: Goal, old: Resource | None, provider: Provider) -> Resource:
        """Create, update, replace or keep a resource. Raises StepError after the failure was emitted,
        RunInterruptedError, and the exceptions of the provider's check and diff."""
        run, new, ctx = self._run, goal.new, self._run.context(goal.new)
        if event := self._deleted_first.get(new.urn):
            event.wait()
            if new.urn in run.failed:
                run.fail(new, "skip", "left alone: its old self could not be deleted")
                raise StepError("skipped")
        declared = new.inputs
        recreate = bool(
            old and (old.pending_replacement or old.external or new.urn in self._deleted_first or not old.custom)
        )
        old_inputs = {} if old is None or recreate else old.inputs
        if old_inputs and new.ignore_changes:
            declared, failed = keep_old(declared, old_inputs, new.ignore_changes)
            if failed:
                run.log("info", f"ignore_changes: {', '.join(failed)}: was added or removed, not ignored", new.urn)
        inputs = self._check(provider, ctx, old_inputs, declared)
        if old is None:
            run.plan(new, "create", reason=resume_reason(run, new))
            undo_unless_resumed(run, new, inputs)
            return self._create(new, None, inputs, "create")
        changes = differences(old.inputs, inputs)
        if recreate:
            run.plan(new, "replace", changes, "recreated along with what it depends on")
            undo_unless_resumed(run, new, inputs)
            self._replaced.add(new.urn)
            return self._create(new, old, inputs, "replace")
        diff, reason = self._compare(goal, old, provider, inputs)
        changes = mark_replacing(changes, diff.replaces, new.replace_on_changes if diff.changes is None else [])
        if diff.replaces or any(change.replaces for change in changes):
            # A replacement keeps nothing of the old inputs: neither defaults nor values under ignoreChanges.
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
        """Return the diff of a resource, and the reason if the changed inputs do not show it."""
        new = goal.new
        if old.taint or self._run.scope.replaces(new.urn):
            # As in the CLI, the provider's diff is not called: only the program decides whether to delete first.
            reason = "it is tainted" if old.taint else "its replacement was asked for"
            return Diff(changes=True, replaces=("id",)), reason
        for cause, urn in (*(("replaceWith", u) for u in new.replace_with), ("deletedWith", new.deleted_with)):
            if urn in self._replaced:
                return Diff(changes=True, replaces=(cause,)), f"replaced with {urns.name_of(urn)}"
        before, after = old.replacement_trigger, new.replacement_trigger
        is_unknown = values.contains_unknown(before) or values.contains_unknown(after)
        if is_unknown or (before is not None and after is not None and not values.same(before, after)):
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
        """Create a resource. It takes the place of `old` in the state; `keep` stays there, marked as to be deleted."""
        created = replace(new, inputs=inputs, outputs=inputs)

        def record() -> None:
            self._state.put(created, old)
            if keep:
                self._state.mark(keep, delete=True)

        def work(provider: Provider, ctx: Context) -> StateChange:
            nonlocal created
            id_, outputs = provider.create(ctx, plain(inputs))
            created = replace(with_outputs(new, id_, outputs, inputs), created=now(), modified=now())
            return record

        if self._run.dry:
            record()
        else:
            # The time distinguishes it from an earlier creation of this resource, which the CLI keeps as pending.
            self._run.step(op, "creating", replace(new, inputs=inputs, created=new.created or now()), work)
        return created

    def _update(self, new: Resource, old: Resource, inputs: Props) -> Resource:
        updated = replace(new, id=old.id, inputs=inputs, outputs=inputs)

        def work(provider: Provider, ctx: Context) -> StateChange:
            nonlocal updated
            outputs = provider.update(ctx, old.id, plain(old.inputs), plain(old.outputs), plain(inputs))
            updated = replace(with_outputs(new, old.id, outputs, inputs), modified=now())
            return lambda: self._state.put(updated, old)

        if self._run.dry:
            self._state.put(updated, old)
        else:
            self._run.step("update", "updating", replace(new, id=old.id, inputs=inputs), work)
        return updated

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
        """Return the old resources that must be deleted before `root`, each after those that it depends on. They are
        recorded: if the program registers them later, they are recreated."""
        replaced, dependents = {root.urn}, []
        with self._run.lock:
            # Candidates are the referrers of what is replaced, in the state's order: each after what it depends on.
            candidates = set(self._referrers.get(root.urn, ()))
            heap = sorted(candidates)
            while heap:
                old = self._olds[heapq.heappop(heap)]
                if old.delete or old.urn in self._registered or not old.custom or old.external or old is root:
                    continue
                if self._state.is_untouched(old) and self._is_replaced_with(old, replaced):
                    replaced.add(old.urn)
                    dependents.append(old)
                    self._deleted_first.setdefault(old.urn, threading.Event())
                    for index in self._referrers.get(old.urn, ()):
                        if index not in candidates:
                            candidates.add(index)
                            heapq.heappush(heap, index)
        return dependents

    def _is_replaced_with(self, old: Resource, replaced: set[str]) -> bool:
        """Return whether a resource must be replaced when the URNs `replaced` are."""
        if (
            old.provider.rsplit("::", 1)[0] in replaced
            or old.deleted_with in replaced
            or {*old.replace_with} & replaced
        ):
            return True
        affected = [key for key, needed in old.property_dependencies.items() if replaced & {*needed}]
        if not affected:
            return False
        inputs = {**old.inputs, **{key: values.UNKNOWN for key in affected if key in old.inputs}}
        diff = self._diff(old, self._run.providers.of(old.type), inputs)
        patterns = old.replace_on_changes if diff.changes is None else []
        return any(c.replaces for c in mark_replacing(differences(old.inputs, inputs), diff.replaces, patterns))

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
    """Remove pending operations that the resources of the state disprove. Call this before anything reads them."""
    state = run.state
    existing = [r for r in state.olds if r.custom and r.id and not r.delete and not r.pending_replacement]
    for (urn, kind), pending in list(state.pending.items()) if existing else ():
        resource = next((r for r in existing if r.urn == urn or urn in r.aliases), None)
        if kind == "creating":
            stale = (
                not _is_replacement(run, pending, resource)
                if resource
                else any(_may_be_same(pending, r) for r in existing)
            )
        else:
            # The resource of the pending operation was deleted or replaced since.
            stale = resource is not None and (pending.id, pending.created) != (resource.id, resource.created)
        if stale:
            del state.pending[urn, kind]


def resume_reason(run: Run, new: Resource) -> str:
    """Return the reason to show with a creation that resumes an interrupted one."""
    return "its creation was interrupted" if (new.urn, "creating") in run.state.pending else ""


def undo_unless_resumed(run: Run, new: Resource, inputs: Props | None) -> None:
    """Remove what an interrupted creation left, unless a creation with the same `inputs` follows, which resumes it."""
    interrupted = run.state.pending.get((new.urn, "creating"))
    if interrupted is None:
        return
    if run.dry:
        # Otherwise the preview would show it again at the end.
        del run.state.pending[new.urn, "creating"]
    elif inputs is None or not values.same(_comparable(interrupted.inputs), _comparable(inputs)):
        undo_creation(run, interrupted)


def undo_creation(run: Run, interrupted: Resource) -> None:
    """Remove what an interrupted creation left. If it can't be finished, it has left nothing: providers must keep that
    rule (see `Provider`)."""
    ids = frozenset(r.id for r in run.state.resources() if r.type == interrupted.type and not r.delete)

    def work(provider: Provider, ctx: Context) -> StateChange:
        try:
            provider.abandon(ctx, plain(interrupted.inputs), ids)
        except Exception as error:  # noqa: BLE001 - providers are other people's code
            ctx.log("warning", f"its interrupted creation could not be finished ({error_text(error)}): forgotten")
        return lambda: None

    run.step("delete", "creating", interrupted, work)


def _may_be_same(pending: Resource, existing: Resource) -> bool:
    """Return whether both may be one resource, under another parent or another name."""
    if pending.type != existing.type:
        return False
    return pending.name == existing.name or values.same(_comparable(pending.inputs), _comparable(existing.inputs))


def _is_replacement(run: Run, pending: Resource, existing: Resource) -> bool:
    """Return whether a pending creation was to replace an existing resource. Until it has ended, both engines record
    it with the creation time of the old resource."""
    if not pending.created or pending.created != existing.created:
        return False
    if values.same(_comparable(pending.inputs), _comparable(existing.inputs)):
        return False
    provider, ctx = run.providers.of(existing.type), run.context(existing)
    try:
        diff = provider.diff(ctx, existing.id, plain(existing.inputs), plain(existing.outputs), plain(pending.inputs))
    except Exception:  # noqa: BLE001 - providers are other people's code
        return False
    return bool(diff.replaces) and not diff.delete_first


def _comparable(inputs: Props) -> Props:
    """Return the inputs without a dynamic provider's code, which may change without a change of the resource."""
    return {k: v for k, v in inputs.items() if k != "__provider"}
