"""A job's report: what Slurm's commands print becomes states, runs, use, trouble on its nodes, and advice."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm import job_report, output, pending_reasons
from slurm.job_report import FIELDS, JobError, advice, lines, report

NOW = 2_000_000_000.0
REASONS = Path(__file__).with_name("pending_reasons.txt")
"""Every reason of src/common/job_state_reason.c and slurm_protocol_defs.c at slurm-22-05-8-1, slurm-23-11-4-1,
slurm-24-11-5-1, slurm-25-05-0-1 and slurm-26-05-3-1."""
HELD = "billing=4,cpu=4,gres/gpu=2,mem=8192M,node=1"
RUN = {
    "JobIDRaw": "7", "JobID": "7", "JobName": "train", "User": "alice", "Account": "research", "Partition": "gpu",
    "QOS": "normal", "State": "COMPLETED", "ExitCode": "0:0", "Submit": "1999990000", "Eligible": "1999990000",
    "Start": "1999990100", "End": "1999993700", "ElapsedRaw": "3600", "TimelimitRaw": "600", "NodeList": "n-[0-1]",
    "ReqTRES": HELD, "AllocTRES": HELD, "TotalCPU": "00:00:00", "CPUTimeRAW": "14400", "Reason": "None",
}  # fmt: skip
STEP = {
    **RUN, "JobIDRaw": "7.0", "JobID": "7.0", "JobName": "python", "TotalCPU": "01:00:00",
    "TRESUsageInTot": "cpu=01:00:00,gres/gpumem=1G,gres/gpuutil=100,mem=1073741824",
}  # fmt: skip
WAITING = {"id": "7", "state": "PENDING", "reason": "Resources", "start": "N/A", "submit": "1999990000",
           "priority": "10", "partition": "gpu", "user": "alice", "name": "train", "dependency": "(null)"}  # fmt: skip


def asked(
    *rows: Mapping[str, str],
    queue: tuple[Mapping[str, str], ...] = (),
    comments: str = "",
    live: str = "",
    around: tuple[str, str, str, str] = ("", "", "", ""),
    records: str | None = None,
) -> Callable[[str], str]:
    """What the controller answers to both scripts."""

    def ask(script: str) -> str:
        (mark,) = set(re.findall(r"echo ([0-9a-f]{24})-", script))
        if "sacctmgr" in script:
            return f"{mark}-\n".join(around)
        text = "".join(mark.join(row.get(field, "") for field in FIELDS) + mark + "\n" for row in rows)
        names = [field.partition(":")[0] for field in job_report.WAITING]
        waiting = "".join("".join(row[name] + mark for name in names) + "\n" for row in queue)
        return f"{mark}-\n".join((text if records is None else records, waiting, comments, live))

    return ask


def one(*rows: Mapping[str, str], **more: Any) -> dict[str, Any]:
    (job,) = report("7", asked(*rows, **more), now=NOW)["jobs"]
    return job


def text_of(*rows: Mapping[str, str], **more: Any) -> str:
    return "\n".join(lines(report("7", asked(*rows, **more), now=NOW)))


def test_every_reason_of_slurm_has_words() -> None:
    names = REASONS.read_text().split()
    assert len(names) > 200
    assert [name for name in names if not pending_reasons.explain(name)] == []


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("ReqNodeNotAvail, UnavailableNodes:n-0", "down, drained, or reserved"),
        ("launch_failed_requeued_held", "scontrol release"),
        ("QOSGrpGRES", "jobs of its QOS together have as much as allowed: GPUs"),
        ("AssocGrpCPURunMinutesLimit", "jobs of its account together have as much as allowed: minutes of CPUs"),
        ("QOSMaxMemoryPerNode", "more memory than one job may have on a node"),
        ("MaxGRESRunMinsPerUser", "its user has as much as allowed: minutes of GPUs"),
        ("QOSMinCpuNotSatisfied", "less CPUs than its QOS requires"),
    ],
)
def test_reasons_in_words(reason: str, words: str) -> None:
    assert words in pending_reasons.explain(reason)


def test_a_text_of_slurmctlds_stands_for_itself() -> None:
    row = {**WAITING, "reason": "Nodes_required_for_job_are_DOWN"}
    assert "waits      Nodes required for job are DOWN" in text_of(queue=(row,))


def test_what_it_used() -> None:
    used = one(RUN, STEP)["used"]
    assert used == {
        "cpu_seconds": 3600.0, "cpu_efficiency": 0.25, "memory_bytes": 1 << 30, "gpu_utilization": 0.5,
        "gpu_memory_bytes": 1 << 30,
    }  # fmt: skip


def test_gpus_that_nobody_measured_are_said_to_be() -> None:
    step = {**STEP, "TRESUsageInTot": "cpu=01:00:00,mem=1G"}
    assert one(RUN, step)["used"]["gpu_utilization"] is None
    assert "GPUs       2, not measured: that takes `monitoring`" in text_of(RUN, step)


def test_a_running_job_has_what_its_steps_use_now() -> None:
    row = {**RUN, "State": "RUNNING", "End": "Unknown"}
    running = {**WAITING, "state": "RUNNING"}
    job = one(row, queue=(running,), live="7.batch|cpu=00:10:00,mem=4096M\n7.extern|cpu=00:00:00,mem=1M\n")
    assert (job["used"]["cpu_seconds"], job["used"]["memory_bytes"]) == (600.0, 4 << 30)
    assert job["waits"] is None


def test_each_run_of_a_requeued_job_with_its_comment() -> None:
    first = {**RUN, "State": "NODE_FAIL", "NodeList": "n-0", "AdminComment": "hpc: requeued from n-0: gpu-xid: 79"}
    other = {**RUN, "User": "bob"}
    job = one(other, first, STEP, RUN)
    assert [run["state"] for run in job["runs"]] == ["NODE_FAIL", "COMPLETED"]
    text = text_of(other, first, STEP, RUN)
    assert "1. " in text
    assert "on n-0: NODE_FAIL: hpc: requeued from n-0: gpu-xid: 79" in text


def test_the_newer_state_is_shown_and_who_cancelled_it() -> None:
    cancelled = {**RUN, "State": "CANCELLED by 2001"}
    gone = {**WAITING, "state": "CANCELLED"}
    assert one(cancelled, queue=(gone,))["state"] == "CANCELLED by 2001"
    assert one({**RUN, "State": "RUNNING", "End": "Unknown"}, queue=(gone,))["state"] == "CANCELLED"


def test_a_job_that_the_database_does_not_have_yet() -> None:
    job = one(queue=(WAITING,), around=("", "", "", "10\n30\n20\n"))
    assert (job["state"], job["waits"]["ahead"]) == ("PENDING", 2)
    assert "it is among the next; 2 jobs of its partition have a higher priority" in text_of(
        queue=(WAITING,), around=("", "", "", "10\n30\n20\n")
    )


def test_a_database_that_is_away_is_said_to_be() -> None:
    text = text_of(queue=(WAITING,), records="sacct: error: slurmdbd: Connection refused\n")
    assert "note: the accounting database gives no answer" in text
    assert "Connection refused" in text


@pytest.mark.parametrize("given_id", ["", "x", "7;id", "7_", "7_[1-2]", "$(id)", "-7", "7.0", "99999999999"])
def test_what_is_no_number_is_not_asked_for(given_id: str) -> None:
    def nobody(script: str) -> str:
        raise AssertionError(script)

    with pytest.raises(JobError, match="Allowed: 7"):
        report(given_id, nobody)


def test_a_job_that_nobody_has() -> None:
    with pytest.raises(JobError, match="neither slurmctld nor the database has a job 7"):
        report("7", asked(records=""))


def test_tasks_of_an_array_are_counted() -> None:
    tasks = [{**RUN, "JobIDRaw": str(9 + n), "JobID": f"7_{n}", "ElapsedRaw": str(n)} for n in range(3)]
    waiting = {**RUN, "JobID": "7_[3-9%2]", "State": "PENDING", "Start": "Unknown", "End": "Unknown"}
    document = report("7", asked(*tasks, waiting, queue=({**WAITING, "id": "7_[3-9%2]"},)), now=NOW)
    assert document["jobs"] == []
    assert document["array"]["states"] == {"COMPLETED": 3, "PENDING": 7}
    assert lines(document)[0] == "job array 7: 3 COMPLETED, 7 PENDING"


def test_tasks_that_wait_are_counted_once_although_the_database_is_behind() -> None:
    running = {**RUN, "JobIDRaw": "9", "JobID": "7_1", "State": "RUNNING", "End": "Unknown"}
    waiting = {**RUN, "JobID": "7_[1-3%1]", "State": "PENDING", "Start": "Unknown", "End": "Unknown"}
    queue = ({**WAITING, "id": "7_1", "state": "RUNNING"}, {**WAITING, "id": "7_2"}, {**WAITING, "id": "7_3"})
    document = report("7", asked(running, waiting, queue=queue), now=NOW)
    assert document["array"]["states"] == {"RUNNING": 1, "PENDING": 2}


def test_components_of_a_heterogeneous_job_are_jobs_each_with_the_trouble_of_its_own_nodes() -> None:
    parts = [{**RUN, "JobIDRaw": str(7 + n), "JobID": f"7+{n}", "NodeList": f"n-{n}"} for n in range(2)]
    event = "n-1|1999993000|Unknown|DOWN*|Not responding [slurm@2033-05-18T03:00:00]\n"
    found = report("7", asked(*parts, around=(event, "", "", "")), now=NOW)["jobs"]
    assert [(job["id"], [one["what"] for one in job["meanwhile"]]) for job in found] == [
        ("7+0", []),
        ("7+1", ["DOWN*: Not responding"]),
    ]


def test_a_node_that_drains_while_the_job_runs_is_shown_once() -> None:
    row = {**RUN, "State": "RUNNING", "End": "Unknown"}
    events = (
        "n-0|1999993000|Unknown|DRAIN|new driver\n"
        "n-0|1999993000||drained|new driver\n"
        "n-0|1999993000||drained|new driver\n"
        "n-1|1999993500|1999993600|DRAIN|disk | full\n"
        "n-1|1999994000||draining|disk | full\n"
    )
    found = one(row, queue=({**WAITING, "state": "RUNNING"},), around=(events, "", "", ""))["meanwhile"]
    assert [(each["node"], each["what"]) for each in found] == [
        ("n-0", "DRAIN: new driver"),
        ("n-1", "DRAIN: disk | full"),
        ("n-1", "DRAINING: disk | full"),
    ]


def test_trouble_on_its_nodes_within_the_window() -> None:
    ended = 1999993700
    check = {"node": "n-0", "time": ended + 299, "failed": {"gpu-xid": "Xid 79 | GPU 3"}}
    early = {**check, "time": 1999990100 - 601}
    repair = {"time": ended, "mode": "act", "action": "reset", "nodes": ["n-1", "x"], "reason": "hpc-health: gpu-xid"}
    history = "\n".join(json.dumps(row) for row in (early, check)) + '\n{"cut'
    found = one(RUN, around=("", history, json.dumps(repair), ""))["meanwhile"]
    assert [(row["node"], row["what"]) for row in found] == [
        ("n-1", "reconcile reset: hpc-health: gpu-xid"),
        ("n-0", "health gpu-xid: Xid 79 | GPU 3"),
    ]


@given(name=st.text(), comment=st.text())
def test_no_name_makes_a_row_or_reaches_the_terminal(name: str, comment: str) -> None:
    row = {**RUN, "JobName": name, "AdminComment": comment}
    document = report("7", asked(row), now=NOW)
    assert document["jobs"][0]["name"] == name
    assert all(line.isprintable() for line in lines(document))


def test_advice() -> None:
    base = one(RUN, STEP)
    slow = {**base, "allocated": {**base["allocated"], "gpus": 0}}
    assert advice(slow) == [
        "--time=01:20:00: it ran 01:00:00 of 10:00:00; short jobs start earlier",
        "--mem=1366M: it used 1 GiB of 8 GiB",
        "2 CPUs: 1.0 of 4 were busy on average",
    ]
    assert advice({**base, "state": "TIMEOUT"}) == ["--time=20:00:00, or checkpoints: it reached its limit of 10:00:00"]
    assert "--mem=12288M" in advice({**base, "state": "OUT_OF_MEMORY"})[0]
    assert advice({**base, "state": "CANCELLED by 2001"}) == []
    assert advice({**base, "elapsed_seconds": 30}) == []
    whole = {**slow, "allocated": {**slow["allocated"], "cpus": 208, "memory_bytes": 1 << 40}}
    assert [text.partition("=")[0] for text in advice(whole)] == ["--time"]


@given(st.integers(0, 10**7), st.integers(0, 999))
def test_times_of_processors_are_read_as_slurm_prints_them(seconds: int, thousandths: int) -> None:
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    assert output.cpu_seconds(f"{days}-{clock}" if days else clock) == seconds
    if seconds < 3600:
        assert output.cpu_seconds(f"{seconds // 60:02d}:{seconds % 60:02d}.{thousandths:03d}") == pytest.approx(
            seconds + thousandths / 1000
        )
