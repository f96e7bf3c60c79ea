"""The program that makes users in the jail, over modules that record what they are asked to do."""

import grp
import json
import subprocess
import sys
from pathlib import Path

import pytest

from components.nebius.people import payload
from tests.nebius.deploy.site import ROOT

PROGRAM = ROOT / "scripts" / "jail" / "people.py"
RECORD = """
import json, pathlib
def note(name, *values, **more):
    with pathlib.Path({path!r}).open("a") as file:
        file.write(json.dumps([name, *values, more]) + "\\n")
"""
MODULES = {
    "accounting/accounts.py": """
import types
from note import note
MANAGED = None
join = types.SimpleNamespace(wait_for_config_version=None)
def converge(desired):
    join.wait_for_config_version(seconds=60)
    note("accounts", desired, str(MANAGED))
""",
    "jobs/drain.py": """
from note import note
from system.host import SetupError
def refuse_busy(users):
    note("busy", sorted(users))
    if "busy" in users:
        raise SetupError("busy leaves the cluster and has jobs")
""",
    "system/users.py": """
from note import note
MANAGED = None
def leaving(users):
    return {"busy", "carol"} - {user["name"] for user in users}
def converge(users, groups, with_homes):
    note("users", users, groups, str(MANAGED), with_homes)
    return True
""",
    "interface.py": "User = dict\n",
    "system/host.py": (ROOT / "scripts/node/system/host.py").read_text(),
}


@pytest.fixture
def run(tmp_path):
    folder, record = tmp_path / "modules", tmp_path / "record"
    for name, text in {**MODULES, "note.py": RECORD.format(path=str(record))}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def program(**given):
        asked = {"users": [], "groups": [], "accounting": {"users": []}, **given}
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(folder)],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=True,
        )
        calls = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
        return json.loads(done.stdout.splitlines()[-1]), calls

    return program


def test_users_come_before_accounts_and_have_the_groups_of_createuser(run):
    user = {"name": "busy", "groups": ["ml"]}
    answer, calls = run(users=[user, {"name": "carol", "groups": []}])
    assert answer == {}
    assert [name for name, *_ in calls] == ["busy", "users", "accounts"]
    there = [name for name in ("sudo", "docker") if name in {one.gr_name for one in grp.getgrall()}]
    (_, users, _, managed, with_homes, _) = calls[1]
    assert users[0]["groups"] == sorted({"ml", *there})
    assert managed == "/etc/hpc/jail/users.json", "not where a rehearsal's machine keeps its own"
    assert with_homes
    assert calls[2][2] == "/etc/hpc/jail/accounting.json"


def test_somebody_with_jobs_is_not_removed(run):
    answer, calls = run()
    assert answer == {"error": "busy leaves the cluster and has jobs"}
    assert [name for name, *_ in calls] == ["busy"]


def test_what_is_sent_is_all_that_it_imports(tmp_path):
    """In a folder with nothing else, every module is imported."""
    for name, text in payload.files().items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code = (
        f"import sys; sys.argv = ['people.py', {str(tmp_path)!r}]; sys.path.insert(0, {str(tmp_path)!r}); import people"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True, cwd=tmp_path)
    assert not any(Path(name).name.startswith("test_") for name in payload.files())
