"""Users, groups, accounts and QOS of a cluster of pods. Runs in the jail, the file system that users see as `/`.

    python3 people.py FOLDER   < JSON   make them as the JSON says

They have what Soperator's createuser gives: the groups sudo and docker, and a key pair for logins between pods
(github.com/nebius/soperator, ansible/roles/soperator-scripts/files/soperator-createuser; images/jail/scripts/
createuser.sh of 1.15 has sudo alone, which is all that its jail has).

FOLDER has the modules of scripts/node. All login and worker pods share the jail, so what is made once is everywhere at
once. The last line of its output is JSON: {"error": TEXT}, or {} when all is as it should be.
"""

import grp
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parents[1] / "node"))

from accounting import accounts
from interface import User
from jobs import drain, prologs
from system import containers, homes, users
from system.host import SetupError, describe_os_error, has_user, log, read_json, write

MANAGED = Path("/etc/hpc/jail")
"""Lists what this program made, so that only that is ever removed; not the list of scripts/node for its own machine."""
GROUPS = {"sudo": "sudo", "containers": "docker"}
"""The group of each right of a user, where the jail has it. Without a word in the stack file a user has both, as with
createuser. Its sudoers lets the group sudo become root without a password."""
KEY_PAIRS = MANAGED / "key-pairs.json"
"""Users who are being made, and get a key pair once they have a home."""


def converge(payload: dict[str, Any]) -> None:
    """Make users and groups, env.sh of their jobs, then what Slurm's database holds of them."""
    users.MANAGED = MANAGED / "users.json"
    accounts.MANAGED = MANAGED / "accounting.json"
    # Nodes have users as soon as the jail has.
    accounts.join.wait_for_config_version = lambda *, seconds: None  # noqa: ARG005 - as its caller names it
    wanted = [_with_groups(user) for user in payload["users"]]
    drain.refuse_busy(users.removed_names(wanted))
    # Only who is made here: what others have in their home is their own.
    new = {*read_json(KEY_PAIRS, []), *(user["name"] for user in wanted if not has_user(user["name"]))}
    if new:
        write(KEY_PAIRS, json.dumps(sorted(new)) + "\n", quiet=True)
    # Accounts after users: a job of somebody whom nodes do not know would drain them.
    if users.converge(wanted, payload["groups"], with_homes=True):
        log("users and groups are changed on all nodes")
    if new:
        make_key_pairs(user for user in wanted if user["name"] in new)
        KEY_PAIRS.unlink()
    containers.install_nvcrlogin()
    prologs.keep_environment(payload.get("environment", []))
    make_user_of_checks(payload.get("checks_user", ""))
    accounts.converge(payload["accounting"])


def make_user_of_checks(name: str) -> None:
    """Make the user whose jobs Soperator's checks are, before its account: slurmctld looks for the uid when it reads
    of the account, and then once an hour (assoc_mgr_set_missing_uids).

    As the check create-user-soperatorchecks makes it, which leaves one that is there as it is.
    """
    program = shutil.which("soperator-createuser")
    if not name or has_user(name) or program is None:
        return
    command = [program, name, "--home", f"/opt/soperator-home/{name}", "--gecos", ""]
    done = subprocess.run(command, input="\n", capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        log(f"{name}: not made, Soperator's own check does so: {done.stderr.strip()[-400:]}")


def make_key_pairs(new: Iterable[User]) -> None:
    """Each of these users gets a key pair, made by a process that is nobody but the user."""
    text = Path(__file__).with_name("key_pair.py").read_text()
    for user in new:
        home, program = homes.HOMES / user["name"], ["-c", text, f"{user['name']}@soperator-internal"]
        environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        try:
            code, said = homes.run_as_user(home, user["uid"], user["gid"], program, env=environment)
        except SetupError as error:
            code, said = 1, str(error)
        if code:
            log(f"{user['name']}: no key pair for logins between pods: {said.strip()}")


def _with_groups(user: User) -> User:
    """The user in the groups of its rights: in the jail these are not files of their own, as on machines."""
    rights: dict[str, Any] = {**user}
    more = [group for right, group in GROUPS.items() if rights.pop(right, True) and _exists(group)]
    rights["groups"] = sorted({*user["groups"], *more})
    return rights  # type: ignore[return-value] - the same keys, but for the rights


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
