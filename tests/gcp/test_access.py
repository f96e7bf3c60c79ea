"""Connections to machines without a public address, their error messages, and the links and commands of the outputs."""

import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pulumi
import pytest
from pulumi_command import remote

from cluster.config import ClusterConfig
from cluster.load import parse
from cluster.platforms.gcp import iap
from cluster.roster import machines
from components.gcp.access import Access
from components.gcp.deploy import console_links, ssh_commands
from components.machine import Machine
from tests.contract.recorded import record
from tests.harness import Recording, deploy
from tests.lab.google.gcloud import WORDS

INSTANCE = iap.InstanceName(name="gone", project="my-project", zone="us-central1-a")


def config(name: str = "small", **sections: Any) -> ClusterConfig:
    """A cluster on Google Cloud with one node."""
    cluster = {
        "platform": "gcp", "name": name, "nodesets": {"cpu": {"count": 1}},
        "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}}, **sections,
    }  # fmt: skip
    return parse({"gcp:project": "my-project", "gcp:zone": "us-central1-a", "hpc:cluster": cluster})


PUBLIC = {"login": {"public": True, "count": 2}, "network": {"admin_cidrs": ["203.0.113.7/32"]}}


def machines_with_access(of: ClusterConfig) -> list[Machine]:
    """Return the cluster's machines with their connections. Public login machines have a public address."""
    access = Access(of)
    made = []
    for number, spec in enumerate(machines(of)):
        resource = pulumi.ComponentResource("test:Machine", spec.name)
        node, public = spec.roles == ("node",), of.login.public and "login" in spec.roles
        key = pulumi.Output.from_input("" if node else f"ssh-ed25519 key-of-{spec.name}")
        address, identity = f"172.16.0.{number}", pulumi.Output.from_input(f"id-{number}")
        way = access.machine_access(
            spec, address=address, public=f"198.51.100.{number}" if public else None, instance_id=identity,
            name=spec.name, host_key=key,
        )  # fmt: skip
        made.append(
            Machine(
                spec=spec, address=address, instance_id=identity, boot_id=identity, resource=resource, host_key=key,
                access=way,
            )
        )  # fmt: skip
    return made


def record_connections(
    of: ClusterConfig, *, preview: bool = False
) -> tuple[Recording, Mapping[str, Any], dict[str, Any]]:
    """Run a program with a command on each machine but the nodes. Return its recording, connections and summaries."""

    def program() -> None:
        every = machines_with_access(of)
        for machine in every:
            if machine.spec.roles != ("node",):
                remote.Command(f"on-{machine.spec.name}", connection=machine.connection("secret-key"), create="true")
        pulumi.export("machines", {machine.spec.name: machine.summary for machine in every})

    recording = deploy(program, preview=preview)
    connections = {r.name: r.inputs["connection"] for r in recording.all("command:remote:Command")}
    return recording, connections, recording.outputs["machines"]


