"""`./hpc env`: a real bash that evaluates its output has exactly these variables."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cli.commands.backend import exports
from cli.errors import CliError
from tests.cli.conftest import CLOUD, Hpc
from tests.lab.google.storage import FakeStorage

HOSTILE = {
    "PLAIN": "value",
    "EMPTY": "",
    "SPACES": "  two  words ",
    "QUOTES": """it's "quoted" `date` $(date) $HOME ${PATH}""",
    "SHELL": "a;b&c|d>e<f*g?h[i]j{k,l}~!#%^(m)\\n",
    "LINES": "first\nsecond\n\n",
    "TABS": "a\tb",
    "ESCAPE": "\x1b[31mred\x1b[0m\r\x07\x7f",
    "BOTH": "it's\x1b\\'",
    "UNICODE": "Zürich ✓ \U0001f40d",
    "DIRECTION": "a\u202eb\u2028c\u200bd",
    "BYTES": os.fsdecode(b"\xff\xfea"),
    "DASH": "-n",
}


def evaluated(text: str, **environ: str) -> dict[bytes, bytes]:
    """Variables of a bash that evaluated it, started with these variables alone."""
    script = 'eval "$1"; exec env -0'
    command = ["bash", "--norc", "--noprofile", "-c", script, "bash", text]
    env = {"PATH": os.environ["PATH"], **environ}
    out = subprocess.run(command, env=env, capture_output=True, check=True).stdout
    found = dict(line.split(b"=", 1) for line in out.split(b"\0") if line)
    return {name: value for name, value in found.items() if name not in (b"PATH", b"PWD", b"SHLVL", b"_", b"OLDPWD")}


class TestQuoting:
    def test_bash_gets_exactly_these_values(self) -> None:
        found = evaluated("\n".join(exports(HOSTILE)))
        assert found == {name.encode(): os.fsencode(value) for name, value in HOSTILE.items()}

    def test_a_terminal_acts_on_none_of_them(self) -> None:
        text = "\n".join(exports(HOSTILE))
        assert all(item.isprintable() or item == "\n" for item in text)

    @pytest.mark.parametrize("name", ["", "A B", "A=B", "1A", "A;touch x", "Ä", "A\n"])
    def test_a_name_that_no_variable_can_have(self, name: str) -> None:
        with pytest.raises(CliError, match="not an environment variable"):
            exports({name: "x"})

    def test_nul(self) -> None:
        with pytest.raises(CliError, match="no NUL"):
            exports({"A": "a\0b"})


class TestGoogle:
    @pytest.fixture(autouse=True)
    def stack(self, root: Path) -> None:
        """A stack on Google Cloud."""
        (root / "Pulumi.small.yaml").write_text(CLOUD)

    def test_a_shell_has_project_zone_and_state(self, hpc: Hpc, google: FakeStorage, tmp_path: Path) -> None:
        hpc("backend", "init", "gcs", "--stack", "small", "--bucket", "my-state")
        ended = hpc("env", "small")
        assert ended.code == 0, ended.err
        assert evaluated(ended.out) == {
            b"GOOGLE_PROJECT": b"my-project",
            b"GOOGLE_REGION": b"us-central1",
            b"GOOGLE_ZONE": b"us-central1-a",
            b"PULUMI_BACKEND_URL": b"gs://my-state",
            b"PULUMI_CONFIG_PASSPHRASE_FILE": os.fsencode(tmp_path / "home/passphrase"),
        }
        assert "State: bucket my-state (Google Cloud Storage)" in ended.err

    def test_a_second_time_is_the_same_also_in_the_evaluated_shell(
        self, hpc: Hpc, google: FakeStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hpc("backend", "init", "gcs", "--stack", "small", "--bucket", "my-state")
        first = hpc("env", "small").out
        for name, value in evaluated(first).items():
            monkeypatch.setenv(os.fsdecode(name), os.fsdecode(value))
        calls = len(google.calls)
        assert hpc("env", "small").out == first
        assert len(google.calls) == calls

    def test_unset_leaves_nothing(self, hpc: Hpc, google: FakeStorage) -> None:
        hpc("backend", "init", "gcs", "--stack", "small")
        lines = hpc("env", "small").out
        assert evaluated(lines + hpc("env", "small", "--unset").out) == {}

    def test_missing_credentials_are_a_note(self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("cluster.platforms.gcp.platform._PRODUCT", tmp_path / "none")
        monkeypatch.delenv("CLOUDSDK_CONFIG", raising=False)
        ended = hpc("env", "small")
        assert ended.code == 0
        assert "no Google credentials here. To do: gcloud auth application-default login" in ended.err

    def test_two_buckets_of_one_project_need_a_choice(self, hpc: Hpc, google: FakeStorage) -> None:
        for name in ("state-1", "state-2"):
            assert hpc("backend", "init", "gcs", "--stack", "small", "--bucket", name).code == 0
        ended = hpc("env", "small")
        assert ended.code == 1
        assert "Choose one with --backend: state-1, state-2" in ended.err
        assert ended.out == ""
        assert "gs://state-2" in hpc("env", "small", "--backend", "state-2").out


class TestElsewhere:
    def test_state_on_this_machine(self, hpc: Hpc, tmp_path: Path) -> None:
        ended = hpc("env", "dev")
        assert evaluated(ended.out)[b"PULUMI_BACKEND_URL"] == os.fsencode(f"file://{tmp_path}/home")
        assert "(HPC_HOME)" in ended.err

    def test_any_stack_can_have_its_state_in_any_bucket(self, hpc: Hpc, google: FakeStorage) -> None:
        hpc("backend", "init", "gcs", "--project", "p1", "--bucket", "my-state")
        assert "gs://my-state" in hpc("env", "dev", "--backend", "my-state").out
        assert "gs://my-state" not in hpc("env", "dev").out

    def test_the_bucket_in_use_stays(self, hpc: Hpc, google: FakeStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        hpc("backend", "init", "gcs", "--project", "p1", "--bucket", "my-state")
        monkeypatch.setenv("PULUMI_BACKEND_URL", "gs://my-state")
        ended = hpc("env", "dev")
        assert "gs://my-state" in ended.out
        assert "State: bucket my-state" in ended.err

    def test_a_bucket_that_nobody_initialized(self, hpc: Hpc) -> None:
        ended = hpc("env", "dev", "--backend", "other")
        assert ended.code == 1
        assert "given: other" in ended.err
        assert "allowed: none" in ended.err

    def test_a_passphrase_that_is_set_is_not_written_down(self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "secret words")
        out = hpc("env", "dev").out
        assert "PASSPHRASE" not in out
        assert "secret words" not in out

    def test_no_such_stack(self, hpc: Hpc) -> None:
        ended = hpc("env", "none")
        assert ended.code == 1
        assert ended.out == ""
        assert "there is no stack 'none'" in ended.err

    def test_a_damaged_record(self, hpc: Hpc, tmp_path: Path) -> None:
        folder = tmp_path / "home/backends"
        folder.mkdir(parents=True)
        (folder / "b.json").write_text("[]")
        ended = hpc("env", "dev")
        assert ended.code == 1
        assert "not a record of a state bucket" in ended.err

    def test_the_list(self, hpc: Hpc, google: FakeStorage) -> None:
        assert "no state buckets yet" in hpc("backend", "list").err
        hpc("backend", "init", "gcs", "--project", "p1", "--bucket", "my-state")
        assert "my-state  gcs   p1" in hpc("backend", "list").out
        assert json.loads(hpc("backend", "list", "--json").out) == [
            {"kind": "gcs", "bucket": "my-state", "project": "p1", "expires": ""}
        ]
