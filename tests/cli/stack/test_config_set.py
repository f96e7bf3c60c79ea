"""A setting is written into a stack file's text, and nothing else of it changes."""

import io
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.errors import CliError
from cli.stack import project, stackfile
from cli.stack.edits import with_setting
from engine.project import Project
from tests.cli.conftest import STACK, Hpc

FILE = (
    "# Ours.\n\nconfig:\n\n  # A place.\n  gcp:zone: us-a  # near\n\n  gcp:credentials:\n    secure: v1:old\n\n  x: 1\n"
)


class TestText:
    def test_a_new_setting_is_inserted_first_and_an_old_one_keeps_its_place(self) -> None:
        assert with_setting(FILE, "gcp:project", "p") == FILE.replace("gcp:zone", "gcp:project: p\n  gcp:zone")
        assert with_setting(FILE, "gcp:zone", "eu") == FILE.replace("us-a", "eu")
        assert with_setting(FILE, "gcp:credentials", {"secure": "v1:new"}) == FILE.replace(
            "gcp:credentials:\n    secure: v1:old", "gcp:credentials: {secure: 'v1:new'}"
        )

    @pytest.mark.parametrize("text", ["", "# nothing\n", "config:\n", "config:", "config: # below\n", "a: 1"])
    def test_a_setting_is_added_to_files_without_settings(self, text: str) -> None:
        assert yaml.safe_load(with_setting(text, "gcp:zone", "eu"))["config"] == {"gcp:zone": "eu"}

    @pytest.mark.parametrize("text", ["config: {a: 1}\n", "config: [1]\n", "config: &x\n  a: 1\nb: *x\n"])
    def test_settings_without_lines_of_their_own_are_refused(self, text: str) -> None:
        with pytest.raises(CliError, match="edit the file"):
            with_setting(text, "gcp:zone", "eu")

    @given(st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1))
    def test_any_value_is_read_back(self, value: str) -> None:
        after = with_setting(FILE, "gcp:zone", value)
        assert yaml.safe_load(after)["config"]["gcp:zone"] == value
        assert with_setting(after, "gcp:zone", "us-a") == FILE


class TestCommand:
    @pytest.fixture(autouse=True)
    def passphrase(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")

    def test_a_secret_is_encrypted_and_read_again(self, hpc: Hpc, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = root / "Pulumi.dev.yaml"
        for value in ("hush", '{"private_key": "hush"}'):
            monkeypatch.setattr(sys, "stdin", io.StringIO(f"{value}\n"))
            ended = hpc("config", "set", "dev", "gcp:credentials", "--secret")
            assert (ended.code, ended.out) == (0, "")
            assert "hush" not in file.read_text() + ended.err
            config = Project.read(root).config(file, lambda: "mine")
            assert (config.values["gcp:credentials"], config.secrets) == (value, ["gcp:credentials"])
        assert file.read_text().count("encryptionsalt") == 1
        assert STACK.removeprefix("config:\n") in file.read_text()
        assert not list(root.glob(".Pulumi*"))

    def test_a_secret_is_never_an_argument(self, hpc: Hpc, root: Path) -> None:
        assert "leave VALUE out" in hpc("config", "set", "dev", "gcp:credentials", "hush", "--secret").err
        assert (root / "Pulumi.dev.yaml").read_text() == STACK

    def test_a_secret_is_encrypted_with_the_states_salt(
        self, hpc: Hpc, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = stackfile.encryption_keys(root / "nowhere")
        monkeypatch.setattr(sys, "stdin", io.StringIO("hush"))
        hpc("config", "set", "dev", "gcp:credentials", "--secret")
        first = stackfile.encryption_keys(root / "Pulumi.dev.yaml")
        assert made == {}
        stack = project.workspace("dev").stack("dev")
        secrets = {"type": "passphrase", "state": {"salt": first["encryptionsalt"]}}
        stack.import_state({"version": 3, "deployment": {"manifest": {}, "secrets_providers": secrets}})
        (root / "Pulumi.dev.yaml").write_text(STACK)
        monkeypatch.setattr(sys, "stdin", io.StringIO("hush"))
        hpc("config", "set", "dev", "gcp:credentials", "--secret")
        assert stackfile.encryption_keys(root / "Pulumi.dev.yaml") == first

    def test_settings_that_can_not_be_set_are_refused_with_the_reason(self, hpc: Hpc, root: Path) -> None:
        assert "hpc:slackUrl is a secret" in hpc("config", "set", "dev", "hpc:slackUrl", "https://x").err
        for key in ("zone", "hpc:cluster"):
            assert "give a provider's setting" in hpc("config", "set", "dev", key, "x").err
        (root / "Pulumi.dev.yaml").write_text(f"secretsprovider: gcpkms://key\n{STACK}")
        assert "kept by gcpkms://key" in hpc("config", "set", "dev", "gcp:credentials", "--secret").err
        assert hpc("config", "set", "dev", "gcp:zone", "eu").code == 0
