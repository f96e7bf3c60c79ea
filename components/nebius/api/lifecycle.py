"""Creation or takeover, update, read and deletion of one object of Nebius's API, for `NebiusProvider`."""

import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.platforms.nebius.names import CREDENTIALS_VARIABLE, OTHER_NAME, TOKEN_VARIABLE
from components.dynamic import report
from components.nebius.api import client, objects
from components.nebius.api.client import NOT_FOUND, NebiusError, explain, nebius_error
from components.nebius.api.kinds import KINDS, ResourceKind
from components.nebius.api.objects import OWNER_LABEL, Desired, failure, owner_of, state_of, title
from components.nebius.api.specs import (
    Message,
    canonical,
    differing_paths,
    merge_specs,
    observed_spec,
    same,
    spec_message,
    to_full_json,
    to_json,
)
from components.nebius.poll import PACE, Poll

_NUMBERS = re.compile("[0-9]+")
UNREACHABLE = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", ""})
"""Statuses of a poll that are no answer of the API, so the wait goes on."""
UNREACHABLE_SECONDS = 300.0
"""Time for which polls may have such a status; the SDK may retry with a withdrawn credential without end."""
IN_USE = frozenset({"bad_resource_state"})
"""Details of the error that something still uses the object: machines detach a file system minutes later."""


class ObjectWait(Poll):
    """The wait for one object: its deadline, and the progress that it reports."""

    def __init__(self, action: str, seconds: float, pace: float = PACE) -> None:
        """`action` is what fails if the wait does, such as `create Filesystem jail`."""
        super().__init__(seconds, pace)
        self.action = action
        self._unreachable_since: float | None = None

    def start(
        self, call: Callable[[], Message], also: frozenset[str] = frozenset(), fresh_seconds: float = 0
    ) -> Message:
        """Call and return the operation; retry until the deadline while another operation is in the way.

        `also`: details of errors that are retried as well. `fresh_seconds`: how long NOT_FOUND and PERMISSION_DENIED
        are retried, which a creation may get if what it names was created a moment ago.
        """
        while True:
            try:
                return call()
            except NebiusError as error:
                is_fresh = error.code in (NOT_FOUND, "PERMISSION_DENIED") and self.passed + self.pace <= fresh_seconds
                can_pass = is_fresh or error.is_temporary or also & {*error.details}
                if not can_pass or self.passed + self.pace > self.seconds:
                    raise
                self.step(str(error).splitlines()[1].strip())

    def until_ended(self, kind: ResourceKind, operation: Message) -> None:
        """Poll an operation until it has ended.

        Raises NebiusError if it failed, or has not ended in time.
        """
        while not operation.done():
            self.step(self._ask(lambda: self._progress(kind, operation)))
            try:
                self._ask(lambda: self._update(operation))
            except NebiusError as error:
                if error.code == NOT_FOUND:
                    return  # the API deletes old operations; the caller reads the object itself next
                raise
        if (error := failure(self.action, operation)) is not None:
            raise error

    def until_ready(self, kind: ResourceKind, id_: str) -> Message:
        """Return the object's message, once it can be used.

        Raises NebiusError if it failed, is gone, or can't be used in time.
        """
        while True:
            message = self._ask(lambda: objects.get(kind, id_))
            if message is None:
                raise nebius_error(self.action, [f"{title(kind, id_)} was deleted meanwhile"], "run it again")
            state = state_of(message)
            if state in kind.failed:
                reasons = [f"its state is {state}", *_reasons(message)]
                raise nebius_error(self.action, reasons, "see the reason, and run it again")
            if _is_ready(kind, message):
                return message
            self.step("; ".join([f"its state is {state or 'reconciling'}", *_nodes(message), *_reasons(message)]))

    def until_gone(self, kind: ResourceKind, id_: str) -> None:
        """Wait until the object is gone, or in a state that it leaves by itself: a deleted bucket is kept for days."""
        while True:
            message = self._ask(lambda: objects.get(kind, id_))
            state = "" if message is None else state_of(message)
            if message is None or (state in kind.deleting and state != "DELETING"):
                return
            self.step(f"its state is {state}" if state else "")

    def delete(self, kind: ResourceKind, id_: str) -> None:
        """Delete an object and wait until it is gone; one that is gone already is no error."""
        operation = self.start(lambda: objects.start_delete(kind, id_), IN_USE)
        if operation is not None:
            try:
                self.until_ended(kind, operation)
            except NebiusError as error:
                if error.code != NOT_FOUND:
                    raise
        self.until_gone(kind, id_)

    def step(self, progress: str) -> None:
        """Report the progress, if it is new, and sleep.

        Raises NebiusError after the deadline, with the progress as the reason.
        """
        if self.passed + self.pace > self.seconds:
            reasons = [f"it has not ended after {self.seconds:.0f} s"]
            reasons += [f"last progress: {progress}"] if progress else []
            todo = "resolve the reason if there is one, then run it again: it goes on where it is"
            raise nebius_error(self.action, reasons, todo)
        line = f"{self.action}: {progress} ({self.passed:.0f} s)" if progress else ""
        # Progress of which only numbers have changed is not reported each time.
        self.pause(_NUMBERS.sub("", progress), line)

    def _ask(self, call: Callable[[], Message]) -> Message:
        """Call and return the answer; retry while the API can't be reached, for UNREACHABLE_SECONDS."""
        while True:
            try:
                answer = call()
            except NebiusError as error:
                now = time.monotonic()
                self._unreachable_since = self._unreachable_since or now
                if error.code not in UNREACHABLE or now - self._unreachable_since > UNREACHABLE_SECONDS:
                    raise
                self.step(str(error).splitlines()[-1].strip().removeprefix("to do: "))
            else:
                self._unreachable_since = None
                return answer

    def _update(self, operation: Message) -> None:
        try:
            operation.sync_update(**client.LIMITS)
        except Exception as error:
            raise explain(self.action, error) from error

    def _progress(self, kind: ResourceKind, operation: Message) -> str:
        """Return the steps and problems of an operation, and of a node group how many nodes are ready."""
        parts: list[str] = []
        if (tracker := operation.progress_tracker()) is not None:
            done = tracker.work_fraction()
            under_way = [step.description() for step in tracker.steps() if step.started_at() and not step.finished_at()]
            texts = [tracker.description(), *under_way, "" if done is None else f"{done:.0%}"]
            parts += [text for text in texts if text]
        parts += [f"{problem.stage}: {problem.message}" for problem in _problems(operation)]
        if kind.name == "NodeGroup" and operation.resource_id:
            message = objects.get(kind, operation.resource_id)
            parts += [] if message is None else [*_nodes(message), *_reasons(message)]
        return "; ".join(dict.fromkeys(parts))


