"""Deciding what a registered resource needs, and doing it. The rules are the CLI's (pkg/resource/deploy)."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace

from engine import paths, values
from engine import urn as urns
from engine.diff import Diff, differences, marked
from engine.errors import EngineError, Interrupted, NotRunnable
from engine.events import Change
from engine.goal import Goal
from engine.providers import package_of
from engine.providers.base import Context, Foreign, Provider
from engine.resource import Resource, now
from engine.run import Run, Settle, StepError, explain, finished
from engine.values import Props, plain


class Registrar:
    """Takes the program's registrations, from many threads at once. A resource comes only after all it depends on,
    because the SDK waits for their outputs."""

    def __init__(self, run: Run) -> None:
        self._run, self._state = run, run.state
        self._olds = {r.urn: r for r in run.state.olds if not r.delete}
        self._known: dict[str, Resource] = {}
        self._seen: dict[str, str] = {}
        self._aliased: dict[str, str] = {}
        self._parents_were: dict[str, str] = {}
        self._replaced: set[str] = set()
        self._condemned: dict[str, threading.Event] = {}
        self._defaults: dict[str, str] = {}

    def resource(self, urn: str) -> Resource | None:
        """A resource that this run has dealt with."""
        return self._known.get(urn)

    def register(self, goal: Goal) -> Resource | None:
        """Bring a resource about. None if that failed or something that it needs had. Raises Interrupted, NotRunnable,
        EngineError."""
        if self._run.stopped:
            raise Interrupted("interrupted")
        new = goal.new
        old = self._identify(goal)
        if not new.custom:
            return self._component(new, old)
        provider = self._run.providers.of(new.type)
        if isinstance(provider, Foreign):
            self._run.refuse(new.type)
        if blocked := self._run.failed & new.needs() or (not self._run.dry and values.contains_unknown(new.inputs)):
            what = ", ".join(urns.name_of(u) for u in sorted(blocked)) if isinstance(blocked, set) else "what it needs"
            self._run.fail(new, "skip", f"left alone: {what} failed")
            return None
        if not new.is_provider and not new.provider:
            new.provider = self._default_provider(goal)
        try:
            done = self._custom(goal, old, provider)
        except StepError:
            return None
        except (Interrupted, NotRunnable):
            raise
        except Exception as error:  # noqa: BLE001 - check and diff are other people's code
            self._run.fail(new, "diff", explain(error))
            return None
        self._known[new.urn] = done
        return done

    # -- which resource it is ----------------------------------------------------------------------------------

    def _identify(self, goal: Goal) -> Resource | None:
        """The old resource that the new one continues. Raises EngineError for a URN that is taken."""
        new, stack, project = goal.new, self._run.stack, self._run.project.name
        with self._run.lock:
            if new.urn in self._seen:
                raise EngineError(
                    f"Duplicate resource URN '{new.urn}': two resources of one type and parent are both named "
                    f"'{new.name}'. Give one of them another name."
                )
            self._seen[new.urn] = new.urn
            if new.urn in self._aliased:
                raise EngineError(f"{new.urn} is also claimed by {self._aliased[new.urn]}, through an alias. Drop one.")
            candidates = [new.urn, *goal.old_urns(stack, project, self._parents_were.get(new.parent, ""))]
            for urn in candidates:
                old = self._olds.get(urn)
                if old is None:
                    continue
                if urn != new.urn:
                    if taken := self._seen.get(urn) or self._aliased.get(urn):
                        raise EngineError(f"the alias {urn} of {new.urn} is claimed by {taken} already. Drop it.")
                    self._aliased[urn] = new.urn
                    self._parents_were[new.urn] = urn
                    new.aliases = [urn]
                new.created, new.modified = old.created, old.modified
                return old
        return None

    def _default_provider(self, goal: Goal) -> str:
        """The reference to the provider that the engine itself makes for a package, as the CLI records it."""
        package, run = package_of(goal.new.type), self._run
        version = "" if package == "pulumi-python" else goal.version
        name = "default" + (f"_{re.sub('[.+-]', '_', version)}" if version else "")
        with run.lock:
            if name_key := self._defaults.get(f"{package} {name}"):
                return name_key
            type_ = f"pulumi:providers:{package}"
            urn = urns.make(run.stack, run.project.name, "", type_, name)
            prefix, config = f"{package}:", run.config
            own = {k.removeprefix(prefix): v for k, v in config.values.items() if k.startswith(prefix)}
            inputs: Props = {k: values.secret(v) if prefix + k in config.secrets else v for k, v in own.items()}
            inputs |= {"version": version} if version else {}
            old = self._olds.get(urn)
            id_ = old.id if old else str(uuid.uuid4())
            created = old.created if old else now()
            new = Resource(
                urn, type_, custom=True, id=id_, inputs=inputs, outputs=inputs, created=created, modified=created
            )
            self._state.put(new, old)
            self._known[urn] = new
            self._seen[urn] = urn
            reference = self._defaults[f"{package} {name}"] = f"{urn}::{new.id}"
            return reference

    # -- components --------------------------------------------------------------------------------------------

    def _component(self, new: Resource, old: Resource | None) -> Resource:
        op = "create" if old is None else "same" if values.same(old.inputs, new.inputs) else "update"
        self._run.plan(new, op, differences(old.inputs, new.inputs) if old else ())
        if old and old.custom:
            old.delete, old = True, None
        done = replace(new, outputs=old.outputs if old else {}, created=old.created if old else now())
        done.modified = old.modified if old and op == "same" else now()
        self._state.put(done, old)
        self._known[new.urn] = done
        return done

    def read(self, goal: Goal, reader: Callable[[Goal], Resource]) -> Resource | None:
        """Take in a resource that exists outside of the stack. None if it can't be read."""
        if self._run.stopped:
            raise Interrupted("interrupted")
        old = self._identify(goal)
        goal.new.provider = goal.new.provider or self._default_provider(goal)
        self._run.plan(goal.new, "same" if old and old.external else "read")
        try:
            done = reader(goal)
        except (Interrupted, NotRunnable):
            raise
        except Exception as error:  # noqa: BLE001 - a dynamic provider may read
            self._run.fail(goal.new, "read", explain(error))
            return None
        if old and not old.external:
            old.delete, old = True, None
        self._state.put(done, old)
        self._known[done.urn] = done
        return done

    def finish(self, outputs: Props | None) -> None:
        """Take in the stack's outputs; those of a run that went wrong only as far as they are known."""
        stack = self._known.get(urns.root(self._run.stack, self._run.project.name))
        if stack is None or outputs is None:
            return
        whole = self._run.healthy
        stack.outputs = outputs if whole else {**stack.outputs, **values.known(outputs)}
        if self._run.dry:
            stack.outputs = values.show(outputs)

    def set_outputs(self, urn: str, outputs: Props) -> None:
        """Take in what a component or the stack has to show."""
        if resource := self._known.get(urn):
            resource.outputs = outputs

    # -- custom resources --------------------------------------------------------------------------------------

    def _custom(self, goal: Goal, old: Resource | None, provider: Provider) -> Resource:
        run, new, ctx = self._run, goal.new, self._run.context(goal.new)
        if event := self._condemned.get(new.urn):
            event.wait()
            if new.urn in run.failed:
                run.fail(new, "skip", "left alone: its old self could not be deleted")
                raise StepError("skipped")
        given = new.inputs
        recreate = bool(
            old and (old.pending_replacement or old.external or new.urn in self._condemned or not old.custom)
        )
        before = {} if old is None or recreate else old.inputs
        if before and new.ignore_changes:
            given, failed = paths.keep_old(given, before, new.ignore_changes)
            if failed:
                run.log("info", f"ignore_changes: {', '.join(failed)}: was added or removed, not ignored", new.urn)
        inputs = self._check(provider, ctx, before, given)
        if old is None:
            self._undo_interrupted(new, inputs)
            run.plan(new, "create", reason=self._resumed(new))
            return self._create(new, None, inputs, "create")
        changes = differences(old.inputs, inputs)
        if recreate:
            run.plan(new, "replace", changes, "recreated along with what it depends on")
            self._replaced.add(new.urn)
            return self._create(new, old, inputs, "replace")
        diff, reason = self._verdict(goal, old, provider, inputs)
        changes = marked(changes, diff.replaces, new.replace_on_changes if diff.changes is None else [])
        if diff.replaces or any(change.replaces for change in changes):
            # A replacement keeps nothing of the old inputs, neither defaults nor what was to be ignored.
            inputs = self._check(provider, ctx, {}, new.inputs)
            self._undo_interrupted(new, inputs)
            changes = changes or tuple(Change(key, "update", replaces=True) for key in diff.replaces)
            run.plan(new, "replace", changes, reason)
            return self._replace(goal, old, inputs, diff)
        self._undo_interrupted(new, None)
        if diff.changes or (diff.changes is None and changes):
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

    def _verdict(self, goal: Goal, old: Resource, provider: Provider, inputs: Props) -> tuple[Diff, str]:
        """What is to become of a resource, and why if that is not plain from its inputs."""
        new = goal.new
        for cause, urn in (*(("replaceWith", u) for u in new.replace_with), ("deletedWith", new.deleted_with)):
            if urn in self._replaced:
                return Diff(changes=True, replaces=(cause,)), f"replaced with {urns.name_of(urn)}"
        was, trigger = old.replacement_trigger, new.replacement_trigger
        unclear = values.contains_unknown(was) or values.contains_unknown(trigger)
        if unclear or (was is not None and trigger is not None and not values.same(was, trigger)):
            return Diff(changes=True, replaces=("replacementTrigger",)), "its replacement trigger changed"
        if (old.urn, "deleting") in self._state.pending and not self._state.pending[old.urn, "deleting"].delete:
            return Diff(changes=True, replaces=("id",), delete_first=True), "its deletion was interrupted"
        diff = self._diff(old, provider, inputs)
        if (old.urn, "updating") in self._state.pending and not (diff.changes or diff.replaces):
            return replace(diff, changes=True), "its update was interrupted"
        return diff, ""

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
                keep.delete = True

        made = [replace(new, inputs=inputs, outputs=inputs)]
        if self._run.dry:
            take(made[0])
            return made[0]

        def work(provider: Provider, ctx: Context) -> Settle:
            id_, outputs = provider.create(ctx, plain(inputs))
            made[0] = replace(finished(new, id_, outputs, inputs), created=now(), modified=now())
            return lambda: take(made[0])

        self._run.step(op, "creating", replace(new, inputs=inputs), work)
        return made[0]

    def _update(self, new: Resource, old: Resource, inputs: Props) -> Resource:
        made = [replace(new, id=old.id, inputs=inputs, outputs=inputs)]
        if self._run.dry:
            self._state.put(made[0], old)
            return made[0]

        def work(provider: Provider, ctx: Context) -> Settle:
            outputs = provider.update(ctx, old.id, plain(old.inputs), plain(old.outputs), plain(inputs))
            made[0] = replace(finished(new, old.id, outputs, inputs), modified=now())
            return lambda: self._state.put(made[0], old)

        self._run.step("update", "updating", replace(new, id=old.id, inputs=inputs), work)
        return made[0]

    def _replace(self, goal: Goal, old: Resource, inputs: Props, diff: Diff) -> Resource:
        new = goal.new
        if new.protect and old.protect:
            self._run.fail(new, "replace", "it is protected and would be replaced: unprotect it first (protect=False)")
            raise StepError("protected")
        first = diff.delete_first if goal.delete_first is None else goal.delete_first
        if not first:
            self._replaced.add(new.urn)
            return self._create(new, None, inputs, "replace", keep=old)
        doomed = self._dependents(old)
        self._replaced.add(new.urn)
        try:
            for resource in (*reversed(doomed), old):
                self._delete_first(resource, new)
        except StepError:
            self._run.failed.update(resource.urn for resource in doomed)
            raise
        finally:
            for resource in doomed:
                self._condemned[resource.urn].set()
        return self._create(new, old, inputs, "replace")

    # -- delete before replace ---------------------------------------------------------------------------------

    def _dependents(self, root: Resource) -> list[Resource]:
        """Old resources that can't outlive `root` or will be replaced with it; each after what it depends on. They
        are marked as condemned: if the program registers them again, they are made anew."""
        replaced, doomed = {root.urn}, []
        with self._run.lock:
            for old in self._state.olds:
                if old.delete or old.urn in self._seen or not old.custom or old.external or old is root:
                    continue
                if self._falls(old, replaced):
                    replaced.add(old.urn)
                    doomed.append(old)
                    self._condemned.setdefault(old.urn, threading.Event())
        return doomed

    def _falls(self, old: Resource, replaced: set[str]) -> bool:
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

        def work(provider: Provider, ctx: Context) -> Settle:
            if not old.retain_on_delete and old.deleted_with not in self._replaced | self._condemned.keys():
                provider.delete(ctx, old.id, plain(old.inputs), plain(old.outputs))
            return lambda: setattr(old, "pending_replacement", True)

        self._run.step("delete-replaced", "deleting", old, work)

    # -- what a killed run left --------------------------------------------------------------------------------

    def _resumed(self, new: Resource) -> str:
        return "its creation was interrupted" if (new.urn, "creating") in self._state.pending else ""

    def _undo_interrupted(self, new: Resource, inputs: Props | None) -> None:
        """If a run was killed while creating this resource: creating it again with the same inputs takes over what
        was left, so do nothing then; otherwise what was left must go first."""
        left = self._state.pending.get((new.urn, "creating"))
        if left is None or self._run.dry or (inputs is not None and values.same(_own(left.inputs), _own(inputs))):
            return
        undo_interrupted(self._run, left)


def _own(inputs: Props) -> Props:
    # A dynamic provider's code may change between runs without changing what it made.
    return {k: v for k, v in inputs.items() if k != "__provider"}


def undo_interrupted(run: Run, left: Resource) -> None:
    """Remove what an interrupted creation left. One that can't be finished has left nothing: that is the rule for
    providers (see `Provider`)."""

    def work(provider: Provider, ctx: Context) -> Settle:
        try:
            provider.abandon(ctx, plain(left.inputs))
        except Exception as error:  # noqa: BLE001 - providers are other people's code
            run.log(
                "warning", f"its interrupted creation could not be finished ({explain(error)}): forgotten", left.urn
            )
        return lambda: None

    run.step("delete", "creating", left, work)
