"""Bridges have names of their own, take addresses that nobody uses, and their firewall rules come and go with them."""

import ipaddress
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.local.host import bridge, network
from components.local.host.bridge import bridge_name, interface_name, machine_id
from components.local.host.paths import DEFAULT_ROOT, HostError

ADDRESSES = [
    {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
    {"ifname": "eth0", "addr_info": [{"family": "inet", "local": "192.168.7.20", "prefixlen": 24}]},
    {"ifname": "hpc-dev", "addr_info": [{"family": "inet", "local": "10.77.0.1", "prefixlen": 20}]},
]
ROUTES = [
    {"dst": "default", "gateway": "192.168.7.1", "dev": "eth0"},
    {"dst": "172.16.0.0/12", "dev": "tun0"},
    {"dst": "10.77.0.0/20", "dev": "hpc-dev"},
    {"type": "blackhole", "dst": "10.9.0.0/16"},
]


@pytest.fixture(autouse=True)
def _host(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(what: str) -> list[dict[str, Any]]:
        return {"address": ADDRESSES, "route": ROUTES}[what]

    monkeypatch.setattr(bridge, "_ip", answer)


@pytest.mark.parametrize(
    ("cidr", "holder"),
    [
        ("192.168.0.0/16", "interface eth0 (192.168.7.20/24)"),
        ("172.20.0.0/20", "the route to 172.16.0.0/12 over tun0"),
        ("10.9.3.0/24", "the route to 10.9.0.0/16 (blackhole)"),
        ("10.77.8.0/24", "interface hpc-dev (10.77.0.1/20)"),
    ],
)
def test_the_user_of_addresses_is_named(cidr: str, holder: str) -> None:
    assert bridge.taken_by(ipaddress.IPv4Network(cidr), but="hpc-other") == holder


def test_the_stacks_bridge_and_the_default_route_are_no_conflict() -> None:
    assert bridge.taken_by(ipaddress.IPv4Network("10.77.0.0/20"), but="hpc-dev") is None
    assert bridge.taken_by(ipaddress.IPv4Network("10.78.0.0/20"), but="hpc-other") is None


class TestOtherStacks:
    """Their bridges may be gone (the host was restarted); their record still holds their addresses."""

    def _network(self, root: Path, **changes: Any) -> network.HostNetwork:
        made = network.HostNetwork(
            root=root, hosts={}, stack="mine", owner="hpc/mine", cidr="10.80.0.0/20", gateway="10.80.0.1"
        )
        return replace(made, **changes)

    def _record(self, root: Path, stack: str, owner: str) -> None:
        folder = root / "stacks" / stack
        folder.mkdir(parents=True)
        (folder / "network.json").write_text(json.dumps({"owner": owner, "cidr": "10.80.0.0/20"}))

    def test_addresses_of_another_stack_are_refused_with_its_name(self, tmp_path: Path) -> None:
        self._record(tmp_path, "theirs", "hpc/prod")
        with pytest.raises(HostError) as caught:
            network.ensure(self._network(tmp_path))
        assert str(caught.value).startswith(
            "network.cidr: 10.80.0.0/20 is in use on this host by the local cluster theirs (10.80.0.0/20, made by "
            "hpc/prod); choose another"
        )

    def test_a_cluster_name_in_use_is_refused(self, tmp_path: Path) -> None:
        self._record(tmp_path, "mine", "hpc/first")
        with pytest.raises(HostError, match="'mine' is already up on this host, made by hpc/first; give this cluster"):
            network.ensure(self._network(tmp_path))


class TestFirewall:
    """With a container engine on the host, nodes would be up and deaf to each other."""

    @pytest.fixture
    def rules(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
        rules: list[list[str]] = []

        def run(command: list[str]) -> str:
            verb, rule = command[2], command[4:]
            if verb == "-I":
                rules.append(rule)
            elif rule not in rules:
                msg = "no such rule"
                raise HostError(msg)
            elif verb == "-D":
                rules.remove(rule)
            return ""

        (tmp_path / "shown").write_text("1\n")
        monkeypatch.setattr(bridge, "_BRIDGE_NF", tmp_path / "shown")
        monkeypatch.setattr(bridge, "run", run)
        monkeypatch.setattr(bridge.shutil, "which", lambda _: "/usr/sbin/iptables")
        return rules

    def test_the_rule_is_added_once_and_removed(self, rules: list[list[str]]) -> None:
        bridge.allow_bridged_traffic("hpc-dev")
        bridge.allow_bridged_traffic("hpc-dev")
        bridge.allow_bridged_traffic("hpc-b")
        assert [rule[:4] for rule in rules] == [["-i", "hpc-dev", "-o", "hpc-dev"], ["-i", "hpc-b", "-o", "hpc-b"]]
        bridge.remove_bridged_rule("hpc-dev")
        bridge.remove_bridged_rule("hpc-dev")
        assert len(rules) == 1

    def test_no_rule_is_added_if_bridged_packets_are_not_filtered(self, rules: list[list[str]], tmp_path: Path) -> None:
        (tmp_path / "shown").write_text("0\n")
        bridge.allow_bridged_traffic("hpc-dev")
        bridge.remove_bridged_rule("hpc-dev")
        assert rules == []


labels = st.from_regex(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True)
roots = st.sampled_from([DEFAULT_ROOT, Path("/srv/a"), Path("/srv/b")])


@given(roots, labels)
def test_bridge_names_are_valid_interface_names(root: Path, stack: str) -> None:
    name = bridge_name(root, stack)
    assert len(name) <= 15
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")


@given(st.lists(st.tuples(roots, labels), unique=True, min_size=2, max_size=30))
def test_no_two_stacks_share_a_bridge(stacks: list[tuple[Path, str]]) -> None:
    assert len({bridge_name(*stack) for stack in stacks}) == len(stacks)


@given(st.lists(st.tuples(roots, labels, labels), unique=True, min_size=2, max_size=30))
def test_no_two_machines_share_an_interface(machines: list[tuple[Path, str, str]]) -> None:
    names = {interface_name(*machine) for machine in machines}
    assert len(names) == len(machines)
    assert all(len(name) == 15 for name in names)


def test_a_short_stack_name_is_part_of_the_bridges_name() -> None:
    assert bridge_name(DEFAULT_ROOT, "dev") == "hpc-dev"


def test_digests_separate_stack_and_machine_names() -> None:
    assert machine_id(DEFAULT_ROOT, "a-b", "c") != machine_id(DEFAULT_ROOT, "a", "b-c")
