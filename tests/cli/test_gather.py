"""Asking many machines at once: each answers for itself, none keeps the others waiting."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.access.remote import UNREACHED, capture, gather
from cli.cluster.cluster import from_outputs
from tests.cli.test_reach import OUTPUTS

CLUSTER = from_outputs("dev", OUTPUTS)
# The last two words are where and what; what comes in goes out again behind the name.
ECHO = 'for word; do before=$last; last=$word; done; printf "%s|%s|" "$before" "$last"; cat; echo oops >&2; exit 3'


def test_each_machine_is_given_the_line_and_the_input(tool: Callable[[str, str], Path]) -> None:
    tool("ssh", ECHO)
    answers = gather(CLUSTER.targets.values(), CLUSTER.admin_key, "id -u", stdin="given", seconds=20)
    assert {name: done.out for name, done in answers.items()} == {
        name: f"{name}|id -u|given" for name in CLUSTER.targets
    }
    assert {(done.code, done.err, done.reached) for done in answers.values()} == {(3, "oops\n", True)}


def test_one_that_hangs_is_given_up_and_the_others_are_heard(tool: Callable[[str, str], Path]) -> None:
    tool("ssh", 'case "$*" in *dev-cpu-0*) exec sleep 60 ;; *) echo here ;; esac')
    answers = gather(CLUSTER.targets.values(), CLUSTER.admin_key, "true", seconds=3)
    assert [name for name, done in answers.items() if not done.reached] == ["dev-cpu-0"]
    assert answers["dev-cpu-0"].err == "no answer within 3 s"
    assert answers["dev-controller"].out == "here\n"


def test_every_host_key_is_pinned(tool: Callable[[str, str], Path], tmp_path: Path) -> None:
    log = tmp_path / "known"
    tool("ssh", f'cat "$(sed -n "s/^ *UserKnownHostsFile //p" "$2")" >{log}')
    capture(CLUSTER.target("controller"), CLUSTER.admin_key, "true")
    assert log.read_text() == "dev-controller ssh-ed25519 AAA1\n"


@pytest.mark.parametrize("code", [0, UNREACHED])
def test_ssh_says_itself_whether_it_got_there(tool: Callable[[str, str], Path], code: int) -> None:
    tool("ssh", f"exit {code}")
    assert capture(CLUSTER.target(None), CLUSTER.admin_key, "true").reached == (code == 0)
