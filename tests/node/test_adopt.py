"""sshd's PAM stack asks pam_slurm_adopt, last of its account part, and is as it was when that is not wanted."""

from pathlib import Path

import pytest
from system import login
from system.host import SetupError

STACK = """\
@include common-auth
account    required     pam_nologin.so
@include common-account
session    required     pam_loginuid.so
@include common-session
session    required     pam_limits.so
@include common-password
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc/pam.d").mkdir(parents=True)
    (tmp_path / "etc/hpc").mkdir()
    (tmp_path / "etc/pam.d/sshd").write_text(STACK)
    return tmp_path


def module(root: Path) -> None:
    path = root / "usr/lib/x86_64-linux-gnu/security/pam_slurm_adopt.so"
    path.parent.mkdir(parents=True)
    path.touch()


def test_it_comes_once_and_goes_without_a_trace(root: Path):
    module(root)
    assert login.keep_pam_slurm_adopt(wanted=True, root=root)
    lines = (root / "etc/pam.d/sshd").read_text().splitlines()
    assert [line.split()[-1] for line in lines if line.split()[0] == "account"] == [
        "pam_nologin.so", "pam_slurm_adopt.so",
    ]  # fmt: skip
    assert "@include common-session" not in lines
    assert not login.keep_pam_slurm_adopt(wanted=True, root=root)
    assert login.keep_pam_slurm_adopt(wanted=False, root=root)
    assert (root / "etc/pam.d/sshd").read_text() == STACK
    assert not login.keep_pam_slurm_adopt(wanted=False, root=root)


def test_nothing_changes_where_there_is_no_module(root: Path):
    with pytest.raises(SetupError, match="there is no pam_slurm_adopt"):
        login.keep_pam_slurm_adopt(wanted=True, root=root)
    assert (root / "etc/pam.d/sshd").read_text() == STACK


def test_a_stack_that_is_not_understood_is_left_alone(root: Path):
    module(root)
    (root / "etc/pam.d/sshd").write_text("account required pam_permit.so\n")
    with pytest.raises(SetupError, match="does not include common-account"):
        login.keep_pam_slurm_adopt(wanted=True, root=root)
    assert (root / "etc/pam.d/sshd").read_text() == "account required pam_permit.so\n"


def test_users_are_kept_out_by_sshd_unless_the_module_decides():
    assert "AllowUsers root\n" in login.sshd_settings(users=False)
    assert "AllowUsers" not in login.sshd_settings(users=True)