class TestWithoutPublicAddress:
    def test_controller_and_login_machines_have_tunnels_of_their_own(self) -> None:
        recording, connections, _ = record_connections(config(login={"count": 2}, monitoring={"machine": {}}))
        tunnels = {instance.name: port for instance, port in recording.tunnels}
        assert sorted(tunnels) == ["small-controller", "small-login-0", "small-login-1", "small-monitoring"]
        assert len(set(tunnels.values())) == len(tunnels)
        assert {name: (c["host"], c["port"]) for name, c in connections.items()} == {
            f"on-{name}": ("127.0.0.1", port) for name, port in tunnels.items()
        }
        assert all(c["hostKey"] == f"ssh-ed25519 key-of-{name[3:]}" for name, c in connections.items())
        assert not any("proxy" in c for c in connections.values())

    def test_a_preview_opens_no_tunnel_and_has_the_same_connection(self) -> None:
        run, connections, _ = record_connections(config())
        preview, shown, _ = record_connections(config(), preview=True)
        assert run.tunnels
        assert preview.tunnels == []
        assert shown == connections

    def test_a_tunnel_that_can_not_be_opened_ends_the_run_with_a_message(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def opened(*_: object) -> None:
            raise pulumi.RunError("small-controller: gcloud is not logged in")

        monkeypatch.setattr(Recording, "opened", opened)
        with pytest.raises(pulumi.RunError, match=r"^small-controller: gcloud is not logged in$"):
            record_connections(config())

    def test_connections_wait_longer_than_a_first_boot(self) -> None:
        _, connections, _ = record_connections(config())
        # The provider waits 0.1 s after the first refusal, half as much again after each, 5 s at most.
        for connection in connections.values():
            pauses = [min(5.0, 0.1 * 1.5**n) for n in range(connection["dialErrorLimit"])]
            assert sum(pauses) > 540
            assert sum(pauses) + len(pauses) * connection["perDialTimeout"] < 1900

    def test_outputs_have_the_connection(self) -> None:
        _, _, rows = record_connections(config())
        assert rows["small-controller"] == {
            "address": "172.16.0.0",
            "roles": ["controller"],
            "host_key": "ssh-ed25519 key-of-small-controller",
            "via": {"iap": {"instance": "small-controller", "project": "my-project", "zone": "us-central1-a"}},
        }
        assert rows["small-cpu-0"]["via"]["jump"]["name"] == "small-controller"

    def test_ports_are_unique_to_the_cluster_and_constant(self) -> None:
        place = "my-project/us-central1-a"
        ports = {(name, index): iap.port(f"{place}/{name}", index) for name in ("small", "other") for index in range(4)}
        assert len(set(ports.values())) == len(ports)
        assert all(20000 <= port < 30000 for port in ports.values())
        # Written down: another one would run every command of every cluster anew.
        assert ports["small", 0] == 27860


class TestPublicLogin:
    def test_other_machines_are_reached_through_the_first_login_machine(self) -> None:
        recording, connections, rows = record_connections(config(**PUBLIC))
        assert recording.tunnels == []
        assert connections["on-small-login-1"]["host"] == "198.51.100.2"
        through = connections["on-small-controller"]
        assert (through["host"], through["hostKey"]) == ("172.16.0.0", "ssh-ed25519 key-of-small-controller")
        proxy = through["proxy"]
        assert (proxy["host"], proxy["user"]) == ("198.51.100.1", "root")
        assert proxy["hostKey"] == "ssh-ed25519 key-of-small-login-0"
        assert proxy["privateKey"] == "secret-key"
        assert rows["small-login-0"]["address"] == "198.51.100.1"
        assert rows["small-login-0"]["internal"] == "172.16.0.1"
        assert "via" not in rows["small-login-0"]
        assert rows["small-controller"]["via"] == {
            "jump": {
                "name": "small-login-0", "address": "198.51.100.1", "host_key": "ssh-ed25519 key-of-small-login-0",
            }
        }  # fmt: skip

    def test_a_controller_that_is_the_login_machine_is_the_jump_host(self) -> None:
        alone = {**PUBLIC, "login": {"on": "controller", "public": True}}
        _, connections, rows = record_connections(config(**alone))
        assert list(connections) == ["on-small-controller"]
        assert connections["on-small-controller"]["host"] == "198.51.100.0"
        assert rows["small-cpu-0"]["via"]["jump"]["name"] == "small-controller"


def test_the_program_logs_in_to_no_node() -> None:
    def program() -> None:
        node = next(m for m in machines_with_access(config()) if m.spec.roles == ("node",))
        with pytest.raises(ValueError, match="does not log in"):
            node.connection("secret-key")
        pulumi.export("tried", True)

    assert deploy(program).outputs == {"tried": True}


def test_local_machines_have_direct_connections() -> None:
    connection = record("dev", "made").recording.one("dev-controller-configure").inputs["connection"]
    assert sorted(connection) == ["dialErrorLimit", "host", "hostKey", "perDialTimeout", "port", "privateKey", "user"]
    assert (connection["host"], connection["port"], connection["dialErrorLimit"]) == ("10.77.0.2", 22, 10)


class TestWords:
    @pytest.mark.parametrize(
        ("mood", "todo"),
        [
            ("login", "Log in with: gcloud auth login"),
            ("denied", "Needed in project my-project: roles/iap.tunnelResourceAccessor"),
            ("missing", "project my-project has no machine gone in us-central1-a"),
            ("booting", "a firewall does not let 35.235.240.0/20 in at tcp:22"),
        ],
    )
    def test_errors_of_gcloud_become_messages_with_what_to_do(self, mood: str, todo: str) -> None:
        words = iap.explain(WORDS[mood], INSTANCE)
        assert todo in words
        assert "\n" not in words
        assert "(gcloud." not in words

    def test_only_a_booting_machine_is_retried(self) -> None:
        assert [mood for mood, words in WORDS.items() if iap.is_booting(words)] == ["booting"]

    def test_an_unknown_error_is_shown_as_it_is(self) -> None:
        assert iap.explain("ERROR: (gcloud.x) A new one.\n", INSTANCE) == "gcloud opened no tunnel: A new one."
        assert iap.explain("", INSTANCE).endswith("it said nothing")


USERS = [{"name": "alice", "uid": 2001, "account": "research"}]


def test_without_public_addresses_commands_use_identity_aware_proxy() -> None:
    commands = ssh_commands(config(users=USERS))
    assert list(commands) == ["small-controller", "small-login-0", "admin_key"]
    words = shlex.split(commands["small-login-0"])
    assert (words[:2], words[-1]) == (["ssh", "-o"], "alice@small-login-0")
    assert words[2].startswith("ProxyCommand=gcloud compute start-iap-tunnel small-login-0 22 --project my-project ")
    assert "--listen-on-stdin" in words[2]
    assert shlex.split(commands["small-controller"])[-3:] == ["-i", "small.key", "root@small-controller"]


def test_a_public_login_machine_is_the_jump_host_in_commands() -> None:
    commands = ssh_commands(config(**PUBLIC), {"small-login-0": "198.51.100.1", "small-login-1": "198.51.100.2"})
    assert commands["small-login-1"] == "ssh USER@198.51.100.2"
    assert shlex.split(commands["small-controller"]) == [
        "ssh", "-o", "ProxyCommand=ssh -i small.key -W %h:%p root@198.51.100.1", "-i", "small.key",
        "root@small-controller",
    ]  # fmt: skip
    assert "PRIVATE KEY" not in "".join(commands.values())


def test_the_command_for_a_controller_that_is_the_login_machine_names_a_user() -> None:
    commands = ssh_commands(config(login={"on": "controller"}))
    assert commands["small-controller"].endswith(" USER@small-controller")


def test_console_links_are_of_the_stacks_project_and_resources() -> None:
    storage = {"lustre": {"kind": "managed"}, "buckets": [{"name": "my-data", "mount": "/gcs"}]}
    pages = console_links(config(storage=storage))
    parts = {what: urlsplit(url) for what, url in pages.items()}
    assert all(part.netloc == "console.cloud.google.com" for part in parts.values())
    assert all(parse_qs(part.query)["project"] == ["my-project"] for part in parts.values())
    assert parts["bucket my-data"].path == "/storage/browser/my-data"
    assert "us-central1-a/instances/small-controller" in parts["controller"].path
    assert unquote(parts["logs"].path).endswith('=~"^small-"')
    assert "lustre" in pages
    assert not {"lustre", "filestore"} & set(console_links(config()))
