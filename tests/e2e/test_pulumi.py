"""A cluster under the Pulumi CLI, as production runs it, and under the embedded engine, by turns."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.cluster import ROOT, Cluster, eventually
from tests.pulumi_cli.conftest import cli  # noqa: F401 - a fixture
from tests.pulumi_cli.program import Cli

pytestmark = pytest.mark.e2e


@dataclass
class Managed:
    """A cluster, and the CLI that manages it as well."""

    cluster: Cluster
    cli: Cli
    stack: str

    @property
    def env(self) -> dict[str, str]:
        home = self.cluster.file.parent
        backend = {"PULUMI_BACKEND_URL": f"file://{home}", "PULUMI_CONFIG_PASSPHRASE_FILE": f"{home}/passphrase"}
        return {**self.cluster.env, **backend, **self.cli.env}

    def words(self, command: str, *options: str) -> list[str]:
        sure = [] if command == "preview" else ["--yes"]
        return [command, "--stack", self.stack, "--config-file", str(self.cluster.file), *sure, *options]

    def pulumi(self, command: str, *options: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """`pulumi COMMAND` of the stack."""
        return self.cli.run(*self.words(command, *options), cwd=ROOT, env=self.env, check=check)

    def nothing_to_do(self) -> None:
        """Both engines find the cluster as its file says."""
        self.pulumi("preview", "--expect-no-changes", "--diff")
        found = self.cluster.preview()
        assert set(found["counts"]) == {"same"}, found["steps"]

    def resources(self) -> list[dict[str, Any]]:
        file = self.cluster.file.parent / f".pulumi/stacks/hpc/{self.stack}.json"
        return json.loads(file.read_text())["checkpoint"]["latest"]["resources"]


@pytest.fixture(scope="module")
def managed(clusters: Callable[..., Cluster], cli: Cli) -> Iterator[Managed]:  # noqa: F811 - the fixture
    """A cluster of two machines, from nothing as docs/getting-started/google-cloud.md prints it."""
    cluster = clusters("cli", nodesets={"cpu": {"count": 1}}, login={"on": "controller"})
    cluster.env |= {"PATH": cli.env["PATH"], **{k: v for k, v in cli.env.items() if k.startswith("PULUMI_")}}
    cluster.hpc("preview", "--engine", "pulumi")
    found = Managed(cluster, cli, cluster.name)
    found.pulumi("up")
    yield found
    cluster.hpc("destroy", check=False)


def test_it_goes_from_one_engine_to_the_other(managed: Managed) -> None:
    cluster = managed.cluster
    assert cluster.run("srun", "hostname") == "cli-cpu-0"
    managed.nothing_to_do()
    boots = cluster.boots()
    cluster.edit(lambda config: config["partitions"]["cpu"].update(max_time="01:00:00"))
    cluster.up()
    managed.nothing_to_do()
    cluster.edit(lambda config: config["nodesets"]["cpu"].update(count=2))
    managed.pulumi("up", "--skip-preview")
    managed.nothing_to_do()
    assert cluster.run("srun", "-N2", "true") == ""
    managed.pulumi("refresh")
    managed.nothing_to_do()
    cluster.edit(lambda config: config["nodesets"]["cpu"].update(count=1))
    cluster.up()
    managed.nothing_to_do()
    assert cluster.boots() == boots, "no machine that stays was started anew"


def test_what_a_kill_of_the_cli_leaves_the_embedded_engine_finishes(managed: Managed) -> None:
    cluster = managed.cluster
    cluster.edit(lambda config: config["nodesets"]["cpu"].update(count=2))
    command = [str(managed.cli.path), *managed.words("up", "--skip-preview", "--non-interactive")]
    with subprocess.Popen(command, cwd=ROOT, env=managed.env, stdin=subprocess.DEVNULL) as process:
        eventually(lambda: cluster.runs("cpu-1"), what="the machine's boot")
        process.send_signal(signal.SIGKILL)
    cluster.call("state", "unlock", cluster.name)
    cluster.up()
    managed.nothing_to_do()
    assert cluster.run("srun", "-N2", "true") == ""


def test_a_renamed_stack_is_the_same_cluster(managed: Managed) -> None:
    cluster, boots = managed.cluster, managed.cluster.boots()
    managed.cli.run("stack", "rename", "renamed", "--stack", managed.stack, cwd=ROOT, env=managed.env)
    managed.stack = "renamed"
    managed.pulumi("up", "--skip-preview")
    managed.cli.run("stack", "rename", cluster.name, "--stack", managed.stack, cwd=ROOT, env=managed.env)
    managed.stack = cluster.name
    cluster.up()
    managed.nothing_to_do()
    assert cluster.boots() == boots


def test_deletion_protection_stops_every_way_to_destroy(managed: Managed, nothing_left: Any) -> None:
    cluster = managed.cluster
    cluster.edit(lambda config: config.update(deletion_protection=True))
    managed.pulumi("up", "--skip-preview")
    boots, urns = cluster.boots(), _urns(managed)
    for options in ((), ("--skip-preview",)):
        done = managed.pulumi("destroy", *options, check=False)
        assert done.returncode != 0
        assert "cli-deletion-protection" in done.stdout + done.stderr
        assert _urns(managed) == urns, options
    assert "holds data that is protected" in cluster.hpc("destroy", check=False).stderr
    assert cluster.boots() == boots
    assert cluster.run("srun", "hostname").startswith("cli-cpu-")
    # An edit may still replace what is not data.
    cluster.edit(lambda config: config["nodesets"]["cpu"].update(count=1))
    managed.pulumi("up", "--skip-preview")
    cluster.edit(lambda config: config.update(deletion_protection=False))
    cluster.up()
    managed.nothing_to_do()
    managed.pulumi("destroy")
    assert nothing_left("cli") == []


def _urns(managed: Managed) -> list[str]:
    """Without default providers: the CLI deletes one that no resource needs, and the next `up` has it again."""
    return sorted(row["urn"] for row in managed.resources() if not row["type"].startswith("pulumi:providers:"))
