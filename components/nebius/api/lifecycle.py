"""The provider of `NebiusResource`: creates or takes over, updates, reads, deletes."""

import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.dynamic import report
from components.nebius.api import client, objects
from components.nebius.api.client import NOT_FOUND, NebiusError, explain, nebius_error
from components.nebius.api.kinds import KINDS, Kind, kind_of
from components.nebius.api.objects import OWNER_LABEL, Wanted, failure, get, owner_of, start_delete, state_of, title
from components.nebius.api.specs import Message, canonical, differing, full, merged, observed, plain, same, spec_message
from components.nebius.poll import Poll

PACE = 5.0
"""Seconds between polls."""
_FIGURES = re.compile("[0-9]+")
UNREACHABLE = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", ""})
"""Statuses of a poll that are no answer: what is waited for goes on."""
UNREACHABLE_SECONDS = 300.0
"""Time for which polls may fail so; the SDK may retry a withdrawn credential for as long as it is asked to."""


FRESH = frozenset({NOT_FOUND, "PERMISSION_DENIED"})
"""Statuses of a creation that pass where what it names was created a moment ago."""
IN_USE = frozenset({"bad_resource_state"})
"""Details of the error that something still uses what is to be deleted: machines detach a file system minutes later."""


class Wait(Poll):
    """A deadline, and what is reported until then."""

    def __init__(self, doing: str, seconds: float, pace: float | None = None) -> None:
        super().__init__(seconds, PACE if pace is None else pace)
        self.doing = doing
        self._lost: float | None = None

    def asked(self, call: Callable[[], Message]) -> Message:
        """Return what a poll returns, again and again while the API can't be reached, within UNREACHABLE_SECONDS."""
        while True:
            try:
                answer = call()
            except NebiusError as error:
                now = time.monotonic()
                self._lost = now if self._lost is None else self._lost
                if error.code not in UNREACHABLE or now - self._lost > UNREACHABLE_SECONDS:
                    raise
                self.step(str(error).splitlines()[-1].strip().removeprefix("to do: "))
            else:
                self._lost = None
                return answer

    def step(self, progress: str) -> None:
        """Report a progress that is new, and sleep.

        Raises NebiusError after the deadline, with the progress as the reason.
        """
        if self.passed + self.pace > self.seconds:
            lasted = f"it has not ended after {self.seconds:.0f} s"
            reasons = [lasted, f"last progress: {progress}"] if progress else [lasted]
            raise nebius_error(
                self.doing, reasons, "resolve the reason if there is one, then run it again: it goes on where it is"
            )
        line = f"{self.doing}: {progress} ({self.passed:.0f} s)" if progress else ""
        # Progress of which only figures have changed is not reported each time.
        self.pause(_FIGURES.sub("", progress), line)


def until_ended(wait: Wait, kind: Kind, operation: Message, endpoint: str) -> None:
    """Poll an operation until it has ended.

    Raises NebiusError if it failed, or has not ended in time.
    """
    while not operation.done():
        wait.step(wait.asked(lambda: _progress(kind, operation, endpoint)))
        try:
            wait.asked(lambda: _poll(wait.doing, operation))
        except NebiusError as error:
            if error.code == NOT_FOUND:
                return  # operations are not kept for ever; the object itself is asked next
            raise
    if (error := failure(wait.doing, operation)) is not None:
        raise error


def _poll(doing: str, operation: Message) -> None:
    try:
        operation.sync_update(**client.LIMITS)
    except Exception as error:
        raise explain(doing, error) from error


def until_ready(wait: Wait, kind: Kind, id_: str, endpoint: str) -> Message:
    """The object's message, once it can be used.

    Raises NebiusError if it failed, is gone, or can't be used in time.
    """
    while True:
        message = wait.asked(lambda: get(kind, id_, endpoint))
        if message is None:
            raise nebius_error(wait.doing, [f"{title(kind, id_)} was deleted meanwhile"], "run it again")
        state = state_of(message)
        if state in kind.failed:
            raise nebius_error(
                wait.doing, [f"its state is {state}", *_reasons(message)], "see the reason, and run it again"
            )
        if is_ready(kind, message):
            return message
        wait.step("; ".join([f"its state is {state or 'reconciling'}", *_nodes(message), *_reasons(message)]))


def is_ready(kind: Kind, message: Message) -> bool:
    """Return whether it can be used."""
    reconciling = getattr(getattr(message, "status", None), "reconciling", False)
    return (not kind.ready or state_of(message) in kind.ready) and not reconciling


def until_gone(wait: Wait, kind: Kind, id_: str, endpoint: str) -> None:
    """Wait until it is gone, or as good as gone: a deleted bucket is kept for days."""
    while True:
        message = wait.asked(lambda: get(kind, id_, endpoint))
        if message is None or (state_of(message) in kind.deleting and state_of(message) != "DELETING"):
            return
        wait.step(f"its state is {state_of(message)}" if state_of(message) else "")


