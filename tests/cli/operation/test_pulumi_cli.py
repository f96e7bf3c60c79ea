"""What the Pulumi CLI is given to do, and what becomes of stack files, interrupts and its JSON."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.operation.pulumi_cli import RunEvents
from cli.stack import project, stackfile
from engine.state.crypter import Crypter
from tests.cli.conftest import STACK, Hpc, write_state

Tool = Callable[[str, str], Path]
HERE = Path(__file__).parent
COMMENTED = "# Ours.\n\nconfig:\n\n  # The cluster.\n" + STACK.removeprefix("config:\n") + "\n# The end."
# `stack init` does to the stack file of its folder what the CLI does: a salt, and the file written anew.
PULUMI = """\
echo "$*" >>"$PULUMI_LOG"
case "$*" in
'stack init'*) stack=$3; while [ "$1" != --cwd ]; do shift; done; test -f "$2/Pulumi.yaml" || exit 3
    echo 'encryptionsalt: v1:made' >"$2/Pulumi.$stack.yaml" ;;
esac
"""


@pytest.fixture
def log(tool: Tool, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tool("pulumi", PULUMI)
    monkeypatch.setattr("cli.operation.localhost.prepare", lambda: None)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
    path = tmp_path / "pulumi.log"
    monkeypatch.setenv("PULUMI_LOG", str(path))
    return path


class TestStackFile:
    def test_a_new_stacks_file_gets_the_salt_and_keeps_its_text(self, hpc: Hpc, root: Path, log: Path) -> None:
        (root / "Pulumi.dev.yaml").write_text(COMMENTED)
        ended = hpc("preview", "dev")
        assert (root / "Pulumi.dev.yaml").read_text() == f"{COMMENTED}\nencryptionsalt: v1:made\n"
        assert "Added to Pulumi.dev.yaml: encryptionsalt" in ended.err
        init, preview = log.read_text().splitlines()
        assert init.startswith("stack init dev --no-select --secrets-provider passphrase --cwd ")
        assert preview == "preview --stack dev --suppress-outputs"

    def test_a_stack_file_without_a_salt_gets_that_of_the_state(self, hpc: Hpc, root: Path, log: Path) -> None:
        file = write_state()
        (root / "Pulumi.dev.yaml").write_text(COMMENTED)
        kept = json.loads(file.read_text())["checkpoint"]["latest"]["secrets_providers"]["state"]["salt"]
        for kind in ("preview", "refresh"):
            hpc(kind, "dev")
            assert (root / "Pulumi.dev.yaml").read_text() == f"{COMMENTED}\nencryptionsalt: {kept}\n"
        assert [line.split()[0] for line in log.read_text().splitlines()] == ["preview", "refresh"]
        (root / "Pulumi.dev.yaml").write_text(COMMENTED)
        hpc("destroy", "dev")  # the CLI would write the file for that, too
        assert stackfile.encryption_keys(root / "Pulumi.dev.yaml") == {"encryptionsalt": kept}

    def test_config_file_of_a_new_stack_gets_the_salt(self, hpc: Hpc, root: Path, tmp_path: Path, log: Path) -> None:
        other = tmp_path / "other.yaml"
        other.write_text(STACK)
        assert hpc("preview", "new", "--config-file", str(other)).code == 0
        assert stackfile.encryption_keys(other) == {"encryptionsalt": "v1:made"}
        assert not (root / "Pulumi.new.yaml").exists()
        assert log.read_text().splitlines()[-1] == f"preview --stack new --config-file {other} --suppress-outputs"

    def test_a_stack_file_with_a_secrets_provider_keeps_it(self, hpc: Hpc, root: Path, log: Path) -> None:
        (root / "Pulumi.dev.yaml").write_text(f"secretsprovider: gcpkms://key\nencryptedkey: abc\n{STACK}")
        hpc("preview", "dev")
        assert "--secrets-provider gcpkms://key" in log.read_text()


class TestRun:
    def test_the_cli_runs_in_the_project_with_the_state_of_the_embedded_engine(
        self, hpc: Hpc, log: Path, root: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
        tool("pulumi", f"""echo "$PWD $PULUMI_BACKEND_URL $PULUMI_CONFIG_PASSPHRASE_FILE" >>{log}; exit 5""")
        write_state()
        home = root.parent / "home"
        (home / "passphrase").write_text("mine\n")
        assert hpc("up", "dev").code == 5
        assert log.read_text() == f"{root} file://{home} {home}/passphrase\n"

    @pytest.mark.parametrize("kind", ["preview", "up", "destroy", "refresh"])
    def test_the_cli_does_not_run_with_a_wrong_passphrase(self, hpc: Hpc, log: Path, root: Path, kind: str) -> None:
        salt = Crypter(lambda: "another").salt
        (root / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {salt}\n{STACK}")
        write_state()
        ended = hpc(kind, "dev", "--engine", "pulumi", *(["--yes"] if kind == "destroy" else []))
        assert ended.code == 1
        assert "the passphrase does not fit" in ended.err
        assert "the variable PULUMI_CONFIG_PASSPHRASE. Nothing was changed" in ended.err
        assert not log.exists()

    def test_the_lock_of_a_dead_run_is_removed_before_the_cli_runs(self, hpc: Hpc, log: Path) -> None:
        lock = write_state().parents[2] / "locks/organization/hpc/dev/left.json"
        lock.parent.mkdir(parents=True)
        row = {"pid": 2**22 + 1, "username": "u", "hostname": socket.gethostname(), "timestamp": "2026-01-01T00:00:00Z"}
        lock.write_text(json.dumps(row))
        hpc("refresh", "dev", "--engine", "pulumi")
        assert not lock.exists()
        assert log.read_text().splitlines()[-1].startswith("refresh --stack dev")

    def test_yes_is_passed_only_for_stacks_that_need_no_confirmation(self, hpc: Hpc, log: Path, root: Path) -> None:
        with (root / "Pulumi.dev.yaml").open("a") as file:
            file.write("    deletion_protection: true\n")
        hpc("up", "dev", "--engine", "pulumi")
        assert log.read_text().splitlines()[-1] == "up --stack dev --suppress-outputs"

    def test_stacks_and_outputs_of_other_backends_are_read_with_the_cli(
        self, hpc: Hpc, log: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = """[ "$1 $2" != 'stack ls' ] || echo '[{"name": "organization/hpc/other"}]'
