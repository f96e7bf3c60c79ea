"""Users and accounts of a cluster: the resource that runs a program in the jail, which creates them."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cluster.config import ClusterConfig
from cluster.jobs.script import render_environment
from cluster.platforms.nebius.slurm import CHECKS_USER, accounts
from components.dynamic import ActionProvider, ActionResource, report, without_traceback
from components.nebius.api.specs import with_whole_numbers
from components.nebius.kubectl import LOGIN, Kubectl, KubectlError
from components.nebius.poll import Poll
from components.slurm import payload

_FOLDER = Path(__file__).parents[2] / "scripts" / "nebius"
_PROGRAMS = ("people.py", "key_pair.py")
_MODULES = ("interface.py", "accounting/", "containers/", "jobs/", "rights/", "slurm/", "system/")
"""Modules of the node set-up that people.py imports."""
COMMAND = tuple(payload.run_sent(_PROGRAMS[0]))
"""The command that runs people.py in the login pod."""


def program_hash() -> str:
    """Return a hash of the program and of the modules that it imports."""
    return hashlib.sha256(json.dumps(files(), sort_keys=True).encode()).hexdigest()[:16]


@cache
def files() -> Mapping[str, str]:
    """Return the source of the program and of the modules that it imports, by path."""
    modules = {
        name: text for name, text in payload.setup_files().items() if name.startswith(_MODULES) and name.endswith(".py")
    }
    return {**modules, **{name: (_FOLDER / name).read_text() for name in _PROGRAMS}}


def people(config: ClusterConfig) -> dict[str, Any]:
    """Return the input of the program: users, groups, accounts, QOS, and the lines of env.sh of jobs."""
    return {
        "users": payload.users(config),
        "groups": payload.groups(config),
        "environment": render_environment(config).splitlines(),
        "accounting": json.loads(json.dumps(wanted := accounts(config))),
        "checks_user": CHECKS_USER if any(user["name"] == CHECKS_USER for user in wanted["users"]) else "",
    }


SECONDS = 600
"""Deadline for a login pod to answer, and for the program to end."""
RUN_SECONDS = 300
"""Timeout of one run: sacctmgr takes half a second for each command."""


class PeopleError(RuntimeError):
    """Users could not be created; the text has which, why and what to do."""


class PeopleProvider(ActionProvider):
    """Runs a program in a login pod, which changes what differs. The next run completes an interrupted one.

    A deletion does nothing: users are in the jail, which is deleted with the cluster, or kept.
    """

    ID = "{access[context]}/people"
    ACTED_ON = ("access", "people", "program", "after")

    def act(self, news: Mapping[str, Any], _olds: Mapping[str, Any] | None, /) -> None:
        """Create users and accounts; remove those that the stack file no longer names."""
        text = json.dumps({"files": dict(files()), "payload": with_whole_numbers(news["people"])})
        with without_traceback(PeopleError), Kubectl(news["access"]) as kubectl:
            lines = [line for line in _run(kubectl, text, news["pace"]).splitlines() if line.strip()]
            for line in lines[:-1]:
                report(line)
            if error := json.loads(lines[-1]).get("error") if lines else "the program printed nothing":
                raise PeopleError(f"users and accounts: {error}")


class People(ActionResource, module="nebius", name="People"):
    """Users, groups, accounts and QOS of a cluster.

    Inputs: `access`, `people` (the program's input), `program` (its hash), `pace`, and `after`, which changes with the
    jail.
    """

    PROVIDER = PeopleProvider


def _run(kubectl: Kubectl, text: str, pace: float) -> str:
    """Run the program and return its output; retry until SECONDS if the pod does not run or the connection ends."""
    poll = Poll(SECONDS, pace)
    while True:
        try:
            return kubectl.execute(LOGIN, *COMMAND, stdin=text, seconds=RUN_SECONDS)
        except KubectlError as error:
            if poll.left < 0:
                raise PeopleError(
                    f"users and accounts: no answer of pod {LOGIN.name} within {SECONDS} s: {error}\n"
                    f"to do: kubectl describe pod {LOGIN.name} --namespace={kubectl.namespace}; then run `up` again"
                ) from None
            poll.pause(str(error), f"waiting for pod {LOGIN.name}: {error}")
