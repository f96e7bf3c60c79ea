"""What machines are told is what the configuration says, and nothing secret is told where it can be seen."""

import json
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from slurm import slurmctld

from cluster.config import ClusterConfig
from cluster.cost.estimate import estimate
from cluster.load import parse
from cluster.roster import machines
from cluster.slurm.files import render
from components.slurm import payload
from tests import programs
from tests.clouds import google, unchecked


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
            "qos": [{"name": "urgent", "max_wall": "3"}],
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
    def test_probe_jobs_are_submitted_by_an_allowed_user(self, limits, who):
        (probe,) = payload.probes(config(**limits))
        assert (probe["user"], probe["account"], probe["qos"]) == who
        assert probe["minutes"] == 1

    @pytest.mark.parametrize(
        ("limits", "minutes"),
        [({}, 12), ({"max_time": "5"}, 5), ({"allow_qos": ["urgent"]}, 3), ({"max_time": "0:30"}, 1)],
    )
    def test_the_time_limit_of_a_probe_job_includes_prologs_within_the_partitions_limit(self, limits, minutes):
        given = config(scripts=[{"name": "slow", "text": "#!/bin/sh\nsleep 150\n"}], **limits)
        (probe,) = payload.probes(given)
        assert (probe["minutes"], probe["rxdm"]) == (minutes, False)


class TestConfigure:
    def test_the_controllers_files_are_sent_as_lines(self):
        told = config()
        controller = machines(told)[0]
        text = payload.configure(told, controller, stack="dev", mounts=[], addresses={}, controller=controller.name)
        files = {name: "\n".join(lines) + "\n" for name, lines in json.loads(text)["files"].items()}
        assert slurmctld.PASSWORD_MARK in files.pop("slurmdbd.conf")
        assert files == render(told, {})

    def test_qos_of_partitions_are_listed(self):
        told = config(qos="urgent", allow_qos=["normal", "urgent"])
        controller = machines(told)[0]
        text = payload.configure(told, controller, stack="dev", mounts=[], addresses={}, controller=controller.name)
        assert json.loads(text)["qos"] == ["urgent"]

    def test_other_machines_get_no_files(self):
        told = config()
        text = payload.configure(
            told, machines(told)[1], stack="dev", mounts=[], addresses={}, controller="dev-controller"
        )
        assert list(json.loads(text)["files"]) == ["slurm.conf"]