[ "$1 $2" != 'stack output' ] || echo '{"login": "dev-login-0"}'"""
        tool("pulumi", PULUMI + answers)
        monkeypatch.setenv("PULUMI_BACKEND_URL", "gs://bucket")
        assert json.loads(hpc("outputs", "dev", "--json").out) == {"login": "dev-login-0"}
        hpc("up", "dev")
        assert [line.split(" --")[0] for line in log.read_text().splitlines()] == [
            "stack output",
            "stack output",  # what the cluster runs with, for the edit's effects
            "stack ls",
            "stack init dev",
            "up",
            "stack output",  # what it shows of them
            "stack output",  # whether that was a step of an upgrade
        ]

    def test_a_failure_without_events_shows_the_clis_error(self, hpc: Hpc, log: Path, tool: Tool) -> None:
        tool("pulumi", "echo 'error: no such bucket' >&2; exit 255")
        ended = hpc("up", "dev")
        assert (ended.code, ended.err.splitlines()[-1]) == (1, "error: stack init failed: no such bucket")
        write_state()
        ended = hpc("up", "dev", "--json")
        document = json.loads(ended.out)
        assert (ended.code, document["ok"], document["error"]) == (255, False, "no such bucket")

    def test_with_yes_the_cli_neither_asks_nor_previews(self, hpc: Hpc, log: Path) -> None:
        write_state()
        hpc("up", "dev")
        hpc("refresh", "dev")
        hpc("destroy", "dev")
        assert log.read_text().splitlines() == [
            "up --stack dev --yes --skip-preview --suppress-outputs",
            "refresh --stack dev --yes --skip-preview",
            "destroy --stack dev --yes --skip-preview",
        ]

    def test_options_are_passed_as_flags_of_the_cli(self, hpc: Hpc, log: Path) -> None:
        write_state()
        given = ["--target=urn:a", "--target=urn:b", "--replace=urn:c", "--refresh", "--diff", "--expect-no-changes"]
        hpc("up", "dev", *given, "--target-dependents", "-m", "why not")
        told = log.read_text().splitlines()[-1].split("--")
        wanted = [*given, "--target-dependents", "--message=why not", "--yes", "--skip-preview", "--suppress-outputs"]
        assert sorted(f"--{item.strip()}" for item in told[2:]) == sorted(wanted)
        hpc("preview", "dev", "--exclude", "urn:a", "--exclude-dependents")
        assert (
            log.read_text().splitlines()[-1]
            == "preview --stack dev --exclude=urn:a --exclude-dependents --suppress-outputs"
        )
        hpc("up", "dev", "--parallel", "8")
        wanted = "up --stack dev --parallel 8 --yes --skip-preview --suppress-outputs"
        assert log.read_text().splitlines()[-1] == wanted
        file = project.ROOT / "Pulumi.dev.yaml"
        hpc("preview", "dev", "--json", "--config-file", str(file))
        assert log.read_text().splitlines()[-1] == f"preview --stack dev --config-file {file} --json --suppress-outputs"

    @pytest.mark.parametrize("kind", ["destroy", "refresh"])
    @pytest.mark.parametrize("engine", ["pulumi", "embedded"])
    def test_destroying_a_stack_without_state_runs_no_step(self, hpc: Hpc, log: Path, kind: str, engine: str) -> None:
        ended = hpc(kind, "dev", "--engine", engine)
        assert (ended.code, ended.err) == (0, "Nothing to do: stack dev has not been brought up.\n")
        assert not log.exists()
        assert json.loads(hpc(kind, "dev", "--engine", engine, "--json").out)["ok"] is True
        assert "there is no stack 'nowhere'" in hpc(kind, "nowhere", "--engine", engine).err

    def test_ctrl_c_exits_with_130(self, hpc: Hpc, log: Path, tool: Tool) -> None:
        write_state()
        tool("pulumi", "kill -INT $PPID; sleep 0.1; echo stopped; exit 255")
        assert hpc("up", "dev").code == 130
        ended = hpc("up", "dev", "--json")
        assert (ended.code, json.loads(ended.out)["ok"]) == (130, False)
        tool("pulumi", "kill -INT $PPID; sleep 0.1; exit 0")  # it came too late
        assert hpc("refresh", "dev").code == 0


def test_a_state_outside_of_files_is_imported_with_the_cli(hpc: Hpc, log: Path) -> None:
    write_state()
    assert hpc("import", "dev", "--", "a:b:C", "name", "id", "--parent", "p=urn").code == 0
    told = "import --stack dev --generate-code=false --protect=false a:b:C name id --parent p=urn"
    assert log.read_text().splitlines() == [told]


def test_a_wrong_passphrase_of_a_backend_elsewhere_is_named_with_its_source(
    hpc: Hpc, log: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(
        "pulumi",
        """[ "$1 $2" != 'stack ls' ] || { echo '[{"name": "dev"}]'; exit; }
