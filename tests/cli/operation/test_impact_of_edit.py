"""What an edit does to running jobs, said with the preview and before the first step of an `up`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli import console
from cli.display.views import DocumentView, PlainView
from cli.stack import impact_of_edit, project
from cluster.load import parse
from tests.cli import events
from tests.cli.conftest import STACK, Hpc

EDITED = STACK.replace("{count: 1}", "{count: 2}").replace("default: true", 'default: true, max_time: "01:00:00"')
REFUSED = STACK.replace("    name: dev\n", "    name: other\n    network: {cidr: 10.99.0.0/20}\n")
MADE_WITH = {
    "platform": "local",
    "name": "dev",
    "nodesets": {"cpu": {"count": 1}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
}


@pytest.fixture
def made(hpc: Hpc, tmp_path: Path) -> Callable[..., None]:
    """Gives stack dev a state with these outputs."""

    def make(**outputs: object) -> None:
        stack = {
            "urn": "urn:pulumi:dev::hpc::pulumi:pulumi:Stack::hpc-dev",
            "type": "pulumi:pulumi:Stack",
            "outputs": outputs,
        }
        file = tmp_path / "state.json"
        file.write_text(json.dumps({"version": 3, "deployment": {"resources": [stack]}}))
        assert hpc("state", "import", "dev", str(file)).code == 0

    return make


def told(root: Path, text: str) -> impact_of_edit.Effects | None:
    import yaml  # noqa: PLC0415

    (root / "Pulumi.dev.yaml").write_text(text)
    return impact_of_edit.effects_of_edit("dev", parse(yaml.safe_load(text)["config"]), None)


class TestOf:
    def test_a_new_stack_and_one_of_an_old_version_have_no_effects(self, root: Path, made: Callable[..., None]) -> None:
        assert told(root, EDITED) is None
        made(login="dev-login-0")
        assert told(root, EDITED) is None
        made(config={"platform": "local", "removed_key": 1})
        assert told(root, EDITED) is None

    def test_an_edit_is_compared_with_what_the_cluster_runs_with(self, root: Path, made: Callable[..., None]) -> None:
        made(config=MADE_WITH)
        found = told(root, EDITED)
        assert found
        assert [(change.path, change.effect.value) for change in found.changes] == [
            ("nodesets.cpu.count", "restart"),
            ("partitions.cpu.max_time", "reconfigure"),
        ]


class TestShown:
    def test_a_preview_ends_with_the_effects(
        self, root: Path, made: Callable[..., None], capfd: pytest.CaptureFixture[str], reviewed
    ) -> None:
        made(config=MADE_WITH)
        found, refused = told(root, EDITED), told(root, REFUSED)
        assert found
        assert refused
        texts = {kind: "\n".join(line for line, _ in item.lines(steps=True)) for kind, item in
                 {"an edit": found, "an edit that is refused": refused}.items()}  # fmt: skip
        reviewed("cli/effects", texts)
        console.stdout.cache_clear()
        with PlainView() as view:
            view.effects = found
            run = events.preview()
            for event in run:
                view.on_event(event)
            view.close(events.result(run))
        out = capfd.readouterr().out
        assert out.endswith(f"1 to create, 1 to update, 3 unchanged, in 1.2 s\n{texts['an edit']}\n")

    def test_steps_without_an_edit_get_an_explanation(self, root: Path, made: Callable[..., None]) -> None:
        made(config=MADE_WITH)
        same = told(root, STACK)
        assert same
        assert same.lines(steps=False) == []
        assert "another version of this program" in same.lines(steps=True)[0][0]

    @pytest.mark.parametrize(
        "option", ["--target=**::dev-cpu-0", "--exclude=**::dev-cpu-0", "--replace=**", "--refresh"]
    )
    def test_steps_that_an_option_asks_for_get_none(
        self, hpc: Hpc, root: Path, made: Callable[..., None], monkeypatch: pytest.MonkeyPatch, option: str
    ) -> None:
        made(config=MADE_WITH)
        (root / "Pulumi.dev.yaml").write_text(STACK)
        shown: list[impact_of_edit.Effects | None] = []
        run_embedded = "cli.operation.operation._run_embedded"
        monkeypatch.setattr(run_embedded, lambda _kind, _file, _chosen, effects: shown.append(effects) or 0)
        assert hpc("preview", "dev", option).code == 0
        (effects,) = shown
        assert effects
        assert effects.lines(steps=True) == []

    def test_effects_are_in_the_json_document(
        self, root: Path, made: Callable[..., None], capfd: pytest.CaptureFixture[str]
    ) -> None:
        made(config=MADE_WITH)
        with DocumentView() as view:
            view.effects = told(root, EDITED)
            view.close(events.result(events.preview()))
        document = json.loads(capfd.readouterr().out)["effects"]
        assert document["worst"] == "restart"
        assert document["fields"][1] == {
            "path": "partitions.cpu.max_time", "old": "INFINITE", "new": "01:00:00", "effect": "reconfigure",
            "reason": "the partition's line in slurm.conf; jobs that run keep what they were given",
            "command": "./hpc up dev",
        }  # fmt: skip


class TestRefused:
    def test_up_stops_before_the_first_step_and_prints_what_to_do(
        self,
        hpc: Hpc,
        made: Callable[..., None],
        tool: Callable[[str, str], Path],
        monkeypatch: pytest.MonkeyPatch,
        reviewed,
    ) -> None:
        monkeypatch.setattr("cli.operation.localhost.prepare", lambda: pytest.fail("a step was begun"))
        made(config=MADE_WITH)
        (project.ROOT / "Pulumi.dev.yaml").write_text(REFUSED)
        ended = hpc("up", "dev")
        assert (ended.code, ended.out) == (1, "")
        reviewed("cli/refused-edit", {"up": ended.err})
        document = json.loads(hpc("up", "dev", "--json").out)
        assert (document["ok"], document["effects"]["worst"]) == (False, "refused")
        tool("pulumi", "echo begun; exit 0")
        ended = hpc("up", "dev")
        assert (ended.code, ended.out) == (1, ""), "nor does the Pulumi CLI begin it"


class TestPulumiCli:
    """The same with the Pulumi CLI as engine."""

    def test_a_preview_by_the_cli_is_followed_by_the_effects(
        self,
        hpc: Hpc,
        root: Path,
        made: Callable[..., None],
        tool: Callable[[str, str], Path],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
        made(config=MADE_WITH)
        (root / "Pulumi.dev.yaml").write_text(EDITED)
        tool("pulumi", """echo '{"steps": []}'""")
        found = told(root, EDITED)
        assert found
        closing = "".join(f"{line}\n" for line, _ in found.lines(steps=True))
        assert hpc("preview", "dev").out == '{"steps": []}\n' + closing
        document = json.loads(hpc("preview", "dev", "--json").out)
        assert (document["steps"], document["effects"]["worst"]) == ([], "restart")
