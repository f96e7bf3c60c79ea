"""The host's settings are changed as little as machines need, and what is changed for a bridge goes with it."""

from pathlib import Path

import pytest

from components.local.host import bridge
from components.local.host.cgroups import allow_watches
from components.local.host.paths import HostError


@pytest.mark.parametrize(
    ("before", "after", "lines"), [("128\n", "8192", 1), ("8192\n", "8192\n", 0), ("65536\n", "65536\n", 0)]
)
def test_watches_are_only_ever_raised_and_that_is_said(tmp_path: Path, before: str, after: str, lines: int) -> None:
    path = tmp_path / "max_user_instances"
    path.write_text(before)
    said: list[str] = []
    allow_watches(said.append, path)
    assert path.read_text() == after
    assert len(said) == lines


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
        monkeypatch.setattr(bridge, "_SHOWN", tmp_path / "shown")
        monkeypatch.setattr(bridge, "run", run)
        monkeypatch.setattr(bridge.shutil, "which", lambda _: "/usr/sbin/iptables")
        return rules

    def test_one_rule_however_often_and_none_at_the_end(self, rules: list[list[str]]) -> None:
        bridge.let_through("hpc-dev")
        bridge.let_through("hpc-dev")
        bridge.let_through("hpc-b")
        assert [rule[:4] for rule in rules] == [["-i", "hpc-dev", "-o", "hpc-dev"], ["-i", "hpc-b", "-o", "hpc-b"]]
        bridge.forget("hpc-dev")
        bridge.forget("hpc-dev")
        assert len(rules) == 1

    def test_nothing_where_bridged_packets_are_not_filtered(self, rules: list[list[str]], tmp_path: Path) -> None:
        (tmp_path / "shown").write_text("0\n")
        bridge.let_through("hpc-dev")
        bridge.forget("hpc-dev")
        assert rules == []
