"""What machines are told is what the configuration says, and nothing secret is told where it can be seen."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import slurmctld

from cluster.config import ClusterConfig
from cluster.load.parse import parse
from cluster.roster import machines
from cluster.slurm import render
from components.slurm import payload, setup


def config(**partition: object) -> ClusterConfig:
    """Two users with different rights, and one partition with the given limits."""
    cluster = {
        "platform": "local",
        "name": "dev",
        "nodesets": {"cpu": {"count": 2}},
        "partitions": {"cpu": {"nodesets": ["cpu"], "default": True, **partition}},
        "groups": {"ml": 3001},
        "users": [
            {"name": "alice", "uid": 2001, "account": "research"},
            {"name": "bob", "uid": 2002, "account": "teaching", "groups": ["ml"], "qos": ["normal", "urgent"]},
        ],
        "accounting": {
            "accounts": [{"name": "research"}, {"name": "teaching"}, {"name": "spare"}],
            "qos": [{"name": "urgent"}],
        },
    }
    return parse({"hpc:cluster": cluster})


class TestProbes:
    """A partition is tried by somebody whom it lets in."""

    @pytest.mark.parametrize(
        ("limits", "who"),
        [
            ({}, ("root", "", "")),
            ({"allow_accounts": ["teaching"]}, ("bob", "teaching", "normal")),
            ({"allow_groups": ["ml"]}, ("bob", "teaching", "normal")),
            ({"allow_qos": ["normal", "urgent"]}, ("root", "", "")),
            ({"allow_qos": ["urgent"]}, ("bob", "teaching", "urgent")),
            ({"allow_accounts": ["spare"]}, ("", "", "")),
            ({"allow_accounts": ["research"], "allow_groups": ["ml"]}, ("", "", "")),
        ],
    )
    def test_are_made_by_somebody_who_may(self, limits, who):
        (probe,) = payload.probes(config(**limits))
        assert (probe["user"], probe["account"], probe["qos"]) == who


class TestConfigure:
    def test_the_controllers_files_arrive_line_for_line(self):
        told = config()
        controller = machines(told)[0]
        text = payload.configure(told, controller, mounts=[], addresses={}, controller=controller.name)
        files = {name: "\n".join(lines) + "\n" for name, lines in json.loads(text)["files"].items()}
        assert slurmctld.PASSWORD_MARK in files.pop("slurmdbd.conf")
        assert files == render(told, {})

    def test_qos_that_partitions_name_are_told_apart_for_they_come_first(self):
        told = config(qos="urgent", allow_qos=["normal", "urgent"])
        controller = machines(told)[0]
        text = payload.configure(told, controller, mounts=[], addresses={}, controller=controller.name)
        assert json.loads(text)["qos"] == ["urgent"]

    def test_other_machines_get_no_files(self):
        told = config()
        text = payload.configure(told, machines(told)[1], mounts=[], addresses={}, controller="dev-controller")
        assert "files" not in json.loads(text)


class TestSetup:
    """The two commands that bring things to a machine, run by a real shell."""

    @staticmethod
    def run(command: str, stdin: str) -> None:
        line = command.replace("python3", sys.executable, 1)
        subprocess.run(["/bin/sh", "-c", f"umask 000; {line}"], input=stdin, text=True, check=True)

    def test_the_set_up_arrives_byte_for_byte_and_stale_files_go(self, tmp_path: Path):
        (tmp_path / "stale.py").write_text("old")
        self.run(setup.UNPACK.replace(setup.TARGET, str(tmp_path)), setup.packed())
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == setup.files()

    def test_a_secret_is_its_owners_alone_whatever_the_umask(self, tmp_path: Path):
        kept = tmp_path / "new" / "secret"
        self.run(setup.KEEP, json.dumps({str(kept): "word"}))
        assert kept.read_text() == "word\n"
        assert kept.stat().st_mode & 0o777 == 0o600
        assert [path.name for path in kept.parent.iterdir()] == ["secret"]
