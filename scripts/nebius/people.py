"""Users, groups, accounts and QOS of a cluster of pods. Runs in the jail, the file system that users see as `/`.

    python3 people.py FOLDER   < JSON   create, change and remove them as the JSON says

Users have what Soperator's createuser gives: the groups sudo and docker, and a key pair for logins between pods
(github.com/nebius/soperator, ansible/roles/soperator-scripts/files/soperator-createuser; images/jail/scripts/
createuser.sh of 1.15 has sudo alone, which is all that its jail has).

FOLDER has the modules of scripts/node. All login and worker pods share the jail, so a change is on all of them at once.
The last line of the output is JSON: {"error": TEXT}, or {} after a success.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parents[1] / "node"))

from accounting import accounts
from interface import UnixUser
from jobs import drain_leaving, prologs
from system import containers, homes, users
from system.host import SetupError, describe_os_error, has_group, has_user, log, read_json, write

MANAGED = Path("/etc/hpc/jail")
"""Folder of the lists of what this program created, so that it removes nothing else. A machine's own lists are those of
scripts/node."""
GROUPS = {"sudo": "sudo", "containers": "docker"}
"""The group of each right of a user, if the jail has it. A user has both unless the stack file says otherwise, as with
createuser. The jail's sudoers lets the group sudo become root without a password."""
KEY_PAIRS = MANAGED / "key-pairs.json"
"""Users that are being created, and get a key pair once they have a home."""


def converge(payload: dict[str, Any]) -> None:
    """Apply users and groups, env.sh of their jobs, then their accounts in Slurm's database."""
    users.MANAGED = MANAGED / "users.json"
    accounts.MANAGED = MANAGED / "accounting.json"
    # Nodes have users at the same time as the jail.
    accounts.join.wait_for_config_version = lambda *, seconds: None  # noqa: ARG005 - as its caller names it
    desired = [_with_groups(user) for user in payload["users"]]
    drain_leaving.refuse_busy(users.removed_names(desired))
    # Only new users get a key pair: the homes of others are their own.
    new = {*read_json(KEY_PAIRS, []), *(user["name"] for user in desired if not has_user(user["name"]))}
    if new:
        write(KEY_PAIRS, json.dumps(sorted(new)) + "\n", quiet=True)
    # Accounts after users: a job of a user that nodes do not have would drain them.
    if users.converge(desired, payload["groups"], with_homes=True):
        log("users and groups are changed on all nodes")
    if new:
        create_key_pairs(user for user in desired if user["name"] in new)
        KEY_PAIRS.unlink()
    containers.install_nvcrlogin()
    prologs.keep_environment(payload.get("environment", []))
    create_user_of_checks(payload.get("checks_user", ""))
    accounts.converge(payload["accounting"])


def create_user_of_checks(name: str) -> None:
    """Create the user of Soperator's checks before its account: slurmctld looks up the uid when it reads the account,
    and then once an hour (assoc_mgr_set_missing_uids).

    The check create-user-soperatorchecks creates the same user, and keeps an existing one.
    """
    program = shutil.which("soperator-createuser")
    if not name or has_user(name) or program is None:
        return
    command = [program, name, "--home", f"/opt/soperator-home/{name}", "--gecos", ""]
    done = subprocess.run(command, input="\n", capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        log(f"{name}: not made, Soperator's own check does so: {done.stderr.strip()[-400:]}")


def create_key_pairs(new: Iterable[UnixUser]) -> None:
    """Create a key pair for each of these users, in a process of the user."""
    text = Path(__file__).with_name("key_pair.py").read_text()
    for user in new:
        home, program = homes.HOMES / user["name"], ["-c", text, f"{user['name']}@soperator-internal"]
        environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        try:
            code, output = homes.run_as_user(home, user["uid"], user["gid"], program, env=environment)
        except SetupError as error:
            code, output = 1, str(error)
        if code:
            log(f"{user['name']}: no key pair for logins between pods: {output.strip()}")


def _with_groups(user: UnixUser) -> UnixUser:
    """Return the user in the groups of its rights, which on machines are files of their own."""
    result: dict[str, Any] = {**user}
    more = [group for right, group in GROUPS.items() if result.pop(right, True) and has_group(group)]
    result["groups"] = sorted({*user["groups"], *more})
    return result  # type: ignore[return-value] - the same keys, but for the rights


def main() -> None:
    """Apply the JSON of standard input."""
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