def _is_ready(kind: ResourceKind, message: Message) -> bool:
    """Return whether the object can be used."""
    reconciling = getattr(getattr(message, "status", None), "reconciling", False)
    return (not kind.ready or state_of(message) in kind.ready) and not reconciling


def _problems(operation: Message) -> list[Message]:
    """Return `problems` of mk8s's ProgressData, which other services do not have."""
    packed = operation.raw().progress_data
    if packed is None or not packed.type_url.endswith("nebius.mk8s.v1.ProgressData"):
        return []
    from nebius.api.nebius.mk8s.v1 import ProgressData

    return list(ProgressData.FromString(packed.value).problems)


def _nodes(message: Message) -> list[str]:
    """Return how many nodes of a node group are ready; nothing for other kinds."""
    status: Any = getattr(message, "status", None)
    if not hasattr(status, "ready_node_count"):
        return []
    return [f"{status.ready_node_count} of {status.target_node_count} nodes ready"]


def _reasons(message: Message) -> list[str]:
    """Return the object's own reasons: its error, and the newest event of a node group or a cluster."""
    status = getattr(message, "status", None)
    texts = [getattr(status, "error_message", ""), getattr(status, "state_description", "")]
    events = [event.last_occurrence for event in getattr(status, "events", ()) if event.last_occurrence is not None]
    if events:
        last = events[-1]
        texts.append(f"{last.code}: {last.message}" if last.code else last.message)
    return [" ".join(text.split()) for text in texts if text]


_KEYS = uuid.uuid5(uuid.NAMESPACE_DNS, "hpc.nebius.idempotency")


@dataclass(frozen=True, kw_only=True)
class ReturnedObject:
    """An object as the API returned it."""

    id: str
    status: dict[str, Any]
    secret: str | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    """The resource's inputs as they are now; filled in by `read` alone."""


def create(props: Mapping[str, Any]) -> ReturnedObject:
    """Create the object, or take over what an interrupted run created, and wait until it can be used."""
    change = _Change("create", props)
    spec_message(change.kind, change.desired.spec)
    if change.kind.name == "Cluster" and client.has_bare_token():
        report(
            f"{TOKEN_VARIABLE} is a token that expires within hours: a run that lasts longer fails, and the next one "
            f"goes on. A service account's file in {CREDENTIALS_VARIABLE} does not expire"
        )
    if (existing := change.existing()) is not None:
        return change.ready(change.take_over(existing))
    try:
        id_ = change.create()
    except NebiusError as error:
        if "resource_already_exists" not in error.details and error.code != "ALREADY_EXISTS":
            raise
        # Another run of this stack was faster, or the list is older than the object.
        if (existing := change.existing()) is None:
            hint = "; names of buckets are unique over all projects of a region" if change.kind.name == "Bucket" else ""
            text = f"{error}\n  it is not in the list of {change.desired.parent_id}{hint}"
            raise NebiusError(text) from error
        id_ = change.take_over(existing)
    return change.ready(id_)


