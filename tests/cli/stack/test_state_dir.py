"""Where state and passphrase are: both engines find the same, and a lost passphrase is an error."""

import json
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.stack import outputs, project, rehearsals, state_dir
from cluster.platforms.gcp import platform as google_platform
from engine.state.crypter import Crypter, derive
from tests.cli.conftest import CLOUD, Hpc, write_state

pytestmark = pytest.mark.usefixtures("root")
Tool = Callable[[str, str], Path]


@pytest.fixture
def newcomer(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has set nothing; the home folder."""
    names = ("HPC_HOME", "PULUMI_HOME", "PULUMI_CREDENTIALS_PATH", "CLOUDSDK_CONFIG", *google_platform._VARIABLES)
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(google_platform, "_PRODUCT", tmp_path / "no-product-name")
    monkeypatch.setattr(state_dir, "_home_folder", lambda: str(tmp_path))
    return tmp_path


def login(folder: Path, url: str) -> None:
    """What `pulumi login URL` leaves."""
    folder.mkdir(exist_ok=True)
    text = json.dumps({"current": url, "accessTokens": {url: ""}, "accounts": {url: {"lastValidatedAt": "0001"}}})
    (folder / "credentials.json").write_text(text)


class TestLocated:
    def test_settings_of_the_backend_have_their_order(
        self, newcomer: Path, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = f"file://{newcomer}/.hpc"
        assert state_dir.located("dev") == (own, "the default")
        login(newcomer / ".pulumi", "https://api.pulumi.com")
        assert state_dir.located("dev") == ("https://api.pulumi.com", "`pulumi login`")
        login(newcomer / "elsewhere", "s3://bucket")
        monkeypatch.setenv("PULUMI_HOME", str(newcomer / "elsewhere"))
        assert state_dir.backend() == "s3://bucket"
        (root / "Pulumi.yaml").write_text("name: hpc\nruntime: python\nbackend: {url: gs://bucket}\n")
        assert state_dir.located("dev") == ("gs://bucket", "`backend` in Pulumi.yaml")
        state = newcomer / ".hpc/.pulumi/stacks/hpc/dev.json"
        state.parent.mkdir(parents=True)
        state.write_text("{}")
        assert state_dir.located("dev") == (own, "the stack's state there")
        assert state_dir.backend("other") == "gs://bucket"
        monkeypatch.setenv("HPC_HOME", str(newcomer / "mine"))
        assert state_dir.located("other") == (f"file://{newcomer}/mine", "HPC_HOME")
        monkeypatch.setenv("PULUMI_BACKEND_URL", "azblob://box")
        assert state_dir.located("dev") == ("azblob://box", "PULUMI_BACKEND_URL")

    def test_folders_are_the_same_for_both_engines(self, newcomer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(newcomer)
        monkeypatch.setenv("HOME", "/elsewhere")  # as sudo may leave it
        for given, wanted in (
            ("file://~", newcomer),
            ("file://~/x", newcomer / "x"),
            ("file://state", newcomer / "state"),
            ("file:///s", Path("/s")),
        ):
            login(newcomer / ".pulumi", given)
            assert state_dir.environment("dev")["PULUMI_BACKEND_URL"] == f"file://{wanted}"
            assert project.workspace("dev").folder == wanted / ".pulumi"

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"current": null}'])
    def test_damaged_credentials_count_as_no_login(self, newcomer: Path, text: str) -> None:
        (newcomer / ".pulumi").mkdir()
        (newcomer / ".pulumi/credentials.json").write_text(text)
        assert state_dir.backend() == f"file://{newcomer}/.hpc"

    def test_rehearsals_stay_on_this_machine(self, newcomer: Path) -> None:
        login(newcomer / ".pulumi", "gs://bucket")
        state_dir.write_file(rehearsals.file("a3mega-rehearsal"), "config: {}\n")
        assert state_dir.on_files("a3mega-rehearsal")
        assert not state_dir.on_files("a3mega")


class TestElsewhere:
    @pytest.fixture(autouse=True)
    def logged_in(self, newcomer: Path) -> None:
        login(newcomer / ".pulumi", "https://api.pulumi.com")

    @pytest.mark.parametrize("given", [[], ["--engine", "embedded"]])
    def test_the_embedded_engine_refuses_state_outside_of_files_with_advice(
        self, hpc: Hpc, newcomer: Path, given: list[str]
    ) -> None:
        ended = hpc("up", "dev", *given)
        assert "state" in ended.error
        assert "at https://api.pulumi.com (`pulumi login`" in ended.err
        assert f"PULUMI_BACKEND_URL=file://{newcomer}/.hpc" in ended.err

    def test_stacks_of_the_backend_and_the_state_dir_are_listed(self, hpc: Hpc, newcomer: Path) -> None:
        state = newcomer / ".hpc/.pulumi/stacks/hpc/old.json"
        state.parent.mkdir(parents=True)
        state.write_text('{"version": 3, "checkpoint": {"stack": "organization/hpc/old", "latest": {}}}')
        assert [line.split()[0] for line in hpc("stacks").out.splitlines()] == ["STACK", "dev", "old"]


class TestPreviewWithoutCredentials:
    @pytest.fixture
    def log(self, root: Path, tool: Tool, newcomer: Path) -> Path:
        (root / "Pulumi.cloud.yaml").write_text(CLOUD)
        (root / "__main__.py").write_text("import pulumi\npulumi.export('a', 1)\n")
        # `stack init` writes a salt into the stack file of the folder that it is given, as the CLI does.
        init = (
            'stack=$3; while [ "$1" != --cwd ]; do shift; done; echo "encryptionsalt: v1:made" >"$2/Pulumi.$stack.yaml"'
        )
        tool("pulumi", f"""echo $1 >>{newcomer}/told; [ "$1 $2" != 'stack init' ] || {{ {init}; }}""")
        return newcomer / "told"

    def test_a_preview_without_credentials_creates_the_stack_for_the_cli(
        self, hpc: Hpc, log: Path, newcomer: Path
    ) -> None:
        ended = hpc("preview", "cloud")
        assert (ended.code, log.exists()) == (0, False)  # nobody has logged in anywhere
        assert ended.err.startswith("No Google credentials are here, so the embedded engine shows this preview. ")
        assert "gcloud auth application-default login" in ended.err
        login(newcomer / ".pulumi", f"file://{newcomer}/.hpc")
        ended = hpc("preview", "cloud")
        assert (ended.code, log.read_text()) == (0, "stack\n")
        assert (project.ROOT / "Pulumi.cloud.yaml").read_text() == CLOUD + "encryptionsalt: v1:made\n"
        assert "Added to Pulumi.cloud.yaml: encryptionsalt" in ended.err
        hpc("preview", "cloud", "--engine", "embedded")
        assert log.read_text() == "stack\n"

    def test_a_preview_of_a_stack_in_another_backend_shows_a_new_stack(
        self, hpc: Hpc, log: Path, newcomer: Path
    ) -> None:
        login(newcomer / ".pulumi", "https://api.pulumi.com")
        ended = hpc("preview", "cloud")
        assert (ended.code, log.exists()) == (0, False)
        assert "It shows a new stack, since it can't read the state at https://api.pulumi.com" in ended.err

    @pytest.mark.parametrize("where", ["variable", "gcloud", "settings", "machine"])
    def test_credentials_are_found(
        self, hpc: Hpc, log: Path, newcomer: Path, *, where: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if where == "variable":
            monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
        elif where == "gcloud":
            folder = newcomer / ".config/gcloud"
            folder.mkdir(parents=True)
            (folder / "application_default_credentials.json").touch()
        elif where == "settings":
            (project.ROOT / "Pulumi.cloud.yaml").write_text(
                CLOUD.replace("config:\n", "config:\n  gcp:credentials: key\n")
            )
        else:
            (newcomer / "no-product-name").write_text("Google Compute Engine\n")
        assert "No Google credentials" not in hpc("preview", "cloud").err
        assert "preview" in log.read_text()


class TestPassphrase:
    def test_the_passphrase_is_created_once_and_only_its_owner_can_read_it(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first = state_dir.passphrase()
        assert len(first) >= 32
        assert state_dir.passphrase() == first
        assert stat.S_IMODE(state_dir.passphrase_file().stat().st_mode) == 0o600
        assert stat.S_IMODE(state_dir.directory().stat().st_mode) == 0o700
        assert capsys.readouterr().err.count("Generated the passphrase") == 1

    def test_two_first_runs_at_once_share_one_passphrase(self) -> None:
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(lambda _: state_dir.passphrase(), range(8)))) == 1
        assert [path.name for path in state_dir.directory().iterdir()] == ["passphrase"]

    def test_a_lost_passphrase_is_not_replaced(self) -> None:
        state = state_dir.directory() / ".pulumi/stacks/hpc/dev.json"
        state.parent.mkdir(parents=True)
        state.touch()
        with pytest.raises(CliError, match="passphrase: gone, but there is state"):
            state_dir.passphrase()

    def test_the_passphrase_in_the_environment_has_precedence(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        file = tmp_path / "mine"
        file.write_text("from a file\n")
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", str(file))
        assert state_dir.passphrase() == "from a file"
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "from a variable")
        assert state_dir.passphrase() == "from a variable"
        assert not state_dir.directory().exists()

    def test_a_missing_passphrase_file_is_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", str(tmp_path / "nowhere"))
        with pytest.raises(CliError, match=r"nowhere: the passphrase can't be read.*PULUMI_CONFIG_PASSPHRASE_FILE"):
            state_dir.passphrase()


class TestEnvironment:
    def test_the_environment_of_the_cli_has_the_embedded_engines_state(self) -> None:
        env = state_dir.environment()
        assert env["PULUMI_BACKEND_URL"] == f"file://{state_dir.directory()}"
        assert Path(env["PULUMI_CONFIG_PASSPHRASE_FILE"]).read_text().strip() == state_dir.passphrase()

    def test_variables_that_are_set_are_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PULUMI_BACKEND_URL", "gs://bucket")
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
        env = state_dir.environment()
        assert (env["PULUMI_BACKEND_URL"], env["PULUMI_CONFIG_PASSPHRASE"]) == ("gs://bucket", "mine")
        assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in env


class TestKeyOfSecrets:
    @pytest.fixture(autouse=True)
    def state(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
        file = write_state()
        derive.cache_clear()
        return file

    def test_the_key_is_derived_once(self, state: Path) -> None:
        project.begin_unlock("dev")
        assert derive.cache_info().misses == 1
        latest = json.loads(state.read_text())["checkpoint"]["latest"]
        Crypter(state_dir.passphrase, latest["secrets_providers"]["state"]["salt"]).unlock()
        assert derive.cache_info()[:2] == (1, 1)

    def test_deriving_the_key_starts_before_the_commands_module_is_imported(
        self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun = []
        monkeypatch.setattr(project, "begin_unlock", begun.append)
        hpc("outputs", "dev")
        hpc("outputs", "--help")
        assert begun == ["dev"]

    @pytest.mark.parametrize("name", ["other", "../dev", "*", "d ev"])
    def test_no_key_is_derived_for_a_stack_without_state(self, name: str) -> None:
        project.begin_unlock(name)
        assert derive.cache_info().misses == 0


def test_outputs_have_the_host_keys_of_the_present_machines():
    """An `up` that replaced machines and was cut off has exported nothing; what was replaced is on its way out."""
    values = {"machines": {"hc-a": {"host_key": "old"}, "hc-b": {"host_key": "same"}}}
    kind = "pulumi-python:dynamic/local:Machine"
    outputs.renew_host_keys(
        values,
        [
            {"type": kind, "outputs": {"name": "hc-a", "host_key": "new"}},
            {"type": kind, "outputs": {"name": "hc-a", "host_key": "old"}, "delete": True},
            {"type": kind, "outputs": {"name": "hc-c", "host_key": "other"}},
            {"type": "pulumi:pulumi:Stack", "outputs": {"name": "hc-b"}},
            {"type": kind},
        ],
    )
    assert values == {"machines": {"hc-a": {"host_key": "new"}, "hc-b": {"host_key": "same"}}}
    outputs.renew_host_keys({}, [{"type": kind, "outputs": {"name": "x", "host_key": "k"}}])
