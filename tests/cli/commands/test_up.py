"""`preview`, `up` and `destroy`: refused stack files, the confirmation of a destroy, and previews without a cloud."""

import gc
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pulumi
import pytest
import yaml

from cli.operation import localhost
from cli.stack import project, stack_config, stackfile
from cluster.platforms.gcp.names import place
from components.config import load
from components.local.host.paths import MachinePaths
from tests.cli.conftest import CLOUD, Hpc, write_state
from tests.clouds import settings
from tests.cluster.stacks import cases, local

ROOT = Path(__file__).parents[3]


WRONG = """\
config:
  hpc:cluster:
    platform: local
    name: dev
    nodesets:
      cpu:
        count: 0
        features:
          [a, 7]
        cuont: 1
    partitions: {cpu: {}}
  hpc:users: []
users: []
"""


class TestStackFiles:
    def test_all_errors_are_reported_together_with_the_files_name(self, hpc: Hpc, root: Path) -> None:
        file = root / "Pulumi.dev.yaml"
        file.write_text(file.read_text().replace("count: 1", "count: 0").replace("name: dev", "name: UPPER"))
        ended = hpc("preview", "dev")
        assert ended.err.startswith(f"error: {file}: 2 errors in the stack configuration")
        for command in ("preview", "up"):
            document = json.loads(hpc(command, "dev", "--json").out)
            assert (document["kind"], document["ok"]) == (command, False)
            assert [(error["where"], error["given"]) for error in document["errors"]] == [
                ("hpc:cluster.name", "UPPER"),
                ("hpc:cluster.nodesets.cpu.count", "0"),
            ]

    @pytest.mark.parametrize(
        ("line", "place"),
        {
            "a value": (7, "hpc:cluster.nodesets.cpu.count"),
            "an entry of a list": (9, "hpc:cluster.nodesets.cpu.features[1]"),
            "an unknown key": (10, "hpc:cluster.nodesets.cpu.cuont"),
            "a key that is missing": (11, "hpc:cluster.partitions.cpu.nodesets"),
            "a key beside the cluster": (12, "hpc:users"),
            "a key beside `config:`": (13, "users"),
        }.values(),
    )
    def test_an_error_has_the_line_of_its_place(self, hpc: Hpc, root: Path, line: int, place: str) -> None:
        (root / "Pulumi.dev.yaml").write_text(WRONG)
        assert f"\n{place}, line {line}\n" in hpc("up", "dev").error
        document = json.loads(hpc("up", "dev", "--json").out)
        assert {error["where"]: error["line"] for error in document["errors"]}[place] == line

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("config: [", "not valid YAML"),
            ("- a\n- b\n", "a mapping is expected"),
            ("config: 3\n", "a mapping is expected"),
            ("", "nothing"),
        ],
    )
    def test_an_invalid_file_is_refused(self, hpc: Hpc, root: Path, text: str, message: str) -> None:
        file = root / "Pulumi.dev.yaml"
        file.write_text(text)
        ended = hpc("up", "dev")
        assert ended.error.startswith(f"error: {file}: ")
        assert message in ended.err

    @pytest.mark.parametrize("key", ["monitoring", "users", "hpc:users"])
    def test_a_section_in_the_wrong_column_is_refused(self, hpc: Hpc, root: Path, key: str) -> None:
        """In the first column, and beside hpc:cluster."""
        file = root / "Pulumi.dev.yaml"
        text = file.read_text()
        todo = "to do:   indent it, so that it is below `hpc:cluster:`, as `platform:` is"
        file.write_text(f"{text}\n{key}: []\n")
        assert todo in hpc("preview", "dev").err
        file.write_text(text.replace("config:\n", f"config:\n  {key}: []\n"))
        assert todo in hpc("preview", "dev").err

    def test_pulumi_up_refuses_a_section_beside_the_cluster(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The CLI passes the program all settings, and which of them are secret, in the environment."""
        cluster = json.dumps(local())
        config = {"hpc:cluster": cluster, "hpc:users": "[]", "hpc:token": "hidden", "hpc:slackUrl": "https://x"}
        monkeypatch.setattr("pulumi.Config.get_object", lambda *_: local())
        monkeypatch.setenv("PULUMI_CONFIG", json.dumps(config))
        monkeypatch.setenv("PULUMI_CONFIG_SECRET_KEYS", '["hpc:token", "hpc:slackUrl"]')
        with pytest.raises(pulumi.RunError, match="2 errors") as caught:
            load()
        assert "hpc:users" in str(caught.value)
        assert "hidden" not in str(caught.value)

    def test_a_missing_file_is_named(self, hpc: Hpc) -> None:
        ended = hpc("preview", "dev", "--config-file", "nowhere.yaml")
        assert "nowhere.yaml: no such file. Correct --config-file." in ended.err

    def test_a_stack_file_that_is_a_folder_is_said_in_words(self, hpc: Hpc, root: Path):
        (root / "Pulumi.folder.yaml").mkdir()
        ended = hpc("preview", "folder")
        assert ended.code == 1
        assert "Pulumi.folder.yaml: can't be read: Is a directory." in ended.err

    @pytest.mark.parametrize(
        ("platform", "more", "protected"),
        [
            ("local", "", False),
            ("local", "    deletion_protection: true\n", True),
            ("gcp", "", True),
            ("gcp", "    deletion_protection: false\n", True),
        ],
    )
    def test_only_local_stacks_need_no_confirmation(
        self, root: Path, platform: str, more: str, protected: object
    ) -> None:
        (root / "Pulumi.x.yaml").write_text(f"config:\n  hpc:cluster:\n    platform: {platform}\n{more}")
        assert stack_config.protected(stackfile.read(root, "x")) is protected


class TestDestroy:
    def test_a_protected_stack_and_one_without_its_file_need_yes_without_a_terminal(self, hpc: Hpc, root: Path) -> None:
        write_state("dev")
        with (root / "Pulumi.dev.yaml").open("a") as file:
            file.write("    deletion_protection: true\n")
        message = "error: stack dev has deletion_protection: destroying it without a terminal needs --yes.\n"
        assert hpc("destroy", "dev").err == message
        (root / "Pulumi.dev.yaml").unlink()
        assert hpc("destroy", "dev").error.startswith("error: stack dev has lost its file Pulumi.dev.yaml")

    def test_a_stack_that_was_never_up_has_nothing_to_destroy(self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(localhost, "prepare", lambda: None)
        assert hpc("destroy", "dev").err == "Nothing to do: stack dev has not been brought up.\n"
        document = json.loads(hpc("destroy", "dev", "--json").out)
        assert (document["stack"], document["kind"], document["ok"], document["steps"]) == ("dev", "destroy", True, [])


class TestConsoles:
    """What is printed of a machine that does not answer SSH."""

    def test_a_machine_that_does_not_run_is_shown_with_the_end_of_its_console(self, tmp_path: Path) -> None:
        (tmp_path / "console.log").write_text("Kernel panic\n\x1b[31mred\x1b[0m\n")
        assert localhost.describe_machine(MachinePaths(tmp_path), "dev") == [
            f"Machine {tmp_path.name} does not run; the last lines of its console:",
            "  Kernel panic",
            "  red",
            "Restart it, with its disk as it is: ./hpc up dev",
        ]

    def test_a_running_machine_has_a_command_to_end_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        process = SimpleNamespace(children=lambda: [os.getpid()])
        monkeypatch.setattr(localhost, "running", lambda _paths: process)
        paths = MachinePaths(tmp_path)
        assert localhost.describe_machine(paths, "dev") == [
            f"Machine {tmp_path.name} runs, but does not answer SSH; its console is empty ({paths.console})",
            f"End it and restart it, with its disk as it is: kill -KILL {os.getpid()}; ./hpc up dev",
        ]


@pytest.mark.parametrize("command", ["preview", "up"])
def test_a_stack_that_google_cloud_would_refuse_is_refused_before_the_first_step(
    hpc: Hpc, root: Path, command: str
) -> None:
    changes = cases("google")["a reservation with placement"]
    (root / "Pulumi.cloud.yaml").write_text(yaml.safe_dump({"config": settings(**changes)}, sort_keys=False))
    ended = hpc(command, "cloud")
    assert "1 error in the stack configuration" in ended.error
    assert "nodesets.a3.capacity, line " in ended.err
    assert "allowed: placement within on_demand or spot" in ended.err
    assert not list((root.parent / "home").rglob("cloud.json*"))


def test_the_program_refuses_a_wrong_stack_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Pulumi CLI runs the program without a check of the file."""
    stack: dict[str, str] = {}
    monkeypatch.setattr("pulumi.config.get_config", stack.get)
    wrong = settings(storage={"lustre": {"kind": "exascaler", "fsname": "exacloud9"}})
    stack.update({"hpc:cluster": json.dumps(wrong["hpc:cluster"]), "gcp:project": wrong["gcp:project"]})
    with pytest.raises(pulumi.RunError, match=r"2 errors(?s:.)*1 to 8 letters(?s:.)*gcp:zone us-central1-a"):
        load()
    stack.update({"hpc:cluster": json.dumps(settings()["hpc:cluster"]), "gcp:zone": "europe-west4-a"})
    assert place(load()).region == "europe-west4"


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"a": ' * 100_000 + "1" + "}" * 100_000, "dev", "{"])
def test_the_program_refuses_a_cluster_that_is_no_mapping(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("pulumi.config.get_config", {"hpc:cluster": text}.get)
    with pytest.raises(pulumi.RunError, match="the cluster as a mapping") as caught:
        load()
    assert len(str(caught.value)) < 1000


class TestCloudPreview:
    """Without credentials, a cloud, a cloud's tools and the Pulumi CLI."""

    @pytest.fixture(autouse=True)
    def isolated(self, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        def refused(*_: object, **__: object) -> None:
            raise AssertionError("a preview connected to something")

        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.setattr(project, "ROOT", ROOT)
        for name in os.environ:
            if name.startswith(("GOOGLE_", "CLOUDSDK_", "NEBIUS_")):
                monkeypatch.delenv(name)
        monkeypatch.setattr("socket.create_connection", refused)
        # An import of these raises, also if other tests of this process have imported them.
        monkeypatch.setitem(sys.modules, "nebius.sdk", None)
        monkeypatch.setitem(sys.modules, "googleapiclient", None)

    @pytest.mark.slow
    def test_a_preview_on_google_cloud_has_all_resources_and_what_costs_money(self, hpc: Hpc, tmp_path: Path) -> None:
        file = tmp_path / "Pulumi.small.yaml"
        file.write_text(CLOUD + "    login: {public: true}\n    network: {admin_cidrs: [203.0.113.7/32]}\n")
        planned = json.loads(hpc("preview", "small", "--config-file", str(file), "--json").out)
        assert planned["ok"]
        types = {row["type"] for row in planned["steps"]}
        assert {"gcp:compute/instance:Instance", "command:remote:Command"} <= types
        assert any("nodeset" in line and "CPUs" in line for line in planned["asks"])
        assert planned["price"]["always"]["hour"] > 0
        file.write_text(CLOUD)
        shown = hpc("preview", "small", "--config-file", str(file)).out
        _, whole, asked = shown.partition("What the stack asks Google Cloud for, whole")
        assert whole
        assert "GB of pd-" in asked
        assert "system network" in asked
        assert "nodeset " in asked.partition("What it costs")[2]

    def test_a_preview_on_nebius_is_complete_and_as_short_for_64_nodes_as_for_2(self, hpc: Hpc, tmp_path: Path) -> None:
        printed, cpu_seconds = self.preview_nebius(hpc, tmp_path, 2)
        assert cpu_seconds < 4
        for text in (
            "pulumi-python:dynamic/nebius:Cluster",
            "worker-worker-0",
            "jail-submount-mlperf-sd",
            "soperator-gpu-fabric-3",
            "kubernetes:helm.sh/v3:Release",
            "What the stack asks Nebius for, whole",
            "16 GPUs",
        ):
            assert text in printed
        lines = self.preview_nebius(hpc, tmp_path, 64)[0].splitlines()
        assert len(printed.splitlines()) == len(lines)
        assert any("512 GPUs" in line for line in lines)
        # A finding is one line, however long its text is.
        assert max(len(line) for line in lines if "hpc:cluster." not in line) < 200

    @staticmethod
    def preview_nebius(hpc: Hpc, path: Path, count: int) -> tuple[str, float]:
        """Return the preview with that many nodes, and its CPU seconds."""
        file = path / f"Pulumi.nodes{count}.yaml"
        text = (ROOT / "Pulumi.nebius.yaml").read_text()
        assert "        count: 2\n" in text
        file.write_text(text.replace("        count: 2\n", f"        count: {count}\n"))
        # Objects of other tests must not be collected meanwhile.
        gc.disable()
        try:
            before = time.process_time()
            ended = hpc("preview", f"nodes{count}", "--config-file", str(file))
            cpu_seconds = time.process_time() - before
        finally:
            gc.enable()
        assert ended.code == 0, ended.err
        return ended.out, cpu_seconds
