"""`./hpc check cloud`: rows as text and as JSON, their exit code, and the record in the state dir."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

import pytest

from cli.commands import cloud
from cli.operation import drain_recovery
from cli.operation.cloud_check import kept_prices, last
from cli.stack import state_dir
from cluster.cloud_checks import CloudRow
from cluster.platforms.gcp import platform
from cluster.platforms.gcp.cloud_checks import SIZES
from components import cloud_questions
from components.deploy import config_text
from components.gcp import cloud_checks
from tests.cli.conftest import Hpc, Tool, write_state
from tests.cluster import stacks
from tests.lab.google.apis import Answer, Asked, GoogleApis, healthy, on, quotas, refusal, reservation
from tests.lab.google.skus import COMPUTE, LAS_VEGAS, SKUS, sku
from tests.lab.public_files import served_at
from tests.waiting import patience

BILLING = "cloudbilling.projects.getBillingInfo"
PRICES = "cloudbilling.services.skus.list"


@pytest.fixture
def apis(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleApis]:
    """The stack `classic`, in a project in which everything can be created."""
    (root / "Pulumi.classic.yaml").write_text(stacks.EVERY["classic"].read_text())
    with GoogleApis(healthy) as served:
        monkeypatch.setattr(cloud_checks, "GOOGLE", served.endpoint)
        monkeypatch.setattr(cloud_questions, "PAUSES", ())
        yield served


def test_a_project_in_which_all_is_well(hpc: Hpc, apis: GoogleApis) -> None:
    ended = hpc("check", "cloud", "classic")
    assert (ended.code, ended.err) == (0, "")
    assert "ok             billing account of my-project: linked to an open billing account\n" in ended.out
    assert ended.out.splitlines()[-1].endswith(" ok, 0 wrong, 0 could not ask")


def test_a_red_row_has_its_command_and_an_exit_code(hpc: Hpc, apis: GoogleApis) -> None:
    apis.rules.insert(0, on(BILLING, (200, {})))
    ended = hpc("check", "cloud", "classic")
    assert ended.code == 1
    lines = ended.out.splitlines()
    at = lines.index("wrong          billing account of my-project: no open billing account pays for the project")
    assert lines[at + 1].strip() == "to do: gcloud billing projects link my-project --billing-account ACCOUNT"


def test_an_unanswered_question_is_no_failure(hpc: Hpc, apis: GoogleApis) -> None:
    apis.rules.insert(0, on(BILLING, refusal(403, "denied")))
    ended = hpc("check", "cloud", "classic", "--json")
    document = json.loads(ended.out)
    assert (ended.code, document["ok"], document["stack"]) == (0, True, "classic")
    (row,) = [row for row in document["checks"] if row["outcome"] == "could not ask"]
    assert row["seen"] == "you lack the permission resourcemanager.projects.get"


def test_the_answers_are_kept_with_their_date(hpc: Hpc, apis: GoogleApis) -> None:
    assert last("classic") is None
    document = json.loads(hpc("check", "cloud", "classic", "--json").out)
    kept = last("classic")
    assert kept is not None
    assert json.loads(json.dumps({"stack": "classic", **kept.document()})) == document


def test_a_record_that_is_not_one_is_none(hpc: Hpc, apis: GoogleApis) -> None:
    hpc("check", "cloud", "classic")
    (state_dir.directory() / "cloud-checks" / "classic.json").write_text(
        '{"date": "2026-11-28", "checks": [{"id": "x"}]}'
    )
    assert last("classic") is None


def test_a_stack_without_a_cloud_is_refused(hpc: Hpc, root: Path) -> None:
    ended = hpc("check", "cloud", "dev")
    assert ended.code == 1
    assert "stack dev is on platform local: check cloud is for stacks on gcp and nebius." in ended.err


def test_no_credential_is_an_error_in_words(hpc: Hpc, apis: GoogleApis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_checks, "GOOGLE", "https://{}.googleapis.com")
    monkeypatch.setenv("GOOGLE_CREDENTIALS", "/nowhere")
    ended = hpc("check", "cloud", "classic", "--json")
    assert ended.code == 1
    assert "GOOGLE_CREDENTIALS is neither a key nor the path of one" in json.loads(ended.out)["error"]


class TestUp:
    """`up` asks before its first step."""

    @pytest.fixture(autouse=True)
    def steps(self, apis: GoogleApis, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A login, and a Pulumi CLI that records each `up` in this file and creates nothing."""
        monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
        monkeypatch.setenv("LOG", str(tmp_path / "steps"))
        tool("pulumi", 'case "$*" in *version*) echo v3.272.0 ;; up*) echo "$*" >>"$LOG" ;; esac\n')
        return tmp_path / "steps"

    def test_a_red_row_stops_it(self, hpc: Hpc, apis: GoogleApis, steps: Path) -> None:
        apis.rules.insert(0, on(BILLING, (200, {})))
        ended = hpc("up", "classic", "--yes")
        assert "billing account of my-project: no open billing account pays for the project" in ended.error
        assert "to do: gcloud billing projects link my-project --billing-account ACCOUNT" in ended.err
        document = json.loads(hpc("up", "classic", "--yes", "--json").out)
        assert (document["kind"], document["ok"]) == ("up", False)
        assert [row["id"] for row in document["checks"] if row["outcome"] == "wrong"] == ["billing"]
        assert not steps.exists()

    def test_a_question_without_an_answer_does_not(self, hpc: Hpc, apis: GoogleApis, steps: Path) -> None:
        apis.rules.insert(0, on(BILLING, refusal(403, "denied")))
        assert "before the first step: " in hpc("up", "classic", "--yes").err
        assert steps.exists()

    def test_an_archive_that_is_out_of_reach_does_not(
        self, hpc: Hpc, apis: GoogleApis, steps: Path, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "Pulumi.a3ultra.yaml").write_text(stacks.EVERY["a3ultra"].read_text())
        apis.rules.insert(0, on("compute.reservations.get", reservation("a3-ultragpu-8g")))
        served_at("http://127.0.0.1:1/{}", monkeypatch)
        assert ", 0 wrong, " in hpc("up", "a3ultra", "--yes").err
        kept = last("a3ultra")
        assert kept is not None
        assert {row.outcome.value for row in kept.rows if row.id == "packages"} == {"could not ask"}
        assert steps.exists()

    def test_no_check_leaves_it_out(self, hpc: Hpc, apis: GoogleApis, steps: Path) -> None:
        apis.rules.insert(0, on(BILLING, (200, {})))
        hpc("up", "classic", "--yes", "--no-check")
        assert apis.asked == []
        assert steps.exists()

    def test_a_preview_asks_nothing(self, hpc: Hpc, apis: GoogleApis) -> None:
        ended = hpc("preview", "classic")
        assert (ended.code, apis.asked) == (0, [])
        assert "Seen in your project" not in ended.out

    @pytest.mark.parametrize(
        ("edit", "asks"),
        [(("", ""), False), (("name: alice", "name: carol"), False), (("e2-standard-4", "e2-standard-8"), True)],
        ids=["no edit", "a user", "a machine type"],
    )
    def test_of_a_cluster_that_is_up_only_an_edit_that_adds_to_the_cloud_is_asked_for(
        self, hpc: Hpc, root: Path, apis: GoogleApis, edit: tuple[str, str], asks: bool
    ) -> None:
        state = write_state("classic", "pulumi:pulumi:Stack")
        document = json.loads(state.read_text())
        running = config_text(stacks.config("classic"))
        document["checkpoint"]["latest"]["resources"][0] |= {"custom": False, "outputs": {"config": running}}
        state.write_text(json.dumps(document))
        file = root / "Pulumi.classic.yaml"
        assert edit[0] in file.read_text()
        file.write_text(file.read_text().replace(*edit))
        hpc("up", "classic", "--yes")
        assert bool(apis.asked) is asks

    def test_it_does_not_ask_again_on_the_same_day_or_after_an_up_that_failed(
        self, hpc: Hpc, apis: GoogleApis, steps: Path
    ) -> None:
        hpc("check", "cloud", "classic")
        count = len(apis.asked)
        hpc("up", "classic", "--yes")
        assert len(apis.asked) == count > 0
        record = state_dir.directory() / "cloud-checks" / "classic.json"
        kept = last("classic")
        assert kept is not None
        record.write_text(record.read_text().replace(kept.date[:10], "2026-01-01"))
        hpc("up", "classic", "--yes")  # the one before ended without a state: it has failed
        assert len(apis.asked) == count
        drain_recovery.end("classic")
        hpc("up", "classic", "--yes")
        # `up` does not read the price list.
        assert len([asked for asked in apis.asked if asked.id == PRICES]) == 2
        assert len(apis.asked) == 2 * count - 2
        assert len(steps.read_text().splitlines()) == 3

    @pytest.mark.parametrize("has_record", [True, False])
    def test_what_an_up_that_failed_has_created_does_not_stop_the_next(
        self, hpc: Hpc, apis: GoogleApis, steps: Path, has_record: bool
    ) -> None:
        used = [row | {"usage": row["limit"]} for row in quotas(of_project=False)]
        apis.rules.insert(0, on("compute.regions.get", (200, {"quotas": used})))
        assert "quota INSTANCES" in hpc("up", "classic", "--yes").err
        assert not steps.exists()
        if has_record:
            drain_recovery.begin("classic")
        else:
            mine = {"name": "classic-controller", "labels": {"hpc-cluster": "classic"}}
            apis.rules.insert(0, on("compute.instances.list", (200, {"items": [mine]})))
        assert hpc("check", "cloud", "classic").code == 1
        hpc("up", "classic", "--yes")
        assert steps.exists()

    @pytest.mark.parametrize(
        ("changes", "note"),
        [
            ({"GOOGLE_CREDENTIALS": "/nowhere"}, "The cloud was not asked before the first step: "),
            ({}, ""),
        ],
        ids=["a key that is gone", "none"],
    )
    def test_a_login_that_does_not_work_is_the_provider_s_to_report(
        self, hpc: Hpc, steps: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], note: str
    ) -> None:
        monkeypatch.setattr(cloud_checks, "GOOGLE", "https://{}.googleapis.com")
        monkeypatch.setattr(platform, "_PRODUCT", Path("/nowhere"))
        monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN")
        for name, value in changes.items():
            monkeypatch.setenv(name, value)
        ended = hpc("up", "classic", "--yes")
        assert note in ended.err
        assert ("The cloud" in ended.err) is bool(note)
        assert steps.exists()