def delete_object(kind: Kind, id_: str, endpoint: str, wait: Wait) -> None:
    """Delete it and wait until it is gone; nothing to delete is no error."""
    operation = retried(wait, lambda: start_delete(kind, id_, endpoint), IN_USE)
    if operation is not None:
        try:
            until_ended(wait, kind, operation, endpoint)
        except NebiusError as error:
            if error.code != NOT_FOUND:
                raise
    until_gone(wait, kind, id_, endpoint)


def retried(
    wait: Wait, start: Callable[[], Message], also: frozenset[str] = frozenset(), fresh_seconds: float = 0
) -> Message:
    """Return what `start` returns, again and again while another operation is in its way, until the deadline.

    `also`: details of errors that pass as well. `fresh_seconds`: for how long those of FRESH may.
    """
    while True:
        try:
            return start()
        except NebiusError as error:
            fresh = error.code in FRESH and wait.passed + wait.pace <= fresh_seconds
            if not (fresh or error.later or also & {*error.details}) or wait.passed + wait.pace > wait.seconds:
                raise
            wait.step(str(error).splitlines()[1].strip())


def _progress(kind: Kind, operation: Message, endpoint: str) -> str:
    """Return where an operation is: its steps, its problems, and of node groups how many nodes are ready."""
    parts: list[str] = []
    if (tracker := operation.progress_tracker()) is not None:
        done = tracker.work_fraction()
        under_way = [step.description() for step in tracker.steps() if step.started_at() and not step.finished_at()]
        texts = [tracker.description(), *under_way, "" if done is None else f"{done:.0%}"]
        parts += [text for text in texts if text]
    parts += [f"{problem.stage}: {problem.message}" for problem in _problems(operation)]
    if kind.name == "NodeGroup" and operation.resource_id:
        message = get(kind, operation.resource_id, endpoint)
        if message is not None:
            parts += [*_nodes(message), *_reasons(message)]
    return "; ".join(dict.fromkeys(parts))


def _problems(operation: Message) -> list[Message]:
    """`problems` of mk8s's ProgressData, which other services do not have."""
    packed = operation.raw().progress_data
    if packed is None or not packed.type_url.endswith("nebius.mk8s.v1.ProgressData"):
        return []
    from nebius.api.nebius.mk8s.v1 import ProgressData

    return list(ProgressData.FromString(packed.value).problems)


def _nodes(message: Message) -> list[str]:
    status: Any = getattr(message, "status", None)
    if not hasattr(status, "ready_node_count"):
        return []
    return [f"{status.ready_node_count} of {status.target_node_count} nodes ready"]


def _reasons(message: Message) -> list[str]:
    """The object's own reason: the newest event of a node group or a cluster, or its error."""
    status = getattr(message, "status", None)
    texts = [getattr(status, "error_message", ""), getattr(status, "state_description", "")]
    events = [event.last_occurrence for event in getattr(status, "events", ()) if event.last_occurrence is not None]
    if events:
        last = events[-1]
        texts.append(f"{last.code}: {last.message}" if last.code else last.message)
    return [" ".join(text.split()) for text in texts if text]


_KEYS = uuid.uuid5(uuid.NAMESPACE_DNS, "hpc.nebius.idempotency")


@dataclass(frozen=True, kw_only=True)
class Found:
    """An object as the API returned it."""

    id: str
    status: dict[str, Any]
    secret: str | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    """Inputs as they are now; only what a read fills in."""


def create(props: Mapping[str, Any]) -> Found:
    """Create the object, or take over what an interrupted run created, and wait until it can be used."""
    change = _Change("create", props)
    spec_message(change.kind, change.wanted.spec)
    if change.kind.name == "Cluster" and client.expires(change.endpoint):
        report(
            f"{client.TOKEN_VARIABLE} is a token that expires within hours: a run that lasts longer fails, and the "
            f"next one goes on. A service account's file in {client.CREDENTIALS_VARIABLE} does not expire"
        )
    if (found := change.existing()) is not None:
        return change.ready(change.resume(found))
    try:
        id_ = change.create()
    except NebiusError as error:
        if "resource_already_exists" not in error.details and error.code != "ALREADY_EXISTS":
            raise
        # Another run of this stack was faster, or the list is older than the object.
        if (found := change.existing()) is None:
            hint = "; names of buckets are unique over all projects of a region" if change.kind.name == "Bucket" else ""
            text = f"{error}\n  it is not in the list of {change.wanted.parent_id}{hint}"
            raise NebiusError(text) from error
        id_ = change.resume(found)
    return change.ready(id_)


