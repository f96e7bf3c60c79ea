"""What the provider of `NebiusResource` does: create or take over, update, read, delete."""

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
from components.nebius.api.specs import canonical, differing, full, merged, observed, plain, same, spec_message

PACE = 5.0
"""Seconds between polls."""
REPEAT_SECONDS = 60.0
"""After how long a progress is reported again of which only figures have changed, or nothing."""
_FIGURES = re.compile("[0-9]+")
UNREACHABLE = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", ""})
"""Statuses of a poll that are no answer: what is waited for goes on."""
UNREACHABLE_SECONDS = 300.0
"""For how long; the SDK may retry a credential that was withdrawn for as long as it is asked to."""


FRESH = frozenset({NOT_FOUND, "PERMISSION_DENIED"})
"""Statuses of a creation that pass where what it names was created a moment ago."""
IN_USE = frozenset({"bad_resource_state"})
"""Details of the error that something still uses what is to be deleted: machines detach a file system minutes later."""


class Wait:
    """A deadline, and what is reported until then."""

    def __init__(self, doing: str, seconds: float, pace: float | None = None) -> None:
        self.doing, self.seconds = doing, seconds
        self.pace = PACE if pace is None else pace
        self._start = time.monotonic()
        self._said, self._said_at = "", self._start
        self._lost: float | None = None

    @property
    def passed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._start

    def asked(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """What a poll returns, again and again while the API can't be reached, within UNREACHABLE_SECONDS."""
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
        now, words = time.monotonic(), _FIGURES.sub("", progress)
        if progress and (words != self._said or now - self._said_at > REPEAT_SECONDS):
            report(f"{self.doing}: {progress} ({self.passed:.0f} s)")
            self._said, self._said_at = words, now
        if self.passed + self.pace > self.seconds:
            lasted = f"it has not ended after {self.seconds:.0f} s"
            reasons = [lasted, f"last progress: {progress}"] if progress else [lasted]
            raise nebius_error(
                self.doing, reasons, "resolve the reason if there is one, then run it again: it goes on where it is"
            )
        time.sleep(self.pace)


def until_ended(wait: Wait, kind: Kind, operation: Any, endpoint: str) -> None:  # noqa: ANN401
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


def _poll(doing: str, operation: Any) -> None:  # noqa: ANN401
    try:
        operation.sync_update(**client.LIMITS)
    except Exception as error:
        raise explain(doing, error) from error


def until_ready(wait: Wait, kind: Kind, id_: str, endpoint: str) -> Any:  # noqa: ANN401
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


def is_ready(kind: Kind, message: Any) -> bool:  # noqa: ANN401
    """Whether it can be used."""
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


def retried(wait: Wait, start: Callable[[], Any], also: frozenset[str] = frozenset(), fresh_seconds: float = 0) -> Any:  # noqa: ANN401
    """What `start` returns, again and again while another operation is in its way, until the deadline.

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


def _progress(kind: Kind, operation: Any, endpoint: str) -> str:  # noqa: ANN401
    """Where an operation is: its steps, its problems, and of node groups how many nodes are ready."""
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


def _problems(operation: Any) -> list[Any]:  # noqa: ANN401
    """`problems` of mk8s's ProgressData, which other services do not have."""
    packed = operation.raw().progress_data
    if packed is None or not packed.type_url.endswith("nebius.mk8s.v1.ProgressData"):
        return []
    from nebius.api.nebius.mk8s.v1 import ProgressData

    return list(ProgressData.FromString(packed.value).problems)


def _nodes(message: Any) -> list[str]:  # noqa: ANN401
    status: Any = getattr(message, "status", None)
    if not hasattr(status, "ready_node_count"):
        return []
    return [f"{status.ready_node_count} of {status.target_node_count} nodes ready"]


def _reasons(message: Any) -> list[str]:  # noqa: ANN401
    """The object's own reason: the newest event of a node group or a cluster, or its error."""
    status = getattr(message, "status", None)
    texts = [getattr(status, "error_message", ""), getattr(status, "state_description", "")]
    events = [one.last_occurrence for one in getattr(status, "events", ()) if one.last_occurrence is not None]
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
    wanted = _wanted(props)
    wait = _wait_for("create", wanted, props)
    spec_message(wanted.kind, wanted.spec)
    if wanted.kind.name == "Cluster" and client.expires(wanted.endpoint):
        report(
            f"{client.TOKEN_VARIABLE} is a token that expires within hours: a run that lasts longer fails, and the "
            f"next one goes on. A service account's file in {client.CREDENTIALS_VARIABLE} does not expire"
        )
    found = _existing(wanted, props, wait)
    if found is None:
        try:
            id_ = _create(wanted, props, wait)
        except NebiusError as error:
            if "resource_already_exists" not in error.details and error.code != "ALREADY_EXISTS":
                raise
            # Another run of this stack was faster, or the list is older than the object.
            found = _existing(wanted, props, wait)
            if found is None:
                raise _taken(wanted, error) from error
            id_ = _resume(wanted, found, props, wait)
    else:
        id_ = _resume(wanted, found, props, wait)
    return _found(until_ready(wait, wanted.kind, id_, wanted.endpoint), props)


def update(id_: str, olds: Mapping[str, Any], news: Mapping[str, Any]) -> Found:
    """Change what differs, and wait until the change is made."""
    wanted = _wanted(news)
    wait = _wait_for("update", wanted, news)
    spec_message(wanted.kind, wanted.spec)
    _apply(wanted, id_, olds, wait)
    return _found(until_ready(wait, wanted.kind, id_, wanted.endpoint), news)


def read(id_: str, props: Mapping[str, Any]) -> Found | None:
    """The object with that id, else the stack's own of that name; None if there is none."""
    wanted = _wanted(props)
    message = objects.get(wanted.kind, id_, wanted.endpoint) if id_ else None
    if message is None:
        message = objects.find(wanted)
        if message is not None and owner_of(message) != _owner(props) and id_:
            message = None
    if message is None or state_of(message) in wanted.kind.deleting:
        return None
    labels = dict(message.metadata.labels)
    inputs = {
        "spec": observed(wanted.spec, full(message.spec), wanted.kind.input_only),
        "labels": {name: labels[name] for name in props.get("labels") or {} if name in labels},
        "owner": owner_of(message) if wanted.kind.updatable else _owner(props),
        **({"resource_name": message.metadata.name} if wanted.kind.unique else {}),
    }
    return _found(message, props, inputs)


def delete(id_: str, props: Mapping[str, Any]) -> None:
    """Delete the object and wait until it is gone; one that another state has taken over is kept."""
    wanted = _wanted(props)
    message = objects.get(wanted.kind, id_, wanted.endpoint)
    if message is None or (wanted.kind.restorable and state_of(message) in wanted.kind.deleting):
        return
    if owner_of(message) not in ("", _owner(props)):
        report(f"{wanted.title} ({id_}) belongs to another state now: it is kept")
        return
    wait = _wait_for("delete", wanted, props)
    if getattr(message.spec, "forbid_deletion", False):
        raise nebius_error(
            wait.doing,
            [f"{id_} has forbid_deletion: Nebius refuses to delete it while that is set"],
            "turn its protection off in the stack file, run `up`, then destroy it",
        )
    for kind in KINDS.values():
        if kind.parent == wanted.kind.name:
            _delete_children(kind, id_, props, wait)
    delete_object(wanted.kind, id_, wanted.endpoint, wait)


def _delete_children(kind: Kind, id_: str, props: Mapping[str, Any], wait: Wait) -> None:
    """Delete what a killed run created in it without a record; all others were deleted before."""
    endpoint = props.get("endpoint") or ""
    for message in list(objects.list_all(kind, id_, endpoint)):
        if owner_of(message) == _owner(props):
            report(f"deleting {title(kind, message.metadata.name)}, which an interrupted run left")
            delete_object(kind, message.metadata.id, endpoint, wait)


def _existing(wanted: Wanted, props: Mapping[str, Any], wait: Wait) -> Any | None:  # noqa: ANN401
    """The object of that name that this stack may take over.

    Raises NebiusError if there is one that it may not.
    """
    found = objects.find(wanted)
    if found is None:
        return None
    if state_of(found) == "DELETING":
        until_gone(wait, wanted.kind, found.metadata.id, wanted.endpoint)
        return None
    owner = owner_of(found)
    if wanted.kind.restorable and state_of(found) in wanted.kind.deleting and owner and owner == _owner(props):
        id_ = found.metadata.id
        report(f"{wanted.title} ({id_}): this stack deleted it, and Nebius still keeps it: it is restored")
        operation = retried(wait, lambda: objects.start_undelete(wanted.kind, id_, wanted.endpoint))
        until_ended(wait, wanted.kind, operation, wanted.endpoint)
        return objects.get(wanted.kind, id_, wanted.endpoint)
    # A membership or a permit is nothing but its spec, which is what is wanted: it has no other owner to be taken from.
    free = not owner and not wanted.kind.updatable
    if state_of(found) not in wanted.kind.deleting and (owner == _owner(props) or free):
        return found
    id_, state = found.metadata.id, state_of(found)
    if state in wanted.kind.deleting:
        reason = f"it was deleted, and is kept in the state {state} with its name: {id_}"
        raise nebius_error(wait.doing, [reason], "undelete or purge it with the CLI `nebius`, or choose another name")
    whose = f"the label {OWNER_LABEL} names another state ({owner})" if owner else f"it has no label {OWNER_LABEL}"
    raise nebius_error(
        wait.doing,
        [f"it exists already, with the id {id_}", f"it is not this stack's: {whose}"],
        "choose another name, delete the one that exists, or name it as existing where the stack file has a field for "
        "that",
    )


def _taken(wanted: Wanted, error: NebiusError) -> NebiusError:
    hint = "" if wanted.kind.name != "Bucket" else "; names of buckets are unique over all projects of a region"
    return NebiusError(f"{error}\n  it is not in the list of {wanted.parent_id}{hint}")


def _create(wanted: Wanted, props: Mapping[str, Any], wait: Wait) -> str:
    fresh = wanted.kind.fresh_seconds
    operation = retried(wait, lambda: objects.start_create(wanted, _key(wanted, props)), fresh_seconds=fresh)
    if operation.done() and _is_replayed(wanted, operation):
        # The API answers a repeated key as it did the first time, also after the object was deleted, or the reason of
        # the failure is gone. Nothing of that name is there, so a new key creates it once.
        operation = retried(wait, lambda: objects.start_create(wanted, str(uuid.uuid4())))
    return _created(wanted, operation, props, wait)


def _created(wanted: Wanted, operation: Any, props: Mapping[str, Any], wait: Wait) -> str:  # noqa: ANN401
    """The id, once the operation has ended; what a failed one left is deleted, as no state has it.

    One that has not ended in time goes on, and is taken over by the next run.
    """
    try:
        until_ended(wait, wanted.kind, operation, wanted.endpoint)
    except NebiusError as error:
        if operation.done():
            raise _cleaned(wanted, operation.resource_id, props, error) from error
        raise
    return operation.resource_id


def _cleaned(wanted: Wanted, id_: str, props: Mapping[str, Any], error: NebiusError) -> NebiusError:
    try:
        delete_object(wanted.kind, id_, wanted.endpoint, _wait_for("delete", wanted, props))
    except NebiusError as other:
        return NebiusError(f"{error}\n  it is left as it is, and the next run takes it over: {other}")
    return error


def _is_replayed(wanted: Wanted, operation: Any) -> bool:  # noqa: ANN401
    if not operation.successful():
        return True
    message = objects.get(wanted.kind, operation.resource_id, wanted.endpoint)
    return message is None or state_of(message) in wanted.kind.deleting


def _resume(wanted: Wanted, found: Any, props: Mapping[str, Any], wait: Wait) -> str:  # noqa: ANN401
    """The id of an object that an interrupted run created, brought to what is wanted."""
    id_, kind = found.metadata.id, wanted.kind
    report(f"{wanted.title} ({id_}): taken over from an interrupted run")
    last = objects.last_operation(kind, id_, wanted.endpoint)
    if last is not None and not last.done():
        until_ended(wait, kind, last, wanted.endpoint)
    message = objects.get(kind, id_, wanted.endpoint)
    if message is None:
        return _create(wanted, props, wait)
    failed = state_of(message) in kind.failed or (
        last is not None and not last.successful() and not is_ready(kind, message)
    )
    changed = differing(observed(wanted.spec, full(message.spec), kind.input_only), wanted.spec, kind.immutable)
    if failed or changed:
        if kind.holds_data or owner_of(message) != _owner(props):
            reason = f"its state is {state_of(message)}" if failed else f"{', '.join(changed)} can't be changed"
            raise nebius_error(wait.doing, [f"{id_} exists, and {reason}"], f"delete {id_} if nobody needs its data")
        report(f"{wanted.title} ({id_}): its creation failed or was another; it is recreated")
        delete_object(kind, id_, wanted.endpoint, wait)
        return _create(wanted, props, wait)
    _apply(wanted, id_, {}, wait)
    return id_


def _apply(wanted: Wanted, id_: str, olds: Mapping[str, Any], wait: Wait) -> None:
    """Update the object if it is not as wanted; again, if somebody else changed it meanwhile."""
    kind = wanted.kind
    while True:
        message = objects.get(kind, id_, wanted.endpoint)
        if message is None:
            raise nebius_error(wait.doing, [f"{id_} is gone"], "run `./hpc refresh STACK`, then `up`")
        if not kind.updatable:
            return
        spec = merged(message.spec, olds.get("spec") or {}, wanted.spec)
        mine = {*(olds.get("labels") or {}), OWNER_LABEL}
        others = {name: value for name, value in dict(message.metadata.labels).items() if name not in mine}
        labels = {**others, **wanted.labels}
        name = wanted.name if kind.unique else message.metadata.name
        agrees = same(full(spec), full(message.spec)) and dict(message.metadata.labels) == labels
        if agrees and message.metadata.name == name:
            return
        message.metadata.name, message.metadata.labels = name, labels
        try:
            operation = objects.start_update(kind, message.metadata, spec, wanted.endpoint)
        except NebiusError as error:
            if not error.later and "resource_conflict" not in error.details:
                raise
            wait.step(str(error).splitlines()[1].strip())
            continue
        until_ended(wait, kind, operation, wanted.endpoint)
        return


def _wanted(props: Mapping[str, Any]) -> Wanted:
    labels = {str(name): str(value) for name, value in (props.get("labels") or {}).items()}
    owner = {OWNER_LABEL: _owner(props)} if _owner(props) else {}
    return Wanted(
        kind=kind_of(props["kind"]),
        parent_id=props["parent_id"],
        name=props.get("resource_name") or "",
        spec=props.get("spec") or {},
        labels={**labels, **owner},
        endpoint=props.get("endpoint") or "",
    )


def _owner(props: Mapping[str, Any]) -> str:
    return props.get("owner") or ""


def _wait_for(verb: str, wanted: Wanted, props: Mapping[str, Any]) -> Wait:
    seconds = props.get("timeout_seconds") or getattr(wanted.kind, f"{verb}_seconds")
    name = wanted.name or props.get("name") or ""
    return Wait(f"{verb} {title(wanted.kind, name)}", seconds, props.get("pace"))


def _key(wanted: Wanted, props: Mapping[str, Any]) -> str:
    said = [_owner(props), props.get("name"), wanted.kind.name, wanted.parent_id, wanted.name, canonical(wanted.spec)]
    return str(uuid.uuid5(_KEYS, json.dumps(said, sort_keys=True)))


def _found(message: Any, props: Mapping[str, Any], inputs: dict[str, Any] | None = None) -> Found:  # noqa: ANN401
    status = getattr(message, "status", None)
    secret = getattr(status, "secret", None) or props.get("secret")
    shown = {} if status is None else plain(status)
    return Found(id=message.metadata.id, status=shown, secret=secret, inputs=inputs or {})
