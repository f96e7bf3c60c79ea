"""Users, groups, accounts and QOS of a cluster of pods. Runs in the jail, the file system that users see as `/`.

    python3 people.py FOLDER   < JSON   make them as the JSON says

FOLDER has the modules of scripts/node. All login and worker pods share the jail, so what is made once is everywhere at
once. The last line of its output is JSON: {"error": TEXT}, or {} when all is as it should be.
"""

from __future__ import annotations

import grp
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parents[1] / "node"))

from accounting import accounts
from interface import User
from jobs import drain
from system import users
from system.host import SetupError, describe_os_error, log

MANAGED = Path("/etc/hpc/jail")
"""What this program made, so that only that is ever removed. Not where scripts/node has it for its own machine."""
OF_THE_GUIDE = ("sudo", "docker")
"""Groups that Soperator's createuser adds everybody to, where the jail has them."""


def converge(payload: dict[str, Any]) -> None:
    """Make users and groups, then what Slurm's database holds of them."""
    users.MANAGED = MANAGED / "users.json"
    accounts.MANAGED = MANAGED / "accounting.json"
    # Nodes have users as soon as the jail has.
    accounts.join.wait_for_config_version = _at_once
    there = [name for name in OF_THE_GUIDE if _exists(name)]
    wanted = [_in_groups(user, there) for user in payload["users"]]
    drain.refuse_busy(users.leaving(wanted))
    # Accounts after users: a job of somebody whom nodes do not know would drain them.
    if users.converge(wanted, payload["groups"], with_homes=True):
        log("users and groups are changed on all nodes")
    accounts.converge(payload["accounting"])


def _in_groups(user: User, more: list[str]) -> User:
    return {**user, "groups": sorted({*user["groups"], *more})}


def _at_once(*, seconds: float) -> None:
    del seconds


def _exists(group: str) -> bool:
    try:
        grp.getgrnam(group)
    except KeyError:
        return False
    return True


def main() -> None:
    """Run it on standard input."""
    answer: dict[str, str] = {}
    try:
        converge(json.load(sys.stdin))
    except SetupError as error:
        answer = {"error": str(error)}
    except OSError as error:
        answer = {"error": describe_os_error(error) or str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
