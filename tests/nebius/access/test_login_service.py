"""`ssh` to the login pods' Service: the address that the guide's login.sh finds, and a host key read from the pod."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.platforms.nebius.kubectl import login_address, why_no_login_address
from tests.cli.conftest import FAKE_SSH, OUTPUTS, patch_outputs, recorded
from tests.nebius.access.conftest import Hpc, calls

Made = Callable[[str], Path]
INGRESS = {"ingress": [{"ip": "203.0.113.9"}]}


def service(
    kind: str = "LoadBalancer", balancer: Any = INGRESS, ports: Any = ({"port": 22, "nodePort": 30022},)
) -> dict:
    return {
        "metadata": {"name": "soperator-login-svc"},
        "spec": {"type": kind, "ports": list(ports)},
        "status": {"loadBalancer": balancer},
    }


def node(*addresses: tuple[str, str]) -> dict[str, Any]:
    return {"status": {"addresses": [{"type": kind, "address": value} for kind, value in addresses]}}


@pytest.mark.parametrize(
    ("found", "nodes", "expected"),
    [
        (service(balancer={"ingress": [{"hostname": "lb.example"}]}), [], ("lb.example", 22)),
        (service(balancer={"ingress": [{}, {"ip": "203.0.113.10"}]}), [], ("203.0.113.10", 22)),
        (service(balancer={}), [node(("ExternalIP", "203.0.113.11"))], None),
        (service(balancer={"ingress": None}), [], None),
        (
            service("NodePort"),
            [node(("InternalIP", "10.0.0.1")), node(("InternalIP", "10.0.0.2"), ("ExternalIP", "203.0.113.11"))],
            ("203.0.113.11", 30022),
        ),
        (
            service("NodePort", ports=[{"port": 22, "nodePort": 31000}]),
            [node(("ExternalIP", "1.2.3.4"))],
            ("1.2.3.4", 31000),
        ),
        (service("NodePort"), [node(("InternalIP", "10.0.0.1"))], None),
    ],
)
def test_the_address_follows_the_type_of_the_service(found: dict, nodes: list, expected: Any) -> None:
    assert login_address(found, nodes) == expected


def test_a_service_without_an_address_shows_its_last_events() -> None:
    events = [
        {
            "reason": "SyncLoadBalancerFailed",
            "message": f"try {number}",
            "lastTimestamp": f"2026-11-22T05:0{number}:00Z",
        }
        for number in (3, 1, 2, 4)
    ]
    told = why_no_login_address(service(balancer={}), events)
    assert told.startswith("service soperator-login-svc has no address yet")
    assert told.endswith("try 2; SyncLoadBalancerFailed: try 3; SyncLoadBalancerFailed: try 4.")
    assert "ExternalIP" in why_no_login_address(service("NodePort"), [])


def answers(found: dict[str, Any], *, nodes: Any = (), events: Any = ()) -> str:
    """A kubectl that knows a Service, nodes and the pod's host key."""
    lists = {
        "service": found, "nodes": {"items": list(nodes)}, "events": {"items": list(events)},
    }  # fmt: skip
    cases = " ".join(f"'get {kind}') echo {shlex.quote(json.dumps(value))};;" for kind, value in lists.items())
    return f'case "$1 $2" in {cases} "exec login-0") echo "ssh-ed25519 AAAhost root@login-0";; *) exit 1;; esac'


