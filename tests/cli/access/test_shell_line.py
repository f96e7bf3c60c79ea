"""Words given after `--` arrive as they are, through root's shell and the user's."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.access.ssh import shell_line
from tests import programs

# Everything that a shell reads specially, and what Python allows in an argument. NUL can be in no argument at all.
WORDS = st.lists(
    st.one_of(st.text(st.sampled_from(" '\"\\$`!*?[]{}()<>|&;~#=%^\n\t-aé")), st.text()).filter(
        lambda word: "\0" not in word and not any(0xD800 <= ord(char) <= 0xDFFF for char in word)
    ),
    min_size=1,
    max_size=5,
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PATH whose `runuser` does what the real one does with `-l USER -c LINE`: gives the line to a shell."""
    folder = tmp_path_factory.mktemp("bin")
    programs.write(folder / "runuser", '[ "$1" = -l ] && [ "$2" = "a user" ] || exit 99\nexec /bin/sh "$3" "$4"')
    programs.write(folder / "words", 'for word; do printf "%s\\0" "$word"; done')
    return folder


@pytest.mark.parametrize("user", ["a user", "root"])
@settings(max_examples=25)
@given(words=WORDS)
def test_words_are_quoted_for_both_shells(machine: Path, user: str, words: list[str]) -> None:
    line = shell_line(user, ["words", *words], terminal=False)
    env = {"PATH": f"{machine}:{os.defpath}"}
    done = subprocess.run(["/bin/sh", "-c", line], env=env, capture_output=True, check=True)
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


@pytest.mark.parametrize("user", ["a user", "root"])
@pytest.mark.parametrize("line", ["words one | cat", "words 'a b'; true", "words $((1 + 1))"])
def test_one_word_with_shell_characters_is_a_shell_line(machine: Path, user: str, line: str) -> None:
    env = {"PATH": f"{machine}:{os.defpath}"}
    given = shell_line(user, [line], terminal=False)
    done = subprocess.run(["/bin/sh", "-c", given], env=env, capture_output=True, check=True)
    assert done.stdout == subprocess.run(["/bin/sh", "-c", line], env=env, capture_output=True, check=True).stdout


@pytest.mark.parametrize("command", [["sacct", "-X"], ["sacct -X | tail"]])
def test_sacct_waits_for_the_newest_job_to_be_recorded(machine: Path, command: list[str]) -> None:
    calls = machine / "calls"
    calls.unlink(missing_ok=True)
    scripts = {
        "squeue": "echo 42",
        # Not recorded the first two times it is asked for.
        "sacct": f'echo "$*" >> {calls}; [ "$(wc -l < {calls})" -lt 3 ] || echo job 42',
    }
    for name, body in scripts.items():
        programs.write(machine / name, body)
    line = shell_line("a user", command, terminal=False)
    done = programs.run(["/bin/sh", "-c", line], env={"PATH": f"{machine}:{os.defpath}"}, check=True)
    assert done.stdout == "job 42\n"
    assert calls.read_text().splitlines() == ["--noheader --allocations --format=jobid"] * 3 + ["-X"]


def test_no_command_runs_a_login_shell() -> None:
    assert shell_line("alice", [], terminal=True) == "exec runuser -l alice"
    assert shell_line("root", [], terminal=True) == ""


def test_a_command_on_a_terminal_stays_in_its_session() -> None:
    words = shlex.split(shell_line("alice", ["top"], terminal=True))
    assert words == ["exec", "runuser", "-l", "alice", "--session-command", "top"]