def update(id_: str, olds: Mapping[str, Any], news: Mapping[str, Any]) -> ReturnedObject:
    """Change what differs, and wait until the object can be used again."""
    change = _Change("update", news)
    spec_message(change.kind, change.desired.spec)
    change.apply(id_, olds)
    return change.ready(id_)


def read(id_: str, props: Mapping[str, Any]) -> ReturnedObject | None:
    """Return the object with that id, else the stack's own of that name; None if there is none."""
    change = _Change("read", props)
    desired, kind = change.desired, change.kind
    message = change.get(id_) if id_ else None
    if message is None:
        message = objects.find(desired)
        if message is not None and owner_of(message) != change.owner and id_:
            message = None
    if message is None or state_of(message) in kind.deleting:
        return None
    labels = dict(message.metadata.labels)
    inputs = {
        "spec": observed_spec(desired.spec, to_full_json(message.spec)),
        "labels": {name: labels[name] for name in props.get("labels") or {} if name in labels},
        "owner": owner_of(message) if kind.updatable else change.owner,
        **({"resource_name": message.metadata.name} if kind.unique else {}),
    }
    return change.result(message, inputs)


def delete(id_: str, props: Mapping[str, Any]) -> None:
    """Delete the object and wait until it is gone; one that another state has taken over is kept."""
    change = _Change("delete", props)
    message = change.get(id_)
    if message is None or state_of(message) in change.kind.deleting - {"DELETING"}:
        return
    if owner_of(message) not in ("", change.owner):
        report(f"{change.desired.title} ({id_}) belongs to another state now: it is kept")
        return
    # Children that a killed run created without a record; all others were deleted before.
    for kind in (kind for kind in KINDS.values() if kind.parent == change.kind.name):
        for child in list(objects.list_all(kind, id_)):
            if owner_of(child) == change.owner:
                report(f"deleting {title(kind, child.metadata.name)}, which an interrupted run left")
                change.wait.delete(kind, child.metadata.id)
    change.wait.delete(change.kind, id_)