@pytest.fixture
def log(tool: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an `ssh` that ends with exit code 7 was given."""
    path = tmp_path / "ssh.log"
    tool("ssh", FAKE_SSH.replace('"$LOG"', str(path)))
    return path


@pytest.mark.usefixtures("up")
class TestSsh:
    def test_it_is_root_with_the_stacks_key_at_the_services_address(self, hpc: Hpc, kubectl: Made, log: Path) -> None:
        asked = kubectl(answers(service()))
        assert hpc("ssh", "nebius").code == 7
        options = set(recorded(log, "option"))
        assert {"HostName 203.0.113.9", "Port 22", "User root", "StrictHostKeyChecking yes"} <= options
        assert recorded(log, "known") == ["login-0 ssh-ed25519 AAAhost"]
        assert "secret" in recorded(log, "key")
        assert calls(asked)[0][:5] == ["get", "service", "soperator-login-svc", "--namespace", "soperator"]
        # Found anew each time: the Service's address may change.
        kubectl(answers(service(balancer={"ingress": [{"ip": "203.0.113.10"}]})))
        hpc("ssh", "nebius")
        assert "HostName 203.0.113.10" in recorded(log, "option")

    def test_a_node_port_is_at_a_login_node(self, hpc: Hpc, kubectl: Made, log: Path) -> None:
        asked = kubectl(answers(service("NodePort"), nodes=[node(("ExternalIP", "203.0.113.11"))]))
        assert hpc("ssh", "nebius", "--", "hostname").code == 7
        assert {"HostName 203.0.113.11", "Port 30022"} <= set(recorded(log, "option"))
        assert recorded(log, "word")[-2:] == ["login-0", "hostname"]
        assert "--selector=slurm.nebius.ai/nodeset=login" in calls(asked)[1]

    def test_u_is_the_option_as(self, hpc: Hpc, kubectl: Made, log: Path) -> None:
        kubectl(answers(service()))
        hpc("ssh", "nebius", "-u", "bob", "--", "id")
        assert recorded(log, "word")[-1] == "exec runuser -l bob -c id"

    def test_a_key_of_ones_own_logs_in_as_its_user(
        self, hpc: Hpc, kubectl: Made, log: Path, tmp_path: Path, up: dict
    ) -> None:
        del up["admin_key"]
        kubectl(answers(service()))
        key = tmp_path / "my key"
        key.write_text("mine\n")
        # A user whom the jail has, and the stack file does not.
        assert hpc("ssh", "nebius", "-u", "carol", "-k", str(key), "--", "id", "-u").code == 7
        options = recorded(log, "option")
        assert "User carol" in options
        assert [option for option in options if option.startswith("IdentityFile")] == [f'IdentityFile "{key}"']
        assert options.index("User carol") < options.index("User root")
        assert options.index("BatchMode no") < options.index("BatchMode yes")
        assert recorded(log, "word")[-1] == "id -u"

    def test_a_key_that_is_not_there_is_named(self, hpc: Hpc, kubectl: Made, tmp_path: Path) -> None:
        kubectl(answers(service()))
        ended = hpc("ssh", "nebius", "-k", str(tmp_path / "nothing"))
        assert (ended.code, ended.err) == (1, f"error: {tmp_path}/nothing: there is no private key that can be read.\n")

    def test_only_login_pods_have_an_ssh_server(self, hpc: Hpc, kubectl: Made, tmp_path: Path) -> None:
        kubectl(answers(service()))
        (tmp_path / "key").write_text("mine\n")
        ended = hpc("ssh", "nebius", "worker-0", "-k", str(tmp_path / "key"))
        assert ended.err == "error: worker-0 is reached by kubectl, not by ssh, so no key lets anybody in there.\n"

    def test_a_named_login_pod_is_reached_with_kubectl(self, hpc: Hpc, kubectl: Made) -> None:
        asked = kubectl("exit 0")
        assert hpc("ssh", "nebius", "login-1").code == 0
        assert [call[:2] for call in calls(asked)] == [["exec", "login-1"]]

    def test_without_an_address_it_prints_the_reason_and_what_works(self, hpc: Hpc, kubectl: Made) -> None:
        kubectl(answers(service(balancer={}), events=[{"reason": "Denied", "message": "no public addresses"}]))
        ended = hpc("ssh", "nebius")
        assert ended.code == 1
        assert "Its last events: Denied: no public addresses." in ended.err
        assert "./hpc ssh STACK login-0 goes in by kubectl exec." in ended.err

    def test_without_a_service_the_reason_is_kubectls(self, hpc: Hpc, kubectl: Made) -> None:
        kubectl("echo 'Error from server (Forbidden): services is forbidden' >&2; exit 1")
        ended = hpc("ssh", "nebius")
        assert ended.err == (
            "error: service soperator-login-svc: Error from server (Forbidden): services is forbidden\n"
        )


@pytest.mark.usefixtures("up")
class TestSshConfig:
    def test_users_get_the_services_address(self, hpc: Hpc, kubectl: Made, tmp_path: Path) -> None:
        kubectl(answers(service()))
        ended = hpc("ssh-config", "nebius", "--print")
        assert ended.code == 0, ended.err
        assert "Host nebius login-0\n  HostName 203.0.113.9\n  Port 22\n  HostKeyAlias login-0" in ended.out
        assert "User alice" in ended.out
        assert "worker" not in ended.out

    def test_the_admin_key_is_roots(self, hpc: Hpc, kubectl: Made, tmp_path: Path) -> None:
        kubectl(answers(service()))
        ended = hpc("ssh-config", "nebius", "--admin-key")
        assert ended.code == 0, ended.err
        text = Path(ended.out.strip()).read_text()
        assert "User root" in text
        assert "IdentityFile" in text


def test_a_key_of_ones_own_is_for_machines_too(
    hpc: Hpc, root: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On platforms whose targets are reached by ssh: the jump host, if any, keeps the stack's key."""
    patch_outputs(monkeypatch, OUTPUTS)
    key = tmp_path / "key"
    key.write_text("mine\n")
    assert hpc("ssh", "dev", "-u", "dave", "-k", str(key), "--", "id").code == 7
    options = recorded(log, "option")
    assert [option for option in options if option.startswith("IdentityFile")] == [f'IdentityFile "{key}"']
    assert "User dave" in options
    assert recorded(log, "word")[-2:] == ["dev-login-0", "id"]
