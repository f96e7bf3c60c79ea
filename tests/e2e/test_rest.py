"""slurmrestd where a stack says so: for users with a token of their own, from a client on the login machine."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e

CLIENT = """\
import json, os, sys, urllib.error, urllib.request
token, path, *body = sys.argv[1:]
headers = {"X-SLURM-USER-TOKEN": token} if token else {}
headers.update({"X-SLURM-USER-NAME": os.environ["NAMED"]} if "NAMED" in os.environ else {})
request = urllib.request.Request("http://many-controller:6820" + path, headers=headers)
if body:
    request.data = body[0].encode()
    request.add_header("Content-Type", "application/json")
try:
    with urllib.request.urlopen(request, timeout=300) as answer:
        print(json.dumps({"status": answer.status, **json.load(answer)}))
except urllib.error.HTTPError as error:
    print(json.dumps({"status": error.code, "said": error.read().decode()}))
"""
JOB = {
    "script": "#!/bin/sh\nid -un\n",
    "job": {
        "name": "by-rest", "partition": "cpu", "current_working_directory": "/home/alice",
        "environment": ["PATH=/usr/bin:/bin"], "standard_output": "/home/alice/by-rest.out",
    },
}  # fmt: skip
THERE = "ls /etc/slurm/jwt.key /etc/hpc/jwt.key /etc/systemd/system/slurmrestd.service 2>/dev/null || true"


@pytest.fixture(scope="module")
def served(pair: tuple[Cluster, Cluster]) -> Iterator[Cluster]:
    """The cluster of many machines, with slurmrestd while these tests run; and without a trace of it afterwards."""
    many = pair[0]
    before, boots = many.copy(), many.boots()
    many.edit(lambda config: config["slurm"].update(slurmrestd=True))
    many.up()
    many.run("sh", "-c", f"cat > ~/rest.py <<'END'\n{CLIENT}END\n", user="alice")
    yield many
    many.revert(before)
    many.up()
    assert many.inside("controller", f"{THERE}; pgrep slurmrestd; getent passwd slurmrestd || true") == ""
    assert "AuthAlt" not in many.inside("controller", "cat /etc/slurm/slurm.conf /etc/slurm/slurmdbd.conf")
    assert many.run("srun", "id", "-un", user="alice") == "alice"
    assert "Nothing to do" in many.up()
    assert many.boots() == boots


def token(cluster: Cluster, user: str, seconds: int = 600) -> str:
    """A token of a user's, as they get it."""
    return cluster.run("scontrol", "token", f"lifespan={seconds}", user=user).removeprefix("SLURM_JWT=")


def test_no_token_lives_longer_than_thirty_days(served: Cluster):
    assert token(served, "alice", seconds=30 * 86400)
    refused = served.run("sh", "-c", f"scontrol token lifespan={31 * 86400} 2>&1; true", user="alice")
    assert "SLURM_JWT" not in refused


def ask(cluster: Cluster, word: str, path: str, body: object = None, *, named: str = "") -> dict:
    """What slurmrestd answers to a request with the token `word`, of alice's client on the login machine."""
    words = ["env", *([f"NAMED={named}"] if named else []), "python3", "/home/alice/rest.py", word, path]
    return json.loads(cluster.run(*words, *([json.dumps(body)] if body else []), user="alice"))


def test_a_job_is_submitted_and_read_back(served: Cluster):
    word = token(served, "alice")
    made = ask(served, word, "/slurm/v0.0.42/job/submit", JOB)
    assert made["status"] == 200, made

    def seen() -> dict:
        (job,) = ask(served, word, f"/slurm/v0.0.42/job/{made['job_id']}")["jobs"]
        return job

    eventually(lambda: seen()["job_state"] == ["COMPLETED"], what="the job's end")
    assert (seen()["user_name"], seen()["name"]) == ("alice", "by-rest")
    assert served.run("cat", "/home/alice/by-rest.out", user="alice") == "alice"
    # slurmdbd takes the token as well.
    assert "alice" in json.dumps(ask(served, word, "/slurmdb/v0.0.42/user/alice"))


@pytest.mark.parametrize("word", ["", "x.y.z"])
def test_who_has_no_token_is_refused(served: Cluster, word: str):
    before = served.run("squeue", "--noheader", "--states=all", "--name=by-rest")
    refused = ask(served, word, "/slurm/v0.0.42/job/submit", JOB)
    assert refused["status"] >= 400
    assert served.run("squeue", "--noheader", "--states=all", "--name=by-rest") == before


def test_a_token_of_another_key_or_of_another_user_is_refused(served: Cluster):
    word = token(served, "alice")
    header, claims, signature = word.split(".")
    forged = f"{header}.{claims}.{signature[::-1]}"
    assert ask(served, forged, "/slurm/v0.0.42/job/submit", JOB)["status"] >= 400
    as_root = ask(served, word, "/slurm/v0.0.42/job/submit", JOB, named="root")
    assert as_root["status"] >= 400


def test_a_token_ends(served: Cluster):
    word = token(served, "alice", seconds=2)
    eventually(lambda: ask(served, word, "/slurm/v0.0.42/jobs")["status"] >= 400, what="the token's end")


def test_it_runs_as_nobody_special_on_the_clusters_network_alone(served: Cluster):
    assert served.inside("controller", "ps -o user= -C slurmrestd").split() == ["slurmrestd"]
    address = served.outputs()["machines"]["many-controller"]["address"]
    assert served.inside("controller", "ss -Hltn sport = :6820").split()[3] == f"{address}:6820"
    modes = served.inside("controller", "stat -c '%a %U' /etc/slurm/jwt.key /etc/hpc/jwt.key")
    assert modes.splitlines() == ["600 slurm", "600 root"]
    for machine in ("login-0", "cpu-0"):
        assert served.inside(machine, THERE) == ""


def test_status_names_it_when_it_has_stopped(served: Cluster):
    served.inside("controller", "systemctl stop slurmrestd")
    stopped = lambda: served.findings().get("slurmrestd-down", {}).get("controller", "")  # noqa: E731 - asked again
    eventually(lambda: "slurmrestd does not run" in stopped(), what="the finding")
    served.inside("controller", "rm /etc/systemd/system/slurmrestd.service; chmod 644 /etc/slurm/jwt.key")
    served.command("drift", "--mend")
    assert stopped() == ""
    assert served.inside("controller", "stat -c %a /etc/slurm/jwt.key; systemctl is-active slurmrestd") == "600\nactive"
