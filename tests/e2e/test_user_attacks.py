"""What users of a cluster do to it, and to who runs it, stays their own.

After the tests of what a cluster's logs say when nobody attacks it (test_life.py): it is the same cluster.
"""

import base64
import gzip
import hashlib
import json
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from engine import values
from engine.state import crypter
from engine.state.state import State
from tests.e2e.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e

CLUSTER_KEY = "/root/.ssh/hpc_cluster"


@pytest.fixture
def keys(many: Cluster) -> Iterator[str]:
    """Alice's ~/.ssh, which is put back."""
    many.run("cp", "-a", ".ssh", ".kept")
    yield "/home/alice/.ssh"
    many.run("sh", "-c", "chmod 700 .; rm -rf .ssh; mv .kept .ssh")
    # Machines that do not answer in time on a busy host are named as differences.
    eventually(lambda: many.call("drift", "many", "--mend").returncode == 0, what="a cluster as it was")


def test_roots_files_are_not_given_away(many: Cluster, keys: str):
    told = "authorized_keys is a symbolic link"
    look = f"stat -c '%n %U %a' {CLUSTER_KEY} /etc/munge /etc/munge/munge.key"
    before = many.inside("controller", look)
    many.run("ln", "-sf", CLUSTER_KEY, ".ssh/authorized_keys")
    eventually(lambda: told in many.call("drift", "many").stdout, what=f"drift's word of it: {told}")
    # What machines say of a mending goes to standard error.
    eventually(lambda: "left alone" in many.call("drift", "many", "--mend").stderr, what="the set-up's word")
    assert many.inside("controller", look) == before
    assert many.inside("controller", f"find {keys} -type f -user alice -exec cat {{}} + | grep -c PRIVATE; true") == "0"


def test_a_user_who_holds_a_lock_stops_no_up(many: Cluster):
    """Not even the lock of an older set-up, whose files users could open, and may have open."""
    attack = "exec flock -x /run/hpc/setup.lock sleep 1000000"
    assert "Permission denied" in many.inside("login-0", f"su alice -s /bin/sh -c '{attack}' 2>&1; true")
    many.inside("login-0", "chmod 755 /run/hpc; chmod 644 /run/hpc/setup.lock")
    many.inside("login-0", f"su alice -s /bin/sh -c '{attack}' >/dev/null 2>&1 </dev/null &")
    try:
        held = "! flock -n /run/hpc/setup.lock true && echo held; true"
        eventually(lambda: many.inside("login-0", held) == "held", what="Alice's lock")
        many.hpc("up", "--replace", "**::many-login-0-configure")
        look = "stat -c %a /run/hpc /run/hpc/setup.lock; pgrep -u alice -x sleep >/dev/null && echo still there"
        assert many.inside("login-0", look).split("\n") == ["700", "600", "still there"]
        open_to_others = "find /run/hpc -maxdepth 1 '(' -name hpc -o -name '*.lock' ')' -perm /077"
        assert {machine: many.inside(machine, open_to_others) for machine in ("controller", "cpu-0")} == {
            "controller": "",
            "cpu-0": "",
        }
    finally:
        many.inside("login-0", "pkill -u alice -x sleep; true")


def test_this_hosts_users_do_not_reach_what_the_clusters_users_put_into_a_shared_folder(many: Cluster):
    """A setuid program there would run as root for them. A stack that is up from before is closed by its next `up`."""
    folder = many.root / "stacks" / "many"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    boots = many.boots()
    assert "many-network" in many.up()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert many.boots() == boots
    assert many.run("cat", "/etc/hostname") == "many-login-0"


def drawn(file: Path, stack: str, passphrase: str) -> dict[str, str]:
    """The secret outputs of whatever drew some, by RESOURCE.OUTPUT, from a state file."""
    state = State(file, stack, "hpc", lambda: passphrase)
    with pytest.MonkeyPatch.context() as patch:
        # As ./hpc has it; tests/conftest.py has fewer.
        patch.setattr(crypter, "ROUNDS", 1_000_000)
        state.load()
    return {
        f"{resource.urn.rpartition('::')[2]}.{name}": str(values.plain(value))
        for resource in state.resources()
        for name, value in resource.outputs.items()
        if resource.type.startswith(("random:", "tls:")) and values.is_secret(value)
    }


def found(secrets: dict[str, str], text: bytes) -> list[str]:
    """Which of the secrets stand in a text, and how they are written there."""
    return sorted(
        {f"{name} as {how}" for name, value in secrets.items() for how, text_ in written(value) if text_ in text}
    )


def written(secret: str) -> Iterator[tuple[str, bytes]]:
    """The ways in which a secret may be written, each with its name."""
    for part in parts(secret):
        raw = part.encode()
        yield "text", raw
        yield "JSON", json.dumps(part)[1:-1].encode()
        yield "URL", quote(part, safe="").encode()
        yield "hex", raw.hex().encode()
        yield "HEX", raw.hex().upper().encode()
        for shift in range(3):
            # Inside something longer: without the characters that depend on what stands before and behind.
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                yield "base64", encode(bytes(shift) + raw)[4 if shift else 0 : -4]


def parts(secret: str) -> Iterable[str]:
    """The secret; of a key in lines also those that tell something, beyond what all keys of its kind begin with."""
    lines = secret.strip().split("\n")
    return [secret.strip(), *([line for line in lines[3:-1] if len(line) > 40] if len(lines) > 3 else lines[1:-1])]