echo 'error: incorrect passphrase' >&2; exit 255""",
    )
    monkeypatch.setenv("PULUMI_BACKEND_URL", "gs://bucket")
    document = json.loads(hpc("preview", "dev", "--json", "--engine", "pulumi").out)
    where = "The passphrase was taken from the variable PULUMI_CONFIG_PASSPHRASE."
    assert document["error"] == f"incorrect passphrase\n{where}"


def test_a_preview_with_diff_shows_the_clis_events_as_the_embedded_engine_does(hpc: Hpc, log: Path, tool: Tool) -> None:
    """The CLI itself prints the whole text of each file that changes."""
    write_state()
    tool("pulumi", f'echo "$*" >>{log}; cat {HERE}/pulumi/preview.ndjson')
    ended = hpc("preview", "dev", "--diff")
    assert ended.code == 0
    assert log.read_text().splitlines()[-1].endswith("--diff --suppress-outputs --json")
    document = json.loads(hpc("preview", "dev", "--diff", "--json").out)
    assert ended.out.startswith("Previewing stack dev\n")
    assert all(f" {step['name']}  " in ended.out for step in document["steps"])
    assert "to create" in ended.out.splitlines()[-1]


class TestJson:
    """The events are what the CLI 3.260 printed for a small program of command and random, less the SDK's debugging."""

    def test_events_convert_to_the_document_of_the_embedded_engine(self, hpc: Hpc, log: Path, tool: Tool) -> None:
        write_state()
        tool("pulumi", f'echo "$PULUMI_ENABLE_STREAMING_JSON_PREVIEW" >&2; cat {HERE}/pulumi/preview.ndjson')
        ended = hpc("preview", "dev", "--json")
        assert ended.err.endswith("\ntrue\n")
        document = json.loads(ended.out)
        ours = json.loads(hpc("preview", "dev", "--json", "--engine", "embedded").out)
        assert document.keys() == ours.keys() - {"error"} | {"seconds", "counts", "steps", "failures"}
        assert (document["stack"], document["kind"], document["ok"], document["seconds"]) == ("dev", "preview", True, 2)
        assert document["counts"] == {"same": 3, "replace": 2, "create": 2}
        steps = {step["name"]: step for step in document["steps"]}
        assert steps["pet"]["changes"] == [{"path": "length", "kind": "update", "old": 2, "new": 3, "replaces": True}]
        assert steps["ok"]["changes"] == [
            {"path": "triggers[0]", "kind": "update", "old": "able-tern", "new": "[unknown]", "replaces": True}
        ]
        assert steps["after"]["inputs"] == {"create": "true"}
        assert document["messages"] == [
            {"severity": "warning", "message": "careful", "urn": "urn:pulumi:t::ref::command:local:Command::ok"}
        ]

    def test_failed_resources_are_in_the_document(self, hpc: Hpc, log: Path, tool: Tool) -> None:
        write_state()
        tool("pulumi", f"cat {HERE}/pulumi/up.ndjson; exit 1")
        ended = hpc("up", "dev", "--json")
        document = json.loads(ended.out)
        assert (ended.code, document["ok"]) == (1, False)
        (failure,) = document["failures"]
        assert failure["op"] == "create"
        assert failure["urn"].endswith("::bad")
        assert failure["message"].startswith("exit status 3: running")
        assert [step["name"] for step in document["steps"]] == ["pet", "pw", "sec", "ok", "bad"]
        assert "[secret]" not in json.dumps(document["steps"])  # an `up` tells no inputs

    def test_changed_secrets_are_listed_without_their_values(self) -> None:
        secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "[secret]"}
        step = {
            "op": "update", "urn": "urn:pulumi:t::ref::a:b:C::c", "type": "a:b:C", "old": {"inputs": {"key": secret}},
            "new": {"inputs": {"key": secret}}, "detailedDiff": {"key": {"diffKind": "update", "inputDiff": True}},
        }  # fmt: skip
        (plan,) = (
            RunEvents([json.dumps({"resourcePreEvent": {"metadata": step}})]).result("up", ok=True, outputs={}).changes
        )
        assert [(change.path, change.old, change.new) for change in plan.changes] == [("key", "[secret]", "[secret]")]

    def test_a_replacement_that_deletes_first_has_the_changes_of_its_inputs(self) -> None:
        """CLI 3.274.1 sends the deletion first, without new inputs."""
        meta = {"urn": "urn:pulumi:t::ref::a:b:C::c", "type": "a:b:C"}
        old, new = ({"custom": True, "inputs": {"kept": 1, "word": word}} for word in ("old", "new"))
        steps: list[dict[str, object]] = [
            {"op": "delete-replaced", **meta, "old": old, "new": None},
            {"op": "replace", **meta, "old": old, "new": new, "keys": ["word"]},
            {"op": "create-replacement", **meta, "old": old, "new": new, "keys": ["word"]},
        ]
        lines = [json.dumps({"resourcePreEvent": {"metadata": step}}) for step in steps]
        (plan,) = RunEvents(lines).result("preview", ok=True, outputs={}).changes
        assert plan.op == "replace"
        assert [(change.path, change.replaces) for change in plan.changes] == [("word", True)]
        (plan,) = RunEvents(lines[:1]).result("up", ok=True, outputs={}).changes
        assert (plan.op, plan.changes) == ("replace", ())

    def test_a_replacement_without_changed_inputs_has_its_cause(self) -> None:
        """CLI 3.274.1 blames the id for a replacement that was asked for (resource/deploy/step_generator.go)."""
        state = {"custom": True, "inputs": {"kept": 1}}
        step = {"op": "replace", "urn": "urn:pulumi:t::ref::a:b:C::c", "type": "a:b:C", "old": state, "new": state}
        lines = [json.dumps({"resourcePreEvent": {"metadata": {**step, "keys": ["id"]}}})]
        (plan,) = RunEvents(lines).result("preview", ok=True, outputs={}).changes
        assert [(change.path, change.replaces) for change in plan.changes] == [("id", True)]

    def test_a_file_is_shown_by_its_hash(self) -> None:
        """CLI 3.274.1 leaves out its text (filterAsset in engine/events.go)."""
        asset = {
            "4dabf18193072939515e22adb298388d": "c44067f5952c0a294b673a41bacd8c17",
            "hash": "ac57ab837ddee4a0604e46a93cd8a6e713fbb562196b4060ce92f9562aea81db",
            "text": "<contents elided>",
        }
        step = {
            "op": "create",
            "urn": "urn:pulumi:t::ref::a:b:C::c",
            "type": "a:b:C",
            "new": {"inputs": {"file": asset}},
        }
        lines = [json.dumps({"resourcePreEvent": {"metadata": step, "planning": True}})]
        (plan,) = RunEvents(lines).result("preview", ok=True, outputs={}).changes
        assert plan.inputs == {"file": "file ac57ab837dde"}

    def test_only_providers_that_the_program_declares_are_steps(self) -> None:
        """CLI 3.274.1 begins the names of its own ones with `default`."""
        urn = "urn:pulumi:t::ref::pulumi:providers:kubernetes::"
        steps = [
            {"op": "create", "urn": urn + name, "type": "pulumi:providers:kubernetes"}
            for name in ("default_4_1", "own")
        ]
        lines = [json.dumps({"resourcePreEvent": {"metadata": step}}) for step in steps]
        assert [plan.urn for plan in RunEvents(lines).result("up", ok=True, outputs={}).changes] == [urn + "own"]
