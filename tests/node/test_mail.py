"""What a user gives as --mail-user is an address for the mail program, or nothing."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/node/slurm/mail.sh"


@pytest.fixture
def send(tmp_path: Path):
    """Runs it as slurmctld does, with another mail program; that one's words."""
    given = tmp_path / "given"
    for name, text in {"mail": f'printf "%s|" "$@" >{given}; cat >>{given}', "logger": ":"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "hpc-mail").write_text(SCRIPT.read_text().replace("/usr/bin/mail", str(tmp_path / "mail")))

    def run(subject: str, address: str) -> str:
        given.unlink(missing_ok=True)
        path = f"{tmp_path}:{os.environ['PATH']}"
        subprocess.run(
            ["sh", tmp_path / "hpc-mail", "-s", subject, address],
            env={"PATH": path},
            input="~!id",
            text=True,
            check=False,
        )
        return given.read_text() if given.exists() else ""

    return run


@pytest.mark.parametrize("address", ["alice", "alice@example.org", "a.b+c_d@ex-ample.org,bob", "7@x"])
def test_addresses_are_sent_to(send, address: str):
    assert send("Slurm Job_id=1 Name=a|b Ended", address) == f"-s|Slurm Job_id=1 Name=a|b Ended|--|{address}|"


@pytest.mark.parametrize(
    "address", ["", "--x", "-s", "|id", "a|id", "/etc/x", "a,/etc/x", "a,-s", "a,", "+x", "a b", "a\nb", "$(id)", "é"]
)
def test_anything_else_is_not(send, address: str):
    assert send("s", address) == ""


def test_a_subject_is_one_line(send):
    assert send("Name=x\nBcc: y", "alice") == "-s|Name=xBcc: y|--|alice|"