class TestSecrets:
    """No secret that the stack has drawn stands anywhere in the clear, in whatever encoding."""

    @pytest.fixture
    def secrets(self, many: Cluster) -> dict[str, str]:
        home = many.file.parent
        file = home / ".pulumi" / "stacks" / "hpc" / "many.json"
        return drawn(file, "many", (home / "passphrase").read_text().strip())

    def test_the_search_finds_what_it_looks_for(self, secrets: dict[str, str]):
        assert {f"many-{name}" for name in ("munge.result", "database.result", "admin.privateKeyOpenssh")} <= set(
            secrets
        )
        assert len(secrets["many-munge.result"]) == 64
        for name, secret in secrets.items():
            told = [f"x{secret}", json.dumps(secret), base64.b64encode(f"xy {secret} z".encode()).decode()]
            for text in (*told, quote(secret, safe=""), secret.encode().hex()):
                assert [line for line in found({name: secret}, text.encode()) if line.startswith(name)]

    def test_none_stands_anywhere_in_clear(self, many: Cluster, secrets: dict[str, str]):
        home = many.file.parent
        files = [path for path in home.rglob("*") if path.is_file() and path.name != "passphrase"]
        assert [path for path in files if path.suffixes[-2:] == [".history", ".json"]], "history is among them"
        assert {str(path): text for path in files if (text := found(secrets, path.read_bytes()))} == {}
        said = [many.hpc("preview", "--json").stdout, many.command("outputs"), many.call("status", "many").stdout]
        assert found(secrets, "".join(said).encode()) == []
        for machine in ("controller", "login-0", "cpu-0"):
            # Rotated ones are compressed, and wtmp is no text: a byte of a process id can be any.
            files = "find /var/log -type f ! -path '*/journal/*'"
            logs = many.inside(machine, f"printf '\\240\\n'; zcat -f $({files}); journalctl --no-pager; true")
            assert found(secrets, logs.encode()) == [], machine

    def test_an_export_is_its_owners_alone(self, many: Cluster, tmp_path: Path):
        many.call("state", "export", "many", str(tmp_path / "state.json"))
        assert stat.S_IMODE((tmp_path / "state.json").stat().st_mode) == 0o600


def test_another_munge_key_comes_beside_the_jobs(many: Cluster):
    """As whoever has read the key makes it useless: no machine is recreated, and jobs run on."""
    boots, number = many.boots(), many.job("sleep infinity")
    look = "sha256sum </etc/munge/munge.key; stat -c '%a %U' /etc/munge/munge.key"
    before = many.inside("controller", look)
    many.hpc("up", "--replace", "**::many-munge")
    keys = {machine: many.inside(machine, look) for machine in boots}
    assert len(set(keys.values())) == 1
    assert before not in keys.values()
    assert many.outputs()["munge_key"] == keys["many-controller"][:12]
    assert many.state(number) == "RUNNING"
    assert many.boots() == boots
    assert many.run("srun", "-N2", "hostname").count("many-cpu") == 2
    many.run("scancel", number, user="alice")


def test_a_jobs_name_is_only_a_name(many: Cluster):
    """One that was rows of other jobs had `nodes reboot --force` cancel them, and crashed status and nodes."""
    script = "exec sleep infinity"
    theirs = many.job(script, user="bob")
    evil = f"x\n{theirs}|bob|RUNNING|1:02|1:00|many-gpu-0|y\n|||||||||\x1b[2J\x9b31m\r\u202eoops"
    mine = many.job(script, "--partition=gpu", "--job-name", evil)
    (gpu,) = [row for row in json.loads(many.command("nodes", "--json")) if row["node"] == "many-gpu-0"]
    (job,) = gpu["jobs"]
    assert job["id"] == mine
    assert job["name"].startswith(f"x\n{theirs}|bob|RUNNING|")
    said = many.call("status", "many").stdout + many.command("nodes")
    assert mine in said
    assert not set(said) & set("\x1b\x9b\r\u202e")
    refused = many.call("nodes", "many", "drain", "gpu-0", "--reason", "test")
    assert f"job {mine} (x\\n{theirs}|bob" in refused.stderr
    many.inside("controller", f"scancel {theirs} {mine}")


def test_a_backup_runs_no_shell_lines(many: Cluster, tmp_path: Path):
    """MariaDB's client takes `\\! COMMAND` for one, on a line of its own or amid SQL, and restore runs as root."""
    good, bad = tmp_path / "good.sql.gz", tmp_path / "bad.sql.gz"
    assert many.call("accounting", "backup", "many", str(good)).returncode == 0
    *lines, _last = gzip.decompress(good.read_bytes()).splitlines(keepends=True)
    for evil in (b"\\! touch /root/owned\n", b"SELECT 1; \\! touch /root/owned\n", b"system touch /root/owned\n"):
        text = b"".join([*lines[:2], evil, *lines[2:]])
        bad.write_bytes(gzip.compress(text + f"-- sha256 {hashlib.sha256(text).hexdigest()}\n".encode()))
        refused = many.call("accounting", "restore", "many", str(bad), "--yes")
        assert "the backup could not be loaded" in refused.stderr
        assert many.inside("controller", "test ! -e /root/owned && systemctl is-active slurmdbd") == "active"
