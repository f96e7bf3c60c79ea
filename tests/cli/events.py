"""Events of runs, as the engine reports them."""

from engine.events import Change, Event, Finished, LogLine, Planned, Result, Started, StepDone, StepFailed, StepStarted

STACK = Planned("urn:pulumi:dev::hpc::pulumi:pulumi:Stack::hpc-dev", "pulumi:pulumi:Stack", "hpc-dev", "", "same")


def urn(type_: str, name: str) -> str:
    """Return the URN of a resource of stack dev."""
    return f"urn:pulumi:dev::hpc::{type_}::{name}"


def planned(name: str, op: str, *changes: Change, type_: str = "command:remote:Command", parent: str = "") -> Planned:
    """Return a planned resource below the stack, or below `parent`."""
    return Planned(urn(type_, name), type_, name, parent or STACK.urn, op, changes)


CONTROLLER = planned("controller", "same", type_="hpc:slurm:Controller")
CONF = planned(
    "slurm-conf",
    "update",
    Change("stdin", "update", "a\nb\nMaxTime=60\nc\nd\n", "a\nb\nMaxTime=90\nc\nd\n"),
    Change("triggers[0]", "update", "abc", "def", replaces=True),
    Change("environment.KEY", "add", None, "[secret]"),
    parent=CONTROLLER.urn,
)
LOGIN = planned("login", "same")
NEW = planned("dev-cpu-2", "create", Change("name", "add", None, "dev-cpu-2"), type_="hpc:local:Machine")


def preview() -> list[Event]:
    """Return the events of a preview of one edit and one new machine."""
    plans = [STACK, CONTROLLER, CONF, LOGIN, NEW]
    counts = {"same": 3, "update": 1, "create": 1}
    result = Result("preview", True, counts, (CONF, NEW), seconds=1.25)
    return [Started("preview", "dev", "hpc"), *plans, Finished(result)]


def up() -> list[Event]:
    """Return the events of the `up` of that preview."""
    counts = {"same": 3, "update": 1, "create": 1}
    outputs = {"login": "dev-login-0", "admin_key": "[secret]", "machines": {"dev-login-0": {"address": "10.77.0.3"}}}
    return [
        Started("up", "dev", "hpc"),
        STACK,
        CONTROLLER,
        LOGIN,
        CONF,
        NEW,
        StepStarted(CONF.urn, "update"),
        StepStarted(NEW.urn, "create"),
        LogLine("info", "copying\nrestarting", CONF.urn),
        LogLine("info", "17 %", NEW.urn, ephemeral=True),
        LogLine("debug", "a detail"),
        LogLine("warning", "little memory"),
        StepDone(CONF.urn, "update", 0.84),
        StepDone(NEW.urn, "create", 61.7),
        Finished(Result("up", True, counts, (CONF, NEW), (), outputs, 62.0)),
    ]


def failed() -> list[Event]:
    """Return the events of an `up` in which a machine fails, and a resource that depends on it is skipped."""
    failure = StepFailed(NEW.urn, "create", "10.77.2.3 does not answer\nits console says: panic")
    return [
        Started("up", "dev", "hpc"),
        NEW,
        LOGIN,
        StepStarted(NEW.urn, "create"),
        LogLine("info", "waiting for SSH", NEW.urn, ephemeral=True),
        failure,
        StepFailed(LOGIN.urn, "skip", "dev-cpu-2 failed"),
        Finished(Result("up", False, {"create": 1, "same": 4}, (NEW,), (failure,), {}, 3.0)),
    ]


def result(events: list[Event]) -> Result:
    """Return the result in the last event."""
    last = events[-1]
    assert isinstance(last, Finished)
    return last.result