def update(id_: str, olds: Mapping[str, Any], news: Mapping[str, Any]) -> Found:
    """Change what differs, and wait until the change is made."""
    change = _Change("update", news)
    spec_message(change.kind, change.wanted.spec)
    change.apply(id_, olds)
    return change.ready(id_)


def read(id_: str, props: Mapping[str, Any]) -> Found | None:
    """The object with that id, else the stack's own of that name; None if there is none."""
    change = _Change("read", props)
    wanted, kind = change.wanted, change.kind
    message = change.get(id_) if id_ else None
    if message is None:
        message = objects.find(wanted)
        if message is not None and owner_of(message) != change.owner and id_:
            message = None
    if message is None or state_of(message) in kind.deleting:
        return None
    labels = dict(message.metadata.labels)
    inputs = {
        "spec": observed(wanted.spec, full(message.spec), kind.input_only),
        "labels": {name: labels[name] for name in props.get("labels") or {} if name in labels},
        "owner": owner_of(message) if kind.updatable else change.owner,
        **({"resource_name": message.metadata.name} if kind.unique else {}),
    }
    return change.found(message, inputs)


def delete(id_: str, props: Mapping[str, Any]) -> None:
    """Delete the object and wait until it is gone; one that another state has taken over is kept."""
    change = _Change("delete", props)
    message = change.get(id_)
    if message is None or (change.kind.restorable and state_of(message) in change.kind.deleting):
        return
    if owner_of(message) not in ("", change.owner):
        report(f"{change.wanted.title} ({id_}) belongs to another state now: it is kept")
        return
    if getattr(message.spec, "forbid_deletion", False):
        raise nebius_error(
            change.wait.doing,
            [f"{id_} has forbid_deletion: Nebius refuses to delete it while that is set"],
            "turn its protection off in the stack file, run `up`, then destroy it",
        )
    # What a killed run created in it without a record; all others were deleted before.
    for kind in (kind for kind in KINDS.values() if kind.parent == change.kind.name):
        for child in list(objects.list_all(kind, id_, change.endpoint)):
            if owner_of(child) == change.owner:
                report(f"deleting {title(kind, child.metadata.name)}, which an interrupted run left")
                delete_object(kind, child.metadata.id, change.endpoint, change.wait)
    delete_object(change.kind, id_, change.endpoint, change.wait)


