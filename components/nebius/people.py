"""Users and accounts of a cluster: a program that creates them in the jail, and the resource that runs it there."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cluster.config import ClusterConfig
from cluster.jobs.script import environment
from cluster.platforms.nebius.slurm import CHECKS_USER, accounts
from components.dynamic import Action, ActionProvider, report, without_traceback
from components.nebius.api.specs import whole
from components.nebius.kubectl import LOGIN, Kubectl, KubectlError
from components.nebius.poll import Poll
from components.slurm import payload

_FOLDER = Path(__file__).parents[2] / "scripts" / "nebius"
_PROGRAMS = ("people.py", "key_pair.py")
_NEEDED = ("interface.py", "accounting/", "containers/", "jobs/", "rights/", "slurm/", "system/")
"""Modules of the node set-up that people.py imports."""
COMMAND = tuple(payload.run_sent(_PROGRAMS[0]))
"""The command that runs people.py in the login pod."""


def program_hash() -> str:
    """A hash of the program and of the modules that it imports."""
    return hashlib.sha256(json.dumps(files(), sort_keys=True).encode()).hexdigest()[:16]


@cache
def files() -> Mapping[str, str]:
    """Source of the program and of the modules that it imports, by path."""
    modules = {
        name: text for name, text in payload.setup_files().items() if name.startswith(_NEEDED) and name.endswith(".py")
    }
    return {**modules, **{name: (_FOLDER / name).read_text() for name in _PROGRAMS}}


def people(config: ClusterConfig) -> dict[str, Any]:
    """Input of the program: users, groups, their accounts and QOS in Slurm's database, and env.sh of their jobs."""
    return {
        "users": payload.users(config),
        "groups": payload.groups(config),
        "environment": environment(config).splitlines(),
        "accounting": json.loads(json.dumps(wanted := accounts(config))),
        "checks_user": CHECKS_USER if any(user["name"] == CHECKS_USER for user in wanted["users"]) else "",
    }


SECONDS = 600
"""Time for a login pod to answer, and the program to end."""
RUN_SECONDS = 300
"""Time for one run: sacctmgr takes half a second a command."""


class PeopleError(RuntimeError):
    """Users could not be created; the text has which, why and what to do."""


class PeopleProvider(ActionProvider):
    """Runs a program in a login pod that changes what differs. The next run completes an interrupted one.

    A deletion does nothing: users are in the jail, which is deleted with the cluster, or kept as it is.
    """

    ID = "{access[context]}/people"
    ACTED_ON = ("access", "people", "program", "after")

    def act(self, news: Mapping[str, Any], _olds: Mapping[str, Any] | None, /) -> None:
        """Create users and accounts; remove those that the stack file no longer names."""
        with without_traceback(PeopleError), Kubectl(news["access"]) as kubectl:
            _converge(kubectl, news)


class People(Action, module="nebius", name="People"):
    """Users, groups, accounts and QOS of a cluster.

    Inputs: `access`, `people` (what the program takes), `program` (its hash), `pace`, and `after`, which changes when
    the jail is another.
    """

    PROVIDER = PeopleProvider


def _converge(kubectl: Kubectl, props: Mapping[str, Any]) -> None:
    output = _run(kubectl, json.dumps({"files": dict(files()), "payload": whole(props["people"])}), props["pace"])
    lines = [line for line in output.splitlines() if line.strip()]
    for line in lines[:-1]:
        report(line)
    if error := json.loads(lines[-1]).get("error") if lines else "the program printed nothing":
        raise PeopleError(f"users and accounts: {error}")


def _run(kubectl: Kubectl, text: str, pace: float) -> str:
    """Run the program; its output. If the pod is not there, or the connection ends, it retries until SECONDS."""
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
