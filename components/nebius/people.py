"""The program that makes users in the jail, with its input."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, UpdateResult

from cluster.config import ClusterConfig
from cluster.jobs.environment import environment
from cluster.platforms.nebius.slurm import CHECKS_USER, accounts
from components.dynamic import ActionProvider, DynamicResource, given, report, without_traceback
from components.nebius.kubectl import LOGIN, Kubectl, KubectlError
from components.nebius.waits import Poll
from components.slurm import payload

_FOLDER = Path(__file__).parents[2] / "scripts" / "jail"
_PROGRAMS = ("people.py", "key_pair.py")
_NEEDED = ("interface.py", "accounting/", "containers/", "jobs/", "rights/", "slurm/", "system/")
"""Modules of the set-up that it imports."""
# Takes {"files": {path: text}, "payload": ...} from standard input; nothing of it stays in the jail.
_START = """
import json, pathlib, subprocess, sys, tempfile
given = json.load(sys.stdin)
with tempfile.TemporaryDirectory(prefix="hpc-") as folder:
    for name, text in given["files"].items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-B", folder + "/people.py", folder], input=json.dumps(given["payload"]).encode(), check=False
    )
sys.exit(done.returncode)
"""
COMMAND = ("python3", "-c", _START)
"""What runs it."""


@cache
def files() -> Mapping[str, str]:
    """The program and what it imports, by path."""
    modules = {
        name: text for name, text in payload.setup_files().items() if name.startswith(_NEEDED) and name.endswith(".py")
    }
    return {**modules, **{name: (_FOLDER / name).read_text() for name in _PROGRAMS}}


def people(config: ClusterConfig) -> dict[str, Any]:
    """Users, groups, what Slurm's database holds of them, and env.sh of their jobs."""
    return {
        "users": payload.users(config),
        "groups": payload.groups(config),
        "environment": environment(config).splitlines(),
        "accounting": json.loads(json.dumps(wanted := accounts(config))),
        "checks_user": CHECKS_USER if any(user["name"] == CHECKS_USER for user in wanted["users"]) else "",
    }


SECONDS = 600
"""For a login pod to answer, and the program to end."""
RUN_SECONDS = 300
"""For one run: sacctmgr takes half a second a command."""


class PeopleError(RuntimeError):
    """Users could not be created; the text has which, why and what to do."""


class PeopleProvider(ActionProvider):
    """Runs a program in a login pod that changes what differs.

    Nothing is done at a deletion: they are in the jail, which is deleted with the cluster, or kept as it is.
    """

    ACTED_ON = ("access", "people", "program", "after")

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Make them. An interrupted run is completed by the next."""
        _converge(props)
        return CreateResult(f"{props['access']['context']}/people", given(props))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Change what differs; those that are no longer named are removed."""
        _converge(_news)
        return UpdateResult(given(_news))


class People(DynamicResource, module="nebius", name="People"):
    """Users, groups, accounts and QOS of a cluster."""

    def __init__(
        self,
        name: str,
        *,
        access: pulumi.Input[Mapping[str, Any]],
        people: Mapping[str, Any],
        pace: float,
        after: pulumi.Input[str] = "",
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`people` is what the program takes; `after` changes when the jail is another."""
        program = hashlib.sha256(json.dumps(files(), sort_keys=True).encode()).hexdigest()[:16]
        props = {"access": access, "people": dict(people), "program": program, "pace": pace, "after": after}
        super().__init__(PeopleProvider(), name, props, opts)


def _converge(props: Mapping[str, Any]) -> None:
    with without_traceback(PeopleError), Kubectl(props["access"]) as kubectl:
        text = json.dumps({"files": dict(files()), "payload": _whole(props["people"])})
        output = _run(kubectl, text, props["pace"])
        lines = [line for line in output.splitlines() if line.strip()]
        for line in lines[:-1]:
            report(line)
        error = json.loads(lines[-1]).get("error") if lines else "the program printed nothing"
        if error:
            raise PeopleError(f"users and accounts: {error}")


def _run(kubectl: Kubectl, text: str, pace: float) -> str:
    """The program's output. A pod that is not there, or a connection that ended, is tried again."""
    poll = Poll(SECONDS, pace)
    while True:
        try:
            return LOGIN.run(kubectl, *COMMAND, stdin=text, seconds=RUN_SECONDS)
        except KubectlError as error:
            if poll.left < 0:
                raise PeopleError(
                    f"users and accounts: no answer of pod {LOGIN.name} within {SECONDS} s: {error}\n"
                    f"to do: kubectl describe pod {LOGIN.name} --namespace={kubectl.namespace}; then run `up` again"
                ) from None
            poll.pause(str(error), f"waiting for pod {LOGIN.name}: {error}")


def _whole(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A value without the fractions that numbers get on their way through the engine."""
    if isinstance(value, Mapping):
        return {name: _whole(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