class _Change:
    """A change of an object: what is wanted, whose it is, and how long it may take."""

    def __init__(self, verb: str, props: Mapping[str, Any]) -> None:
        self.props, self.owner = props, props.get("owner") or ""
        self.kind, self.endpoint = kind_of(props["kind"]), props.get("endpoint") or ""
        labels = {str(name): str(value) for name, value in (props.get("labels") or {}).items()}
        self.wanted = Wanted(
            kind=self.kind,
            parent_id=props["parent_id"],
            name=props.get("resource_name") or "",
            spec=props.get("spec") or {},
            labels={**labels, **({OWNER_LABEL: self.owner} if self.owner else {})},
            endpoint=self.endpoint,
        )
        self.wait = self.waiting(verb)

    def waiting(self, verb: str) -> Wait:
        seconds = self.props.get("timeout_seconds") or getattr(self.kind, f"{verb}_seconds", 0)
        name = self.wanted.name or self.props.get("name") or ""
        return Wait(f"{verb} {title(self.kind, name)}", seconds, self.props.get("pace"))

    def get(self, id_: str) -> Message | None:
        return objects.get(self.kind, id_, self.endpoint)

    def ready(self, id_: str) -> Found:
        return self.found(until_ready(self.wait, self.kind, id_, self.endpoint), {})

    def found(self, message: Message, inputs: dict[str, Any]) -> Found:
        status = getattr(message, "status", None)
        secret = getattr(status, "secret", None) or self.props.get("secret")
        shown = {} if status is None else plain(status)
        return Found(id=message.metadata.id, status=shown, secret=secret, inputs=inputs)

    def ended(self, operation: Message) -> None:
        until_ended(self.wait, self.kind, operation, self.endpoint)

    def existing(self) -> Message | None:
        """The object of that name that this stack may take over.

        Raises NebiusError if there is one that it may not.
        """
        found = objects.find(self.wanted)
        if found is None:
            return None
        id_, state, owner = found.metadata.id, state_of(found), owner_of(found)
        if state == "DELETING":
            until_gone(self.wait, self.kind, id_, self.endpoint)
            return None
        if state in self.kind.deleting:
            if self.kind.restorable and owner and owner == self.owner:
                report(f"{self.wanted.title} ({id_}): this stack deleted it, and Nebius still keeps it: it is restored")
                self.ended(retried(self.wait, lambda: objects.start_undelete(self.kind, id_, self.endpoint)))
                return self.get(id_)
            raise nebius_error(
                self.wait.doing,
                [f"it was deleted, and is kept in the state {state} with its name: {id_}"],
                "undelete or purge it with the CLI `nebius`, or choose another name",
            )
        # A membership or a permit is nothing but its spec, which is what is wanted: it has no other owner to be taken
        # from.
        if owner == self.owner or (not owner and not self.kind.updatable):
            return found
        whose = f"the label {OWNER_LABEL} names another state ({owner})" if owner else f"it has no label {OWNER_LABEL}"
        raise nebius_error(
            self.wait.doing,
            [f"it exists already, with the id {id_}", f"it is not this stack's: {whose}"],
            "choose another name, delete the one that exists, or name it as existing where the stack file has a field "
            "for that",
        )

    def create(self) -> str:
        """Create it; its id, once the operation has ended. What a failed one left is deleted, as no state has it.

        One that has not ended in time goes on, and is taken over by the next run.
        """
        fresh = self.kind.fresh_seconds
        operation = retried(self.wait, lambda: objects.start_create(self.wanted, self._key()), fresh_seconds=fresh)
        if operation.done() and self._is_replayed(operation):
            # The API answers a repeated key as it did the first time, also after the object was deleted, or the reason
            # of the failure is gone. Nothing of that name is there, so a new key creates it once.
            operation = retried(self.wait, lambda: objects.start_create(self.wanted, str(uuid.uuid4())))
        try:
            self.ended(operation)
        except NebiusError as error:
            if not operation.done():
                raise
            try:
                delete_object(self.kind, operation.resource_id, self.endpoint, self.waiting("delete"))
            except NebiusError as other:
                text = f"{error}\n  it is left as it is, and the next run takes it over: {other}"
                raise NebiusError(text) from error
            raise
        return operation.resource_id

    def _key(self) -> str:
        wanted = self.wanted
        parts = [self.owner, self.props.get("name"), self.kind.name, wanted.parent_id, wanted.name]
        return str(uuid.uuid5(_KEYS, json.dumps([*parts, canonical(wanted.spec)], sort_keys=True)))

    def _is_replayed(self, operation: Message) -> bool:
        if not operation.successful():
            return True
        message = self.get(operation.resource_id)
        return message is None or state_of(message) in self.kind.deleting

    def resume(self, found: Message) -> str:
        """The id of an object that an interrupted run created, brought to what is wanted."""
        id_, kind, wanted = found.metadata.id, self.kind, self.wanted
        report(f"{wanted.title} ({id_}): taken over from an interrupted run")
        last = objects.last_operation(kind, id_, self.endpoint)
        if last is not None and not last.done():
            self.ended(last)
        message = self.get(id_)
        if message is None:
            return self.create()
        failed = state_of(message) in kind.failed or (
            last is not None and not last.successful() and not is_ready(kind, message)
        )
        changed = differing(observed(wanted.spec, full(message.spec), kind.input_only), wanted.spec, kind.immutable)
        if not failed and not changed:
            self.apply(id_, {})
            return id_
        if kind.holds_data or owner_of(message) != self.owner:
            reason = f"its state is {state_of(message)}" if failed else f"{', '.join(changed)} can't be changed"
            raise nebius_error(
                self.wait.doing, [f"{id_} exists, and {reason}"], f"delete {id_} if nobody needs its data"
            )
        report(f"{wanted.title} ({id_}): its creation failed or was another; it is recreated")
        delete_object(kind, id_, self.endpoint, self.wait)
        return self.create()

    def apply(self, id_: str, olds: Mapping[str, Any]) -> None:
        """Update the object if it is not as wanted; again, if somebody else changed it meanwhile."""
        wanted = self.wanted
        while True:
            message = self.get(id_)
            if message is None:
                raise nebius_error(self.wait.doing, [f"{id_} is gone"], "run `./hpc refresh STACK`, then `up`")
            if not self.kind.updatable:
                return
            spec = merged(message.spec, olds.get("spec") or {}, wanted.spec)
            mine = {*(olds.get("labels") or {}), OWNER_LABEL}
            others = {name: value for name, value in dict(message.metadata.labels).items() if name not in mine}
            labels = {**others, **wanted.labels}
            name = wanted.name if self.kind.unique else message.metadata.name
            agrees = same(full(spec), full(message.spec)) and dict(message.metadata.labels) == labels
            if agrees and message.metadata.name == name:
                return
            message.metadata.name, message.metadata.labels = name, labels
            try:
                operation = objects.start_update(self.kind, message.metadata, spec, self.endpoint)
            except NebiusError as error:
                if not error.later and "resource_conflict" not in error.details:
                    raise
                self.wait.step(str(error).splitlines()[1].strip())
            else:
                self.ended(operation)
                return
