"""A cluster's network never takes addresses that this host, or another cluster on it, already uses."""

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest

from components.local.host import bridge, network
from components.local.host.paths import HostError

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
def test_who_has_them_is_said(cidr: str, holder: str) -> None:
    assert bridge.taken_by(ipaddress.IPv4Network(cidr), but="hpc-other") == holder


def test_our_own_bridge_and_the_default_route_are_no_conflict() -> None:
    assert bridge.taken_by(ipaddress.IPv4Network("10.77.0.0/20"), but="hpc-dev") is None
    assert bridge.taken_by(ipaddress.IPv4Network("10.78.0.0/20"), but="hpc-other") is None


class TestOtherStacks:
    """Their bridges may be gone (the host was restarted); their record still holds their addresses."""

    def _network(self, root: Path, **changes: str) -> network.Network:
        given = {"stack": "mine", "owner": "hpc/mine", "cidr": "10.80.0.0/20", "gateway": "10.80.0.1", **changes}
        return network.Network(root=root, hosts={}, **given)

    def _record(self, root: Path, stack: str, owner: str) -> None:
        folder = root / "stacks" / stack
        folder.mkdir(parents=True)
        (folder / "network.json").write_text(json.dumps({"owner": owner, "cidr": "10.80.0.0/20"}))

    def test_their_addresses_are_refused_with_their_name(self, tmp_path: Path) -> None:
        self._record(tmp_path, "theirs", "hpc/prod")
        with pytest.raises(HostError) as caught:
            network.ensure(self._network(tmp_path))
        assert str(caught.value).startswith(
            "network.cidr: 10.80.0.0/20 is in use on this host by the local cluster theirs (10.80.0.0/20, made by "
            "hpc/prod); choose another"
        )

    def test_a_cluster_name_belongs_to_who_took_it_first(self, tmp_path: Path) -> None:
        self._record(tmp_path, "mine", "hpc/first")
        with pytest.raises(HostError, match="'mine' is already up on this host, made by hpc/first; give this cluster"):
            network.ensure(self._network(tmp_path))