class TestSetup:
    """The two commands that bring things to a machine, run by a real shell."""

    @staticmethod
    def run(command: str, stdin: str) -> None:
        line = command.replace("python3", sys.executable, 1)
        subprocess.run(["/bin/sh", "-c", f"umask 000; {line}"], input=stdin, text=True, check=True)

    def unpack(self, folder: Path, files: str) -> None:
        self.run(payload.UNPACK.replace(payload.SETUP, str(folder)), files)

    @staticmethod
    def texts(folder: Path) -> dict[str, str]:
        return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}

    def test_the_set_up_is_unpacked_byte_for_byte(self, tmp_path: Path):
        for _ in range(2):
            self.unpack(tmp_path, payload.packed_setup())
            assert self.texts(tmp_path) == payload.setup_files()
        assert "system/host.py" in payload.setup_files()

    def test_files_of_another_version_are_removed(self, tmp_path: Path):
        """Its modules may have the names of our folders, and would be imported in place of ours."""
        for name in ("system.py", "jobs.py", "accounting.py", "__pycache__/system.pyc", "gone/deeper/x.py", ".half.py"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("raise SystemExit(3)\n")
        (tmp_path / "empty").mkdir()
        self.unpack(tmp_path, payload.packed_setup())
        assert self.texts(tmp_path) == payload.setup_files()
        assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {
            name.partition("/")[0] for name in payload.setup_files() if "/" in name
        }
        done = programs.run([sys.executable, str(tmp_path), "help"])
        assert (done.returncode, "python3 FOLDER configure" in done.stderr) == (2, True)

    def test_a_machine_and_the_stack_compute_the_same_version(self, tmp_path: Path):
        self.unpack(tmp_path, payload.packed_setup())
        program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import collect; print(collect._setup())"
        done = programs.run([sys.executable, "-c", program], check=True)
        assert done.stdout.strip() == payload.setup_version()

    def test_a_secret_is_readable_by_its_owner_only_with_any_umask(self, tmp_path: Path):
        kept = tmp_path / "new" / "secret"
        self.run(payload.STORE_SECRETS, json.dumps({str(kept): "word"}))
        assert kept.read_text() == "word\n"
        assert kept.stat().st_mode & 0o777 == 0o600
        assert [path.name for path in kept.parent.iterdir()] == ["secret"]


class TestReconcile:
    """The controller's loop gets the names of nodes, the templates in their order, and the times that Slurm has."""

    CLOUD: ClassVar = {"project": "p", "zone": "z", "region": "r", "cluster": "cloud", "endpoint": "", "token_file": ""}
    TEMPLATES: ClassVar = [{"way": "spot", "template": "link-1"}, {"way": "on_demand", "template": "link-2"}]

    def told(self, **settings: object) -> dict[str, object]:
        gpu = {"count": {"min": 1, "max": 3}, "idle": "5m", "capacity": ["spot", "on_demand"]}
        of = unchecked(nodesets={"gpu": gpu, "cpu": {"count": 2}}, slurm={"reconcile": settings})
        elastic = {"cloud": self.CLOUD, "templates": {"gpu": self.TEMPLATES}}
        controller = machines(of)[0]
        given = {"stack": "dev", "mounts": [], "addresses": {}, "controller": controller.name}
        return json.loads(payload.configure(of, controller, elastic=elastic, **given))["reconcile"]

    def test_reconcile_has_elastic_nodesets_with_their_static_nodes(self):
        assert self.told() == {
            "mode": "act",
            "actions_per_hour": 120,
            "max_unavailable": 0.25,
            "maintain": False,
            "cloud": self.CLOUD,
            "nodesets": {
                "gpu": {
                    "nodes": ["cloud-gpu-1", "cloud-gpu-2"],
                    "static": ["cloud-gpu-0"],
                    "templates": self.TEMPLATES,
                    "idle_seconds": 300,
                    "boot_seconds": 900,
                }
            },
            "spares": {},
        }

    def test_reconcile_has_the_stacks_settings(self):
        told = self.told(mode="advise", actions_per_hour=5, max_unavailable=0.5)
        assert (told["mode"], told["actions_per_hour"], told["max_unavailable"]) == ("advise", 5, 0.5)

    def test_spare_nodes_are_reconciled_without_a_cloud(self):
        of = unchecked(nodesets={"cpu": {"count": 3, "spare": 1}})
        text = payload.configure(
            of, machines(of)[0], stack="dev", mounts=[], addresses={}, controller="cloud-controller"
        )
        told = json.loads(text)["reconcile"]
        assert (told["nodesets"], set(told["cloud"].values())) == ({}, {""})
        assert told["spares"] == {"cpu": {"nodes": ["cloud-cpu-0", "cloud-cpu-1", "cloud-cpu-2"], "count": 1}}

    def test_a_budget_is_reconciled_at_the_prices_of_the_stack(self):
        of = google(
            nodesets={"cpu": {"count": {"min": 1, "max": 4}, "machine_type": "n2-standard-8"}},
            budget={"month": 900, "stop": "elastic"},
        )
        given = {"stack": "dev", "mounts": [], "addresses": {}, "controller": "cloud-controller"}
        told = json.loads(payload.configure(of, machines(of)[0], **given))["reconcile"]["budget"]
        found = estimate(of)
        assert found.always > 0.5
        assert told == {
            "month": 900.0, "currency": "USD", "stop": True, "hour": found.always,
            "nodes": {"cpu": found.node_hour("cpu", elastic=True)}, "unpriced": [],
        }  # fmt: skip

    def test_without_elastic_nodes_there_is_no_reconcile(self):
        controller = machines(config())[0]
        text = payload.configure(config(), controller, stack="dev", mounts=[], addresses={}, controller=controller.name)
        assert "reconcile" not in json.loads(text)
