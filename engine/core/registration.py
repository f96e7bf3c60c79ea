"""The program's registrations: which old resource each continues, and whether it may go ahead."""

import re
import uuid
from collections.abc import Callable
from dataclasses import replace

from engine import urn as urns
from engine import values
from engine.core.diff import differences
from engine.core.resource_step import Goal, ResourceSteps
from engine.core.run import Run, StepError, explain
from engine.core.scope import Included
from engine.errors import EngineError, NotRunnableError, RunInterruptedError
from engine.providers.base import Foreign, provider_properties
from engine.state.resource import Resource, now
from engine.values import Props


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
        self._steps = ResourceSteps(run, self._seen)
        self._defaults: dict[str, str] = {}
        self._included = Included(run.scope)
        self._left_out: set[str] = set()

    @property
    def known(self) -> set[str]:
        """The URNs of all that the state holds or the program has registered."""
        return {*self._olds, *self._seen}

    def resource(self, urn: str) -> Resource | None:
        """A resource that this run has dealt with."""
        return self._known.get(urn)

    def register(self, goal: Goal) -> Resource | None:
        """Bring a resource about. None if that failed, something that it needs had, or the run is not about it and
        there is none. Raises RunInterruptedError, NotRunnableError, EngineError."""
        if self._run.stopped:
            raise RunInterruptedError("interrupted")
        new = goal.new
        old = self._identify(goal)
        if not self._included(new) and not self._steps.is_deleted_first(new.urn):
            return self._left_as_it_is(new, old)
        if missing := self._left_out & new.needs():
            raise EngineError(
                f"{new.urn} depends on {min(missing)}, which is not there yet and which this run is not to make: "
                f"name it among the targets as well"
            )
        if not new.custom:
            return self._component(new, old)
        provider = self._run.providers.of(new.type)
        if isinstance(provider, Foreign):
            self._run.refuse(new.type)
        if blocked := self._run.failed & new.needs() or (not self._run.dry and values.contains_unknown(new.inputs)):
            what = ", ".join(urns.name_of(u) for u in sorted(blocked)) if isinstance(blocked, set) else "what it needs"
            self._run.fail(new, "skip", f"left alone: {what} failed")
            return None
        if new.is_provider:
            package, was = new.type.split(":")[2], old.inputs if old else {}
            new.inputs, _ = provider_properties(package, goal.version, new.inputs, was)
        elif not new.provider:
            new.provider = self._default_provider(goal)
        try:
            done = self._steps.apply(goal, old, provider)
        except StepError:
            return None
        except (RunInterruptedError, NotRunnableError):
            raise
        except Exception as error:  # noqa: BLE001 - check and diff are other people's code
            self._run.fail(new, "diff", explain(error))
            return None
        self._known[new.urn] = done
        return done

    def _left_as_it_is(self, new: Resource, old: Resource | None) -> Resource | None:
        """Return what becomes of a resource that the run is not about: its state stays, whatever the program says
        now."""
        if old is None or old.pending_replacement:
            self._left_out.add(new.urn)
            return None
        self._keep(old)
        self._run.plan(old, "same")
        self._known[new.urn] = old
        return old

    def _keep(self, old: Resource) -> None:
        # The program may have dropped what it depends on: that comes before it in the state, wherever it went.
        for urn in old.needs():
            needed = self._olds.get(urn)
            if needed and needed is not old and self._state.waits(needed):
                self._keep(needed)
        self._state.keep(old)

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
        package, run = goal.new.type.split(":", 1)[0], self._run
        version = "" if package == "pulumi-python" else goal.version
        name = "default" + (f"_{re.sub('[.+-]', '_', version)}" if version else "")
        with run.lock:
            if name_key := self._defaults.get(f"{package} {name}"):
                return name_key
            type_ = f"pulumi:providers:{package}"
            urn = urns.make(run.stack, run.project.name, "", type_, name)
            # Dynamic providers get the whole configuration, all others what bears their name.
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
            self._known[urn] = new
            self._seen[urn] = urn
            reference = self._defaults[f"{package} {name}"] = f"{urn}::{new.id}"
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
        self._known[new.urn] = done
        return done

    def read(self, goal: Goal, reader: Callable[[Goal], Resource]) -> Resource | None:
        """Take in a resource that exists outside of the stack. None if it can't be read."""
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
            self._run.fail(goal.new, "read", explain(error))
            return None
        if old and not old.external:
            self._state.mark(old, delete=True)
            old = None
        self._state.put(done, old)
        self._known[done.urn] = done
        return done

    def finish(self, outputs: Props | None) -> None:
        """Take in the stack's outputs; those of a run that went wrong only as far as they are known."""
        stack = self._known.get(urns.root(self._run.stack, self._run.project.name))
        if stack is None or outputs is None:
            return
        whole = self._run.healthy and not self._left_out
        self._state.mark(stack, outputs=outputs if whole else {**stack.outputs, **values.known(outputs)})
        if self._run.dry:
            stack.outputs = values.show(outputs)

    def set_outputs(self, urn: str, outputs: Props) -> None:
        """Take in what a component or the stack has to show."""
        if (resource := self._known.get(urn)) and self._included(resource):
            self._state.mark(resource, outputs=outputs)
