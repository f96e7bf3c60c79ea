"""The profile of shells on login machines, and sshd's PAM stack with pam_slurm_adopt."""

from pathlib import Path

import pytest
from system import login
from system.host import SetupError

from tests import programs


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(("option", "told"), [("-i", "jobid,jobname"), ("-u", "none")])
def test_only_interactive_shells_have_other_columns_of_sacct(tmp_path: Path, shell: str, option: str, told: str):
    """Scripts and jobs count columns; a variable would reach them from the shell that starts them."""
    (tmp_path / "hpc.sh").write_text(login.PROFILE)
    programs.write(tmp_path / "sacct", 'echo "${SACCT_FORMAT:-none}" "$@"')
    script = f". {tmp_path}/hpc.sh; sacct -X; sh -c 'sacct -P'"
    done = programs.run(
        [shell, option, "-c", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)},
        check=True,
        start_new_session=True,
    )
    first, second = done.stdout.splitlines()
    assert first.startswith(told)
    assert first.endswith("-X")
    assert second == "none -P"


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


def test_the_module_is_added_once_and_removed_completely(root: Path):
    module(root)
    assert login.set_pam_slurm_adopt(enabled=True, root=root)
    lines = (root / "etc/pam.d/sshd").read_text().splitlines()
    assert [line.split()[-1] for line in lines if line.split()[0] == "account"] == [
        "pam_nologin.so", "pam_slurm_adopt.so",
    ]  # fmt: skip
    assert "@include common-session" not in lines
    assert not login.set_pam_slurm_adopt(enabled=True, root=root)
    assert login.set_pam_slurm_adopt(enabled=False, root=root)
    assert (root / "etc/pam.d/sshd").read_text() == STACK
    assert not login.set_pam_slurm_adopt(enabled=False, root=root)


def test_without_the_module_nothing_changes(root: Path):
    with pytest.raises(SetupError, match="there is no pam_slurm_adopt"):
        login.set_pam_slurm_adopt(enabled=True, root=root)
    assert (root / "etc/pam.d/sshd").read_text() == STACK


def test_an_unknown_stack_is_left_alone(root: Path):
    module(root)
    (root / "etc/pam.d/sshd").write_text("account required pam_permit.so\n")
    with pytest.raises(SetupError, match="does not include common-account"):
        login.set_pam_slurm_adopt(enabled=True, root=root)
    assert (root / "etc/pam.d/sshd").read_text() == "account required pam_permit.so\n"


def test_sshd_refuses_users_unless_they_are_allowed():
    assert "AllowUsers root\n" in login.sshd_settings(users=False)
    assert "AllowUsers" not in login.sshd_settings(users=True)
