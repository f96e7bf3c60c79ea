"""The profile of shells on login machines, and sshd's PAM stack with pam_slurm_adopt."""

from pathlib import Path

import pytest
from interface import UnixUser
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


def user(name: str, shell: str) -> UnixUser:
    return {
        "name": name, "uid": 2001, "gid": 2001, "groups": [], "shell": shell, "keys": [], "sudo": False,
        "containers": False,
    }  # fmt: skip


def test_sshd_refuses_users_unless_they_are_allowed():
    assert "AllowUsers root\n" in login.sshd_settings(None)
    assert "AllowUsers" not in login.sshd_settings([])


def test_a_shell_that_refuses_everybody_refuses_sftp_too():
    shells = {"alice": "/bin/bash", "bob": "/usr/sbin/nologin", "carol": "/usr/bin/zsh", "dan": "/bin/false"}
    lines = login.sshd_settings([user(*row) for row in shells.items()]).splitlines()
    assert lines[-2:] == ["Match User bob,dan", "    ForceCommand /bin/false"]
    assert "Match" not in login.sshd_settings([user("alice", "/bin/bash")])


DEBIAN = """\
Include /etc/ssh/sshd_config.d/*.conf
#Port 22
AcceptEnv LANG LC_*

# override default of no subsystems
Subsystem\tsftp\t/usr/lib/openssh/sftp-server

# Example of overriding settings on a per-user basis
#Match User anoncvs
"""
"""Lines of /usr/share/openssh/sshd_config of openssh-server 1:9.2p1-2+deb12u10 and 1:10.0p1-7+deb13u4."""


def test_sshd_serves_sftp_itself():
    changed = login.with_internal_sftp(DEBIAN)
    assert changed == DEBIAN.replace("Subsystem\tsftp\t/usr/lib/openssh/sftp-server", "Subsystem sftp internal-sftp")
    assert login.with_internal_sftp(changed) == changed
    assert login.with_internal_sftp("#Subsystem sftp x\n") == "#Subsystem sftp x\n"


@pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="needs sshd")
def test_sshd_accepts_its_files(tmp_path: Path):
    """As sshd reads them: the included file first, whose match ends with it."""
    key = tmp_path / "key"
    programs.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (tmp_path / "hpc.conf").write_text(login.sshd_settings([user("bob", "/usr/sbin/nologin")]))
    main = login.with_internal_sftp(DEBIAN).replace("/etc/ssh/sshd_config.d", str(tmp_path))
    (tmp_path / "main").write_text(f"{main}HostKey {key}\n")

    def effective(name: str) -> set[str]:
        command = ["/usr/sbin/sshd", "-T", "-f", str(tmp_path / "main"), "-C", f"user={name},host=h,addr=10.0.0.1"]
        return {*programs.run(command, check=True).stdout.splitlines()}

    alice, bob = effective("root"), effective("bob")
    assert {"subsystem sftp internal-sftp", "forcecommand none", "passwordauthentication no"} <= alice
    assert {"subsystem sftp internal-sftp", "forcecommand /bin/false"} <= bob


def test_sshd_reads_changed_files_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(login, "SSHD", tmp_path / "hpc.conf")
    monkeypatch.setattr(login, "SSHD_MAIN", tmp_path / "sshd_config")
    monkeypatch.setattr(login, "run", lambda *command: ran.append(command))
    login.SSHD_MAIN.write_text(DEBIAN)
    login.SSHD.write_text(login.sshd_settings(None))
    for _ in range(2):
        login.allow_logins(None)
    assert ran == [("systemctl", "try-reload-or-restart", "ssh")]
    assert "Subsystem sftp internal-sftp\n" in login.SSHD_MAIN.read_text()
