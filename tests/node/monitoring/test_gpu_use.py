"""The use of GPUs by jobs is summed up, and users get mail about idle GPUs."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from monitoring import gpu_use, prometheus
from monitoring.slurm_metrics import gpu_job_metrics
from system import cluster_state
from system.host import SetupError

NOTHING: dict[str, dict[str, float]] = {name: {} for name in (*gpu_use.QUERIES, "idle")}


def used(job: str = "7", **figures: float) -> dict[str, dict[str, float]]:
    usual = {"gpus": 2.0, "busy": 1.0, "watts": 400.0, "memory_mib": 100.0}
    return {**NOTHING, **{name: {job: value} for name, value in {**usual, **figures}.items()}}


def after(jobs: list[dict], found: dict, now: float) -> tuple[list[dict], list[dict]]:
    return gpu_use.add({job["job"]: job for job in jobs}, found, now, 300)


def test_use_is_summed_up_over_any_intervals():
    jobs, _ = after([], used(), 1000)
    for now in (1030, 1090, 1100):
        jobs, _ = after(jobs, used(), now)
    assert jobs == [
        {"job": "7", "seconds": 200.0, "until": 1100, "gpus": 2, "busy": 100.0, "watts": 40000.0, "memory_mib": 100.0}
    ]


def test_long_gaps_do_not_count_and_ended_jobs_stay():
    jobs, _ = after([], used(), 1000)
    jobs, _ = after(jobs, used(), 9000)
    assert jobs[0]["seconds"] == 0
    assert after(jobs, NOTHING, 9030)[0] == jobs


@pytest.mark.parametrize("interval", [10, 30, 120, 300])
def test_use_is_summed_up_at_any_interval_of_collection(
    interval: int, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also if a collection is late, or missing, and with Prometheus on a machine of its own."""
    clock = [1000.0]
    monkeypatch.setattr(gpu_use.time, "time", lambda: clock[0])
    monkeypatch.setattr(gpu_use, "FILE", tmp_path / "gpu-use.jsonl")
    answers = {"gpus": 2.0, "busy": 1.0}

    def query(expression: str) -> list[dict[str, object]]:
        figure = next((name for name in answers if expression.startswith(gpu_use.QUERIES[name][:30])), "")
        return [{"metric": {"hpc_job": "7"}, "value": [0.0, str(answers[figure])]}] if figure else []

    monkeypatch.setattr(prometheus, "query", query)
    for intervals in (0, 1, 1.1, 2):
        clock[0] += intervals * interval
        gpu_use.publish("the idle ones", interval)
        clock[0] += 0.5 * interval  # the other machine's loop is half an interval off
        assert not list(gpu_use.collect(gpu_use.read_published(interval), interval))
        clock[0] -= 0.5 * interval
    (job,) = map(json.loads, (tmp_path / "gpu-use.jsonl").read_text().splitlines())
    assert (job["seconds"], job["busy"]) == pytest.approx((2 * 4.1 * interval, 4.1 * interval), abs=1)


def test_idle_gpus_are_reported_once():
    jobs, named = after([], used(idle=1.0), 1000)
    assert [(job["job"], job["idle"]) for job in named] == [("7", 1)]
    jobs, named = after(jobs, used(), 1030)
    assert (named, "idle" in jobs[0]) == ([], False)
    jobs, named = after(jobs, used(idle=2.0), 1060)
    assert (named, jobs[0]["idle"]) == ([], 2)


def test_the_file_keeps_the_newest_jobs():
    jobs = [{"job": str(n), "seconds": 1.0, "until": float(n)} for n in range(gpu_use.KEPT + 5)]
    kept, _ = after(jobs, NOTHING, 9e9)
    assert [job["job"] for job in kept[:1] + kept[-1:]] == [str(gpu_use.KEPT + 4), "5"]


@pytest.mark.parametrize(
    ("mail", "sent"),
    [("MailUser=a@example.org MailType=BEGIN,FAIL", ["a@example.org"]), ("MailUser=a MailType=END", []), ("", [])],
)
def test_mail_is_sent_to_jobs_that_request_it(
    mail: str, sent: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    calls: list[tuple[str, ...]] = []

    def run(*command: str, timeout: float) -> str:
        assert timeout
        calls.append(command)
        return f"JobId=7 JobName=x MailUser=eve MailType=FAIL\n   {mail}\n" if command[0] == "scontrol" else ""

    monkeypatch.setattr(gpu_use, "FILE", tmp_path / "gpu-use.jsonl")
    monkeypatch.setattr(gpu_use, "run", run)
    answers = used(idle=1.0)

    def query(expression: str) -> list[dict[str, object]]:
        figures = answers[next(name for name, asked in QUERIES.items() if asked == expression)]
        return [{"metric": {"hpc_job": job}, "value": [0.0, str(value)]} for job, value in figures.items()]

    monkeypatch.setattr(prometheus, "query", query)
    assert not list(gpu_use.collect(gpu_use.query_now("the idle ones", 30), 30))
    assert not list(gpu_use.collect(gpu_use.query_now("the idle ones", 30), 30))
    assert [command[-1] for command in calls if gpu_use.MAIL in command] == sent
    assert json.loads((tmp_path / "gpu-use.jsonl").read_text())["job"] == "7"


QUERIES = {**gpu_use.QUERIES, "idle": "the idle ones"}
QUERIES["gpus"] = QUERIES["gpus"].replace("LOOKBACK", "180")
JSON = st.recursive(
    st.none() | st.floats() | st.text(), lambda value: st.lists(value) | st.dictionaries(st.text(), value)
)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file by which the machine of Prometheus gives the controller what it has."""
    monkeypatch.setattr(gpu_use, "PUBLISHED", tmp_path / "gpus.json")
    monkeypatch.setattr(cluster_state, "write_as_slurm", lambda path, text: path.write_text(text))
    return tmp_path / "gpus.json"


def test_the_controller_reads_only_current_figures(published: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(SetupError, match="nothing new"):
        gpu_use.read_published(30)
    monkeypatch.setattr(prometheus, "query", lambda _: [{"metric": {"hpc_job": "7"}, "value": [0.0, "2"]}])
    gpu_use.publish("the idle ones", 30)
    assert gpu_use.read_published(30) == {name: {"7": 2.0} for name in QUERIES}
    old = json.loads(published.read_text()) | {"time": 1000.0}
    published.write_text(json.dumps(old))
    with pytest.raises(SetupError, match="nothing new"):
        gpu_use.read_published(30)


@given(
    st.recursive(st.none() | st.floats() | st.text(), lambda value: st.lists(value) | st.dictionaries(st.text(), value))
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_published_job_numbers_are_never_options_of_commands(published: Path, value: object):
    rows = {"--all": 1.0, "7; reboot": 1.0, "_": 1.0, "7": 1.0}
    published.write_text(json.dumps({"time": time.time(), "gpus": rows, "busy": value}))
    try:
        found = gpu_use.read_published(30)
    except SetupError:
        return
    assert found["gpus"] == {"7": 1.0}
    assert all(job.replace("_", "").isdigit() for figures in found.values() for job in figures)


def test_jobs_with_gpus_have_user_and_account():
    text = (
        "7                   |alice  |research |cpu=2,mem=1G,node=1,billing=2,gres/gpu=2,gres/gpu:h100=2   |\n"
        "8                   |bob    |         |cpu=2,mem=1G,node=1,billing=2 |\n"
    )
    assert [(sample.value, sample.labels) for sample in gpu_job_metrics(text)] == [
        (2, {"hpc_job": "7", "user": "alice", "account": "research"})
    ]
