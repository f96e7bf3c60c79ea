"""Modes of files with secrets, and keys that may log in as root, are reported."""

import os
import pwd
import subprocess

import pytest
from system import protected_files

from cluster.observe.drift import key_id

ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def keys(tmp_path, monkeypatch):
    """Two key pairs of ssh-keygen's own: `one` and `two`."""
    for name in ("one", "two"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name}@here", "-f", str(tmp_path / name)],
            check=True,
        )
    monkeypatch.setattr(protected_files, "ROOT_KEYS", (tmp_path / "authorized_keys", tmp_path / "authorized_keys2"))
    return tmp_path


class TestKeys:
    def test_node_and_program_compute_the_same_key_id(self, keys, monkeypatch):
        blob = (keys / "one.pub").read_text().split()[1]
        monkeypatch.setattr(protected_files.remote_node, "KEY", keys / "one")
        assert protected_files.cluster_key() == key_id((keys / "one").read_text()) == protected_files.key_id(blob)
        monkeypatch.setattr(protected_files.remote_node, "KEY", keys / "none")
        assert protected_files.cluster_key() == ""

    def test_every_key_of_root_is_reported(self, keys):
        one, two = ((keys / f"{name}.pub").read_text() for name in ("one", "two"))
        (keys / "authorized_keys").write_text(f"# a comment\n\n{one}nonsense\nssh-ed25519\n")
        (keys / "authorized_keys2").write_text(f'from="10.0.0.1",command="echo a b" {two}#{one}')
        assert protected_files.root_keys() == {
            key_id((keys / "one").read_text()): "one@here",
            key_id((keys / "two").read_text()): "two@here",
        }


def test_wrong_modes_are_reported_and_restored(tmp_path, monkeypatch):
    key = tmp_path / "key"
    key.write_text("secret")
    key.chmod(0o600)
    monkeypatch.setattr(protected_files, "MODES", {key: (0o600, ME), tmp_path / "none": (0o600, ME)})
    assert protected_files.wrong_modes() == {}
    key.chmod(0o644)
    assert protected_files.wrong_modes() == {str(key): {"wanted": f"0600 {ME}", "there": f"0644 {ME}"}}
    protected_files.restore_modes()
    assert protected_files.wrong_modes() == {}
    key.rename(tmp_path / "moved")
    key.symlink_to("moved")
    assert protected_files.wrong_modes()[str(key)]["there"] == "a link to moved"
