"""The program's registrations: the old resource that each one continues, and whether its step may begin."""

import re
import uuid
from collections.abc import Callable
from dataclasses import replace

from engine import urn as urns
from engine import values
from engine.core.diff import differences
from engine.core.resource_step import Goal, ResourceSteps
from engine.core.run import Run, StepError, error_text
from engine.core.scope import ScopeFilter
from engine.errors import EngineError, NotRunnableError, RunInterruptedError
from engine.providers.base import Foreign, provider_properties
from engine.state.resource import Resource, now
from engine.values import Props


class Registrar:
    """Handles the program's registrations, from many threads at once. A resource is registered after all resources that
    it depends on, because the SDK waits for their outputs."""

    def __init__(self, run: Run) -> None:
        self._run, self._state = run, run.state
        self._olds = {r.urn: r for r in run.state.olds if not r.delete}
        self._resources: dict[str, Resource] = {}  # those with which this run is done, by URN
        self._urns: set[str] = set()
        self._aliased: dict[str, str] = {}  # new URNs by old ones
        self._old_urns: dict[str, str] = {}  # old URNs by new ones
        self._steps = ResourceSteps(run, self._urns)
        self._default_providers: dict[str, str] = {}
        self._in_scope = ScopeFilter(run.scope)
        self._excluded: set[str] = set()

    @property
    def urns(self) -> set[str]:
        """The URNs of all resources that the state has or the program has registered."""
        return {*self._olds, *self._urns}

    def resource(self, urn: str) -> Resource | None:
        """Return a resource after its registration; None if there is none with that URN."""
        return self._resources.get(urn)

    def register(self, goal: Goal) -> Resource | None:
        """Create, update, replace or keep a resource. Returns None if that failed, if a resource that it needs failed,
        or if it is out of scope and does not exist. Raises RunInterruptedError, NotRunnableError, EngineError."""
        if self._run.stopped:
            raise RunInterruptedError("interrupted")
        new = goal.new
        old = self._identify(goal)
        if not self._in_scope(new) and not self._steps.is_deleted_first(new.urn):
            return self._keep_unchanged(new, old)
        if missing := self._excluded & new.needs():
            raise EngineError(
                f"{new.urn} depends on {min(missing)}, which is not there yet and which this run is not to make: "
                f"name it among the targets as well"
            )
        if not new.custom:
            return self._component(new, old)
        provider = self._run.providers.of(new.type)
        if isinstance(provider, Foreign):
            self._run.add_foreign(new.type)
        failed = self._run.failed & new.needs()
        if failed or (not self._run.dry and values.contains_unknown(new.inputs)):
            names = ", ".join(urns.name_of(u) for u in sorted(failed)) or "what it needs"
            self._run.fail(new, "skip", f"left alone: {names} failed")
            return None
        if new.is_provider:
            package, old_inputs = new.type.split(":")[2], old.inputs if old else {}
            new.inputs, _ = provider_properties(package, goal.version, new.inputs, old_inputs)
        elif not new.provider:
            new.provider = self._default_provider(goal)
        try:
            done = self._steps.apply(goal, old, provider)
        except StepError:
            return None
        except (RunInterruptedError, NotRunnableError):
            raise
        except Exception as error:  # noqa: BLE001 - check and diff are other people's code
            self._run.fail(new, "diff", error_text(error))
            return None
        self._resources[new.urn] = done
        return done

    def _keep_unchanged(self, new: Resource, old: Resource | None) -> Resource | None:
        """Keep the state of a resource that is out of scope. Returns None if it does not exist."""
        if old is None or old.pending_replacement:
            self._excluded.add(new.urn)
            return None
        self._keep(old)
        self._run.plan(old, "same")
        self._resources[new.urn] = old
        return old

    def _keep(self, old: Resource) -> None:
        # The program may no longer declare the resources that it depends on, which must come before it in the state.
        for urn in old.needs():
            needed = self._olds.get(urn)
            if needed and needed is not old and self._state.is_untouched(needed):
                self._keep(needed)
        self._state.keep(old)

    # -- identity ----------------------------------------------------------------------------------------------

    def _identify(self, goal: Goal) -> Resource | None:
        """Return the old resource that the new one continues. Raises EngineError for a URN that is taken."""
        new, stack, project = goal.new, self._run.stack, self._run.project.name
        with self._run.lock:
            if new.urn in self._urns:
                raise EngineError(
                    f"Duplicate resource URN '{new.urn}': two resources of one type and parent are both named "
                    f"'{new.name}'. Give one of them another name."
                )
            self._urns.add(new.urn)
            if new.urn in self._aliased:
                raise EngineError(f"{new.urn} is also claimed by {self._aliased[new.urn]}, through an alias. Drop one.")
            candidates = [new.urn, *goal.old_urns(stack, project, self._old_urns.get(new.parent, ""))]
            for urn in candidates:
                old = self._olds.get(urn)
                if old is None:
                    continue
                if urn != new.urn:
                    if taken := urn if urn in self._urns else self._aliased.get(urn):
                        raise EngineError(f"the alias {urn} of {new.urn} is claimed by {taken} already. Drop it.")
                    self._aliased[urn] = new.urn
                    self._old_urns[new.urn] = urn
                    new.aliases = [urn]
                new.created, new.modified = old.created, old.modified
                return old
        return None

    def _default_provider(self, goal: Goal) -> str:
        """Return the reference to a package's default provider, which is recorded as by the CLI."""
        package, run = goal.new.type.split(":", 1)[0], self._run
        version = "" if package == "pulumi-python" else goal.version
        name = "default" + (f"_{re.sub('[.+-]', '_', version)}" if version else "")
        with run.lock:
            if reference := self._default_providers.get(f"{package} {name}"):
                return reference
            type_ = f"pulumi:providers:{package}"
            urn = urns.make(run.stack, run.project.name, "", type_, name)
            # Dynamic providers get the whole configuration, others the keys of their own namespace.
            prefix, config = "" if package == "pulumi-python" else f"{package}:", run.config
            own = {k.removeprefix(prefix): v for k, v in config.values.items() if k.startswith(prefix)}
            settings: Props = {k: values.secret(v) if prefix + k in config.secrets else v for k, v in own.items()}
            old = self._olds.get(urn)
            inputs, outputs = provider_properties(package, version, settings, old.inputs if old else {})
            id_ = old.id if old else str(uuid.uuid4())
            created = old.created if old else now()
            new = Resource(
                urn, type_, custom=True, id=id_, inputs=inputs, outputs=outputs, created=created, modified=created
            )
            self._state.put(new, old)
            self._resources[urn] = new
            self._urns.add(urn)
            reference = self._default_providers[f"{package} {name}"] = f"{urn}::{new.id}"
            return reference

    # -- components --------------------------------------------------------------------------------------------

    def _component(self, new: Resource, old: Resource | None) -> Resource:
        op = "create" if old is None else "same" if values.same(old.inputs, new.inputs) else "update"
        self._run.plan(new, op, differences(old.inputs, new.inputs) if old else ())
        if old and old.custom:
            self._state.mark(old, delete=True)
            old = None
        done = replace(new, outputs=old.outputs if old else {}, created=old.created if old else now())
        done.modified = old.modified if old and op == "same" else now()
        self._state.put(done, old)
        self._resources[new.urn] = done
        return done

    def read(self, goal: Goal, reader: Callable[[Goal], Resource]) -> Resource | None:
        """Record a resource that exists outside of the stack. Returns None if it can't be read."""
        if self._run.stopped:
            raise RunInterruptedError("interrupted")
        old = self._identify(goal)
        goal.new.provider = goal.new.provider or self._default_provider(goal)
        self._run.plan(goal.new, "same" if old and old.external else "read")
        try:
            done = reader(goal)
        except (RunInterruptedError, NotRunnableError):
            raise
        except Exception as error:  # noqa: BLE001 - a dynamic provider may read
            self._run.fail(goal.new, "read", error_text(error))
            return None
        if old and not old.external:
            self._state.mark(old, delete=True)
            old = None
        self._state.put(done, old)
        self._resources[done.urn] = done
        return done

    def finish(self, outputs: Props | None) -> None:
        """Record the stack's outputs. After a failure, or with resources out of scope, those that are not known keep
        their old values."""
        stack = self._resources.get(urns.root(self._run.stack, self._run.project.name))
        if stack is None or outputs is None:
            return
        complete = self._run.healthy and not self._excluded
        new_outputs = outputs if complete else {**stack.outputs, **values.without_unknowns(outputs)}
        self._state.mark(stack, outputs=new_outputs)
        if self._run.dry:
            stack.outputs = values.show(outputs)

    def set_outputs(self, urn: str, outputs: Props) -> None:
        """Record the outputs of a component."""
        if (resource := self._resources.get(urn)) and self._in_scope(resource):
            self._state.mark(resource, outputs=outputs)