class _Change:
    """An operation on one object: the desired object, its owner and its deadline."""

    def __init__(self, verb: str, props: Mapping[str, Any]) -> None:
        self.props, self.owner = props, props.get("owner") or ""
        self.kind = KINDS[props["kind"]]
        labels = {str(name): str(value) for name, value in (props.get("labels") or {}).items()}
        self.desired = Desired(
            kind=self.kind,
            parent_id=props["parent_id"],
            name=props.get("resource_name") or "",
            spec=props.get("spec") or {},
            labels={**labels, **({OWNER_LABEL: self.owner} if self.owner else {})},
        )
        self.wait = self._wait(verb)

    def _wait(self, verb: str) -> ObjectWait:
        seconds = self.props.get("timeout_seconds") or getattr(self.kind, f"{verb}_seconds", 0)
        name = self.desired.name or self.props.get("name") or ""
        return ObjectWait(f"{verb} {title(self.kind, name)}", seconds, self.props.get("pace") or PACE)

    def get(self, id_: str) -> Message | None:
        """Return the object's message; None if there is no such object."""
        return objects.get(self.kind, id_)

    def ready(self, id_: str) -> ReturnedObject:
        """Wait until the object can be used, and return it."""
        return self.result(self.wait.until_ready(self.kind, id_), {})

    def result(self, message: Message, inputs: dict[str, Any]) -> ReturnedObject:
        """Return the object of a message."""
        status = getattr(message, "status", None)
        secret = getattr(status, "secret", None) or self.props.get("secret")
        shown = {} if status is None else to_json(status)
        return ReturnedObject(id=message.metadata.id, status=shown, secret=secret, inputs=inputs)

    def existing(self) -> Message | None:
        """Return the object of that name that this stack may take over.

        Raises NebiusError if there is one that it may not.
        """
        message = objects.find(self.desired)
        if message is None:
            return None
        id_, state, owner = message.metadata.id, state_of(message), owner_of(message)
        if state == "DELETING":
            self.wait.until_gone(self.kind, id_)
            return None
        if state in self.kind.deleting:
            raise nebius_error(
                self.wait.action,
                [f"it was deleted, and is kept in the state {state} with its name: {id_}"],
                "undelete or purge it with the CLI `nebius`, or choose another name",
            )
        # A membership or a permit consists of its spec alone, so there is no other owner to take it from.
        if owner == self.owner or (not owner and not self.kind.updatable):
            return message
        whose = f"the label {OWNER_LABEL} names another state ({owner})" if owner else f"it has no label {OWNER_LABEL}"
        raise nebius_error(
            self.wait.action,
            [f"it exists already, with the id {id_}", f"it is not this stack's: {whose}"],
            f"{OTHER_NAME}, or name it as existing where the stack file has a field for that",
        )

    def create(self) -> str:
        """Create the object and return its id, once the operation has ended.

        What a failed operation left is deleted, because no state has it. An operation that has not ended in time goes
        on, and the next run takes its object over.
        """
        fresh = self.kind.fresh_seconds
        operation = self.wait.start(lambda: objects.start_create(self.desired, self._key()), fresh_seconds=fresh)
        if operation.done() and not self._has_result(operation):
            # The API answers a repeated key as it did the first time, even if the object was deleted since, or the
            # reason of the failure is gone. There is no object of that name, so a new key creates it once.
            operation = self.wait.start(lambda: objects.start_create(self.desired, str(uuid.uuid4())))
        try:
            self.wait.until_ended(self.kind, operation)
        except NebiusError as error:
            if not operation.done():
                raise
            try:
                self._wait("delete").delete(self.kind, operation.resource_id)
            except NebiusError as other:
                text = f"{error}\n  it is left as it is, and the next run takes it over: {other}"
                raise NebiusError(text) from error
            raise
        return operation.resource_id

    def _key(self) -> str:
        """Return the idempotency key of a creation: the same in the next run, unless the spec differs."""
        desired = self.desired
        parts = [self.owner, self.props.get("name"), self.kind.name, desired.parent_id, desired.name]
        return str(uuid.uuid5(_KEYS, json.dumps([*parts, canonical(desired.spec)], sort_keys=True)))

    def _has_result(self, operation: Message) -> bool:
        """Return whether a creation that has ended succeeded, and its object still exists."""
        message = self.get(operation.resource_id) if operation.successful() else None
        return message is not None and state_of(message) not in self.kind.deleting

    def take_over(self, existing: Message) -> str:
        """Bring an object that an interrupted run created to what is desired, and return its id."""
        id_, kind, desired = existing.metadata.id, self.kind, self.desired
        report(f"{desired.title} ({id_}): taken over from an interrupted run")
        last = objects.last_operation(kind, id_)
        if last is not None and not last.done():
            self.wait.until_ended(kind, last)
        message = self.get(id_)
        if message is None:
            return self.create()
        failed = state_of(message) in kind.failed or (
            last is not None and not last.successful() and not _is_ready(kind, message)
        )
        changed = differing_paths(observed_spec(desired.spec, to_full_json(message.spec)), desired.spec, kind.immutable)
        if not failed and not changed:
            self.apply(id_, {})
            return id_
        if kind.holds_data or owner_of(message) != self.owner:
            reason = f"its state is {state_of(message)}" if failed else f"{', '.join(changed)} can't be changed"
            todo = f"delete {id_} if nobody needs its data"
            raise nebius_error(self.wait.action, [f"{id_} exists, and {reason}"], todo)
        report(f"{desired.title} ({id_}): its creation failed or was another; it is recreated")
        self.wait.delete(kind, id_)
        return self.create()

    def apply(self, id_: str, olds: Mapping[str, Any]) -> None:
        """Update the object if it is not as desired; retry if somebody else changes it at the same time."""
        operation = self.wait.start(lambda: self._start_update(id_, olds), frozenset({"resource_conflict"}))
        if operation is not None:
            self.wait.until_ended(self.kind, operation)

    def _start_update(self, id_: str, olds: Mapping[str, Any]) -> Message | None:
        """Start the update and return its operation; None if the object is as desired."""
        desired, message = self.desired, self.get(id_)
        if message is None:
            raise nebius_error(self.wait.action, [f"{id_} is gone"], "run `./hpc refresh STACK`, then `up`")
        if not self.kind.updatable:
            return None
        spec, metadata = merge_specs(message.spec, olds.get("spec") or {}, desired.spec), message.metadata
        own = {*(olds.get("labels") or {}), OWNER_LABEL}
        others = {name: value for name, value in dict(metadata.labels).items() if name not in own}
        labels = {**others, **desired.labels}
        name = desired.name if self.kind.unique else metadata.name
        if (metadata.name, dict(metadata.labels)) == (name, labels) and same(
            to_full_json(spec), to_full_json(message.spec)
        ):
            return None
        metadata.name, metadata.labels = name, labels
        return objects.start_update(self.kind, metadata, spec)
