"""The program that makes users in the jail: over modules that record what they are asked, and for real on a copy."""

import grp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.nebius import people
from tests import programs
from tests.harness import ROOT

PROGRAM = ROOT / "scripts" / "nebius" / "people.py"
RECORD = """
import json, pathlib
def note(name, *values, **more):
    with pathlib.Path({path!r}).open("a") as file:
        file.write(json.dumps([name, *values, more]) + "\\n")
"""
ACCOUNTS = """
import types
from note import note
MANAGED = None
join = types.SimpleNamespace(wait_for_config_version=None)
def converge(desired):
    join.wait_for_config_version(seconds=300)
    note("accounts", desired, str(MANAGED))
"""
MODULES = {
    "accounting/accounts.py": ACCOUNTS,
    "jobs/prologs.py": "from note import note\ndef keep_environment(lines):\n    note('environment', lines)\n",
    "jobs/drain_leaving.py": """
from note import note
from system.host import SetupError
def refuse_busy(users):
    note("busy", sorted(users))
    if "sync" in users:
        raise SetupError("sync leaves the cluster and has jobs")
""",
    "system/users.py": """
from note import note
MANAGED = None
def removed_names(users):
    return {"sync", "daemon"} - {user["name"] for user in users}
def converge(users, groups, with_homes):
    note("users", users, groups, str(MANAGED), with_homes)
    return True
""",
    "system/homes.py": "",
    "system/containers.py": "from note import note\ndef install_nvcrlogin():\n    note('nvcrlogin')\n",
    "interface.py": "UnixUser = dict\n",
    **{f"system/{name}.py": (ROOT / f"scripts/node/system/{name}.py").read_text() for name in ("host", "locks")},
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
        done = programs.run([sys.executable, str(PROGRAM), str(folder)], input=json.dumps(asked), check=True)
        calls = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
        return json.loads(done.stdout.splitlines()[-1]), calls

    return program


def test_users_come_before_accounts_and_have_the_groups_of_createuser(run):
    # Users of this machine, so that nobody is new.
    plain, none = {"name": "sync", "groups": ["ml"]}, {"name": "bin", "groups": [], "sudo": False, "containers": False}
    answer, calls = run(users=[plain, none], environment=["export A=1"])
    assert answer == {}
    assert [name for name, *_ in calls] == ["busy", "users", "nvcrlogin", "environment", "accounts"]
    assert calls[3][1] == ["export A=1"]
    there = [name for name in ("sudo", "docker") if name in {item.gr_name for item in grp.getgrall()}]
    (_, users, _, managed, with_homes, _) = calls[1]
    assert users[0] == {"name": "sync", "groups": sorted({"ml", *there})}
    assert users[1] == {"name": "bin", "groups": []}, "and no right that a machine would act on"
    assert managed == "/etc/hpc/jail/users.json", "not where a rehearsal's machine keeps its own"
    assert with_homes
    assert calls[4][2] == "/etc/hpc/jail/accounting.json"


def test_the_user_of_checks_is_there_before_its_account(run, tmp_path, monkeypatch):
    """As Soperator's own check makes it, unless it is there."""
    program, record = tmp_path / "soperator-createuser", tmp_path / "record"
    words = '{ printf \'["createuser"\'; printf \', "%s"\' "$@"; echo "]"; } >>'
    programs.write(program, f"{words} {record}\nread -r key")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    _, calls = run(users=[{"name": "sync", "groups": []}], checks_user="soperatorchecks")
    assert [name for name, *_ in calls][-2:] == ["createuser", "accounts"]
    assert calls[-2][1:] == ["soperatorchecks", "--home", "/opt/soperator-home/soperatorchecks", "--gecos", ""]
    record.unlink()
    for name in ("sync", ""):
        _, calls = run(users=[{"name": "sync", "groups": []}], checks_user=name)
        assert "createuser" not in [name for name, *_ in calls]


def test_somebody_with_jobs_is_not_removed(run):
    answer, calls = run()
    assert answer == {"error": "sync leaves the cluster and has jobs"}
    assert [name for name, *_ in calls] == ["busy"]


def test_all_modules_that_the_program_imports_are_sent(tmp_path):
    """In a folder with nothing else, every module is imported."""
    _lay_out(tmp_path)
    code = (
        f"import sys; sys.argv = ['people.py', {str(tmp_path)!r}]; sys.path.insert(0, {str(tmp_path)!r}); import people"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True, cwd=tmp_path)
    assert not any(Path(name).name.startswith("test_") for name in people.files())


def _lay_out(folder: Path) -> None:
    for name, text in people.files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# The files of users and homes are copies, which this mount namespace alone sees.
PRIVATE = """
set -e
mount --bind "$1/etc" /etc
mount --bind "$1/home" /home
shift
exec "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts and makes users, as root")
class TestForReal:
    """useradd, usermod and ssh-keygen, on a copy of /etc and an empty /home."""

    @pytest.fixture
    def jail(self, tmp_path):
        folder, etc = tmp_path / "program", tmp_path / "etc"
        _lay_out(folder)
        (folder / "accounting" / "accounts.py").write_text(ACCOUNTS)
        (folder / "note.py").write_text(RECORD.format(path=str(tmp_path / "record")))
        settings = folder / "system" / "containers.py"
        settings.write_text(settings.read_text().replace("/usr/local/bin/nvcrlogin", str(tmp_path / "nvcrlogin")))
        etc.mkdir()
        for name in ("passwd", "shadow", "group", "gshadow", "login.defs", "nsswitch.conf", "subuid", "subgid"):
            if Path("/etc", name).exists():
                shutil.copy2(f"/etc/{name}", etc / name)
        shutil.copytree("/etc/pam.d", etc / "pam.d")
        (etc / "skel").mkdir()
        lines = [line for line in (etc / "group").read_text().splitlines() if line.split(":")[0] not in RIGHTS]
        (etc / "group").write_text("\n".join([*lines, "sudo:x:27:", "docker:x:999:"]) + "\n")
        (tmp_path / "home").mkdir()

        def program(*users):
            asked = {
                "users": list(users), "accounting": {"users": []},
                "groups": [{"name": user["name"], "gid": user["gid"]} for user in users],
            }  # fmt: skip
            private = ["unshare", "--mount", "--propagation", "private", "sh", "-c", PRIVATE, "sh", str(tmp_path)]
            command = [*private, sys.executable, str(folder / "people.py"), str(folder)]
            done = programs.run(command, input=json.dumps(asked))
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout.splitlines()[-1]) == {}, done.stdout
            members = {row[0]: row[3] for row in (line.split(":") for line in (etc / "group").read_text().splitlines())}
            return done.stdout, {name: members[name] for name in RIGHTS}

        return program

    def test_a_new_user_has_what_createuser_gives(self, jail, tmp_path):
        _, members = jail(CAROL)
        assert members == {"sudo": "carol", "docker": "carol"}
        ssh = tmp_path / "home/carol/.ssh"
        public = (ssh / "id_ecdsa.pub").read_text().strip()
        assert public.startswith("ecdsa-sha2-nistp256 ")
        assert public.endswith(" carol@soperator-internal")
        keys = (ssh / "authorized_keys").read_text()
        assert KEY in keys.splitlines()
        assert public in keys.splitlines()
        made = {path.name: (path.stat().st_uid, path.stat().st_mode & 0o777) for path in ssh.iterdir()}
        assert made["id_ecdsa"] == made["authorized_keys"] == (CAROL["uid"], 0o600)
        assert (tmp_path / "nvcrlogin").stat().st_mode & 0o777 == 0o755
        jail(CAROL)
        assert (ssh / "authorized_keys").read_text() == keys, "a second run changes nothing"

    def test_rights_come_and_go(self, jail):
        _, members = jail({**CAROL, "sudo": False})
        assert members == {"sudo": "", "docker": "carol"}
        _, members = jail({**CAROL, "containers": False})
        assert members == {"sudo": "carol", "docker": ""}
        _, members = jail()
        assert members == {"sudo": "", "docker": ""}

    def test_existing_users_get_no_key_pair(self, jail, tmp_path):
        jail(CAROL)
        shutil.rmtree(tmp_path / "home/carol/.ssh")
        jail(CAROL)
        assert [path.name for path in (tmp_path / "home/carol/.ssh").iterdir()] == ["authorized_keys"]

    def test_the_next_run_completes_a_killed_one(self, jail, tmp_path):
        jail({**CAROL, "keys": []})
        for name in ("id_ecdsa", "id_ecdsa.pub", "authorized_keys"):
            (tmp_path / "home/carol/.ssh" / name).unlink()
        (tmp_path / "etc/hpc/jail/key-pairs.json").write_text('["carol"]\n')
        jail({**CAROL, "keys": []})
        assert (tmp_path / "home/carol/.ssh/id_ecdsa").exists()
        assert not (tmp_path / "etc/hpc/jail/key-pairs.json").exists()

    def test_a_link_in_place_of_a_users_folder_is_reported(self, jail, tmp_path):
        jail(CAROL)
        shutil.rmtree(tmp_path / "home/carol/.ssh")
        (tmp_path / "home/carol/.ssh").symlink_to("/root")
        (tmp_path / "etc/hpc/jail/key-pairs.json").write_text('["carol"]\n')
        printed, _ = jail(CAROL)
        assert "carol: no key pair for logins between pods" in printed
        assert (
            not Path("/root/.ssh/id_ecdsa").exists() or "soperator" not in Path("/root/.ssh/id_ecdsa.pub").read_text()
        )


RIGHTS = ("sudo", "docker")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl carol@laptop"
CAROL = {"name": "carol", "uid": 52003, "gid": 52003, "groups": [], "shell": "/bin/sh", "keys": [KEY]}
