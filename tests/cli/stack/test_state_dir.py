"""State dir and passphrase: both engines find the same, and a lost passphrase is an error."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.stack import state_dir

pytestmark = pytest.mark.usefixtures("root")


class TestPassphrase:
    def test_is_made_once_for_its_owner_alone(self, capsys: pytest.CaptureFixture[str]) -> None:
        first = state_dir.passphrase()
        assert len(first) >= 32
        assert state_dir.passphrase() == first
        assert stat.S_IMODE(state_dir.passphrase_file().stat().st_mode) == 0o600
        assert stat.S_IMODE(state_dir.directory().stat().st_mode) == 0o700
        assert capsys.readouterr().err.count("Generated the passphrase") == 1

    def test_is_one_when_two_ask_first(self) -> None:
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(lambda _: state_dir.passphrase(), range(8)))) == 1
        assert [path.name for path in state_dir.directory().iterdir()] == ["passphrase"]

    def test_that_is_lost_is_not_replaced(self) -> None:
        state = state_dir.directory() / ".pulumi/stacks/hpc/dev.json"
        state.parent.mkdir(parents=True)
        state.touch()
        with pytest.raises(CliError, match="passphrase: gone, but there is state"):
            state_dir.passphrase()

    def test_of_the_environment_wins(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        file = tmp_path / "mine"
        file.write_text("from a file\n")
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", str(file))
        assert state_dir.passphrase() == "from a file"
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "from a variable")
        assert state_dir.passphrase() == "from a variable"
        assert not state_dir.directory().exists()

    def test_file_that_is_missing_is_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", str(tmp_path / "nowhere"))
        with pytest.raises(CliError, match=r"nowhere: the passphrase can't be read.*PULUMI_CONFIG_PASSPHRASE_FILE"):
            state_dir.passphrase()


class TestEnvironment:
    def test_of_the_cli_is_the_embedded_engines(self) -> None:
        env = state_dir.environment()
        assert env["PULUMI_BACKEND_URL"] == f"file://{state_dir.directory()}"
        assert Path(env["PULUMI_CONFIG_PASSPHRASE_FILE"]).read_text().strip() == state_dir.passphrase()

    def test_keeps_what_is_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PULUMI_BACKEND_URL", "gs://bucket")
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
        env = state_dir.environment()
        assert (env["PULUMI_BACKEND_URL"], env["PULUMI_CONFIG_PASSPHRASE"]) == ("gs://bucket", "mine")
        assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in env