class TestLaterPreview:
    """A preview has the answers of the last run, with their date, and the assumptions that they settle."""

    @pytest.fixture(autouse=True)
    def cli(self, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
        """A login, and a Pulumi CLI whose preview is empty."""
        monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
        tool("pulumi", 'case "$*" in *version*) echo v3.272.0 ;; esac\n')

    def test_what_holds(self, hpc: Hpc, apis: GoogleApis) -> None:
        hpc("check", "cloud", "classic")
        kept = last("classic")
        assert kept is not None
        lines = hpc("preview", "classic").out.splitlines()
        at = lines.index(f"Seen in your project on {kept.date[:10]}: {kept.summary} (./hpc check cloud classic)")
        assert lines[at + 1 :] == []
        document = json.loads(hpc("preview", "classic", "--json").out)
        assert document["seen"] == json.loads(json.dumps(kept.document()))

    def test_what_does_not(self, hpc: Hpc, apis: GoogleApis) -> None:
        apis.rules.insert(0, on("compute.acceleratorTypes.get", refusal(404, "not found")))
        hpc("check", "cloud", "classic")
        wrong = "  wrong: accelerator nvidia-tesla-t4 in us-west4-a: us-west4-a has no nvidia-tesla-t4"
        assert hpc("preview", "classic").out.splitlines()[-1] == wrong

    def test_answers_to_the_file_before_an_edit_say_so(self, hpc: Hpc, root: Path, apis: GoogleApis) -> None:
        hpc("check", "cloud", "classic")
        file = root / "Pulumi.classic.yaml"
        file.write_text(file.read_text().replace("gcp:project: my-project", "gcp:project: another-project"))
        assert ", of the stack file before an edit: " in hpc("preview", "classic").out


class TestSend:
    """--send writes the report for others."""

    def test_it_has_what_was_seen(self, hpc: Hpc, apis: GoogleApis, tmp_path: Path) -> None:
        apis.rules.insert(0, on(BILLING, (200, {})))
        file = tmp_path / "seen.json"
        ended = hpc("check", "cloud", "classic", "--json", "--send", str(file))
        assert (ended.code, json.loads(ended.out)["ok"]) == (1, False)
        assert ended.err == f"Wrote what was seen, without your names: {file}. Read it before you send it.\n"
        document = json.loads(file.read_text())
        assert (document["hpc"], document["platform"]) == ("1.2.3", "gcp")
        rows = document["checks"]
        assert [row["id"] for row in rows if row["outcome"] == "wrong"] == ["billing"]
        (row,) = [row for row in rows if row["id"] == "machine-type" and "n1-standard-1" in row["asked"]]
        assert (row["seen"], row["assumptions"]) == ("1 vCPUs, 3,840 MiB, 0 GPUs", [SIZES])
        assert "my-project" not in file.read_text()

    def test_a_file_that_exists_is_kept_and_nothing_asked(self, hpc: Hpc, apis: GoogleApis, tmp_path: Path) -> None:
        file = tmp_path / "seen.json"
        file.write_text("mine")
        ended = hpc("check", "cloud", "classic", "--send", str(file))
        assert f"{file}: is there already, and is not overwritten. Give another name" in ended.error
        assert (file.read_text(), apis.asked) == ("mine", [])

    def test_a_folder_that_does_not_is_an_error_after_the_rows(
        self, hpc: Hpc, apis: GoogleApis, tmp_path: Path
    ) -> None:
        ended = hpc("check", "cloud", "classic", "--send", str(tmp_path / "none" / "seen.json"))
        assert "seen.json: can't be written: No such file or directory." in ended.error
        assert "billing account of my-project" in ended.out


class TestPrices:
    """The price list is read by the command alone, and its prices are used by later previews and `cost`."""

    DEARER = sku("Nvidia Tesla T4 GPU running in Las Vegas", 0.4, regions=LAS_VEGAS)

    @pytest.fixture(autouse=True)
    def cli(self, tool: Tool, monkeypatch: pytest.MonkeyPatch, apis: GoogleApis) -> None:
        """A login, a Pulumi CLI whose preview is empty, and a list in which a T4 costs more than in the catalog."""
        monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
        tool("pulumi", 'case "$*" in *version*) echo v3.272.0 ;; esac\n')
        rows = [self.DEARER if row["description"] == self.DEARER["description"] else row for row in SKUS]
        apis.rules.insert(0, on(PRICES, (200, {"skus": rows}), COMPUTE))

    def test_they_are_kept_and_used(self, hpc: Hpc) -> None:
        before = json.loads(hpc("cost", "classic", "--json").out)
        ended = hpc("check", "cloud", "classic")
        assert (
            "ok             list price of gpu-t4 in us-west4: 0.4 USD per GPU hour in Google's list, 0.37 in"
            in ended.out
        )
        today = ended_today()
        after = json.loads(hpc("cost", "classic", "--json").out)
        (row,) = [row for row in after["rows"] if row["item"] == "gpu-t4"]
        assert (row["rate"], row["source"], row["date"]) == (0.4, "Google's list, as your project saw it", today)
        assert after["always"]["hour"] == pytest.approx(before["always"]["hour"] + 4 * 0.03, abs=2e-4)
        shown = hpc("preview", "classic").out
        assert f"0.4 a GPU hour, 1.60 an hour, 1,168.00 a month; list price of {today} (Google's list, " in shown
        assert json.loads(hpc("preview", "classic", "--json").out)["price"] == {
            key: value for key, value in after.items() if key not in ("stack", "old")
        }

    def test_other_regions_and_stacks_keep_theirs(self, hpc: Hpc, root: Path) -> None:
        hpc("check", "cloud", "classic")
        file = root / "Pulumi.classic.yaml"
        file.write_text(file.read_text().replace("us-west4", "us-west1"))
        hpc("check", "cloud", "classic")
        kept = {(row.item, *row.regions): row.regions for row in kept_prices()}
        assert kept["gpu-t4", "us-west4"] == {"us-west4": 0.4}
        assert kept["gpu-t4", "us-west1"] == {"us-west1": 0.35}
        assert len(kept) == len(kept_prices())

    @pytest.mark.parametrize(
        "text", ["", "[1]", '[{"dated": "now"}]', '[{"dated": "2026-11-29", "usd": 1}]', '{"a": {}}', "\0"]
    )
    def test_a_file_that_is_none_is_left_out(self, hpc: Hpc, text: str) -> None:
        hpc("check", "cloud", "classic")
        (state_dir.directory() / "list-prices.json").write_text(text)
        assert list(kept_prices()) == []
        assert hpc("cost", "classic").code == 0

    def test_a_list_that_is_refused_is_no_failure(self, hpc: Hpc, apis: GoogleApis) -> None:
        apis.rules.insert(0, on(PRICES, refusal(403, "no", reason="SERVICE_DISABLED", consumer="projects/my-project")))
        ended = hpc("check", "cloud", "classic")
        assert ended.code == 0
        assert ended.out.splitlines()[-1].endswith(" ok, 0 wrong, 1 could not ask")
        assert list(kept_prices()) == []

    def test_the_other_rows_are_printed_before_the_list_ends(
        self, hpc: Hpc, apis: GoogleApis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        printed = Event()

        def wait(asked: Asked) -> Answer | None:
            assert asked.id != PRICES or printed.wait(patience())
            return None

        def show(rows: Sequence[CloudRow]) -> None:
            if any(row.id == "billing" for row in rows):
                printed.set()

        apis.rules.insert(0, wait)
        monkeypatch.setattr(cloud, "_print", show)
        assert hpc("check", "cloud", "classic").code == 0
        assert "gpu-t4" in {row.item for row in kept_prices()}


def ended_today() -> str:
    """The day of UTC, as the last record has it."""
    kept = last("classic")
    assert kept
    return kept.date[:10]
