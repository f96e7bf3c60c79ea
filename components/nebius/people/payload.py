"""The program that makes users in the jail, with its input."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cluster.config import ClusterConfig
from cluster.jobs.environment import environment
from cluster.platforms.nebius.slurm import CHECKS_USER, accounts
from components.slurm import payload, setup

_FOLDER = Path(__file__).parents[3] / "scripts" / "jail"
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
    modules = {name: text for name, text in setup.files().items() if name.startswith(_NEEDED) and name.endswith(".py")}
    return {**modules, **{name: (_FOLDER / name).read_text() for name in _PROGRAMS}}


def people(config: ClusterConfig) -> dict[str, Any]:
    """Users, groups, what Slurm's database holds of them, and env.sh of their jobs."""
    return {
        "users": payload.users(config),
        "groups": payload.groups(config),
        "environment": environment(config).splitlines(),
        "accounting": json.loads(json.dumps(wanted := accounts(config))),
        "checks_user": CHECKS_USER if any(one["name"] == CHECKS_USER for one in wanted["users"]) else "",
    }
