"""The report about a job, from what Slurm's commands print: states, runs, use, events on its nodes, and advice."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm import job_report
from slurm.job_failure import exit_in_words, output_script, parse_output
from slurm.job_lines import lines
from slurm.job_reasons import explain
from slurm.job_report import FIELDS, JobError, report
from slurm.times import cpu_seconds

from tests import programs

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
    printed: str = "",
    hours: str = "",
    reasons: str = "",
) -> Callable[[str], str]:
    """Return a function that answers both scripts as the controller does."""

    def ask(script: str) -> str:
        (mark,) = set(re.findall(r"echo ([0-9a-f]{24})-", script))
        if "sacctmgr" in script:
            return f"{mark}-\n".join((*around, reasons, "", hours, printed))
        text = "".join(mark.join(row.get(field, "") for field in FIELDS) + mark + "\n" for row in rows)
        names = [field.partition(":")[0] for field in job_report.WAITING]
        waiting = "".join("".join(row[name] + mark for name in names) + "\n" for row in queue)
        return f"{mark}-\n".join((text if records is None else records, waiting, comments, live))

    return ask


def test_every_reason_of_slurm_is_explained() -> None:
    names = REASONS.read_text().split()
    assert len(names) > 200
    assert [name for name in names if not explain(name)] == []


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
        ("AssocGrpCPUMinutesLimit", "too few minutes of CPUs are left in this period for all of its time limit"),
        ("AssocGrpGRESMinutes", "a shorter --time may let it start"),
    ],
)
def test_reasons_in_words(reason: str, words: str) -> None:
    assert words in explain(reason)


@pytest.mark.parametrize(("limit", "seconds"), [("600", 36000), ("UNLIMITED", None), ("525600", None)])
def test_a_job_without_a_limit_has_none_also_where_backfill_started_it(limit: str, seconds: int | None) -> None:
    (job,) = report("7", asked({**RUN, "TimelimitRaw": limit}), now=NOW)["jobs"]
    assert job["limit_seconds"] == seconds


BROKEN = {**RUN, "State": "FAILED", "Reason": "NonZeroExitCode"}
RUNNING = {**RUN, "State": "RUNNING", "End": "Unknown"}
NOW_RUNNING = {**WAITING, "state": "RUNNING"}
FAILED = {**RUN, "State": "NODE_FAIL", "NodeList": "n-0", "AdminComment": "hpc: requeued from n-0: gpu-xid: 79"}
UNSTARTED = {**RUN, "State": "PENDING", "Start": "Unknown", "End": "Unknown"}
HETEROGENEOUS = [{**RUN, "JobIDRaw": str(7 + n), "JobID": f"7+{n}", "NodeList": f"n-{n}"} for n in range(2)]
DRAINS = (
    "n-0|1999993000|Unknown|DRAIN|new driver\n"
    "n-0|1999993000||drained|new driver\n"
    "n-0|1999993000||drained|new driver\n"
    "n-1|1999993500|1999993600|DRAIN|disk | full\n"
    "n-1|1999994000||draining|disk | full\n"
)
CHECK = {"node": "n-0", "time": 1999993999, "failed": {"gpu-xid": "Xid 79 | GPU 3"}}
EARLY = {**CHECK, "time": 1999990100 - 601}
REPAIR = {"time": 1999993700, "mode": "act", "action": "reset", "nodes": ["n-1", "x"], "reason": "hpc-health: gpu-xid"}
HISTORY = f'{json.dumps(EARLY)}\n{json.dumps(CHECK)}\n{{"cut'
ASSOCIATION = (
    "ClusterName=lab Account={} UserName={} Partition= Priority=0 ID=3 SharesRaw/Norm/Level/Factor=1/0.50/1/0.00 "
    "UsageRaw/Norm/Efctv=23280.00/1.00/1.00 ParentAccount={} Lineage=/science/ DefAssoc=No GrpJobs=N(1) "
    "GrpJobsAccrue=N(0) GrpSubmitJobs=N(2) GrpWall=N(388.00) GrpTRES=cpu=N(8),mem=N(8192),gres/gpu=16(8) "
    "GrpTRESMins={} GrpTRESRunMins={} MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ= MaxTRESPJ= MaxTRESPN= "
    "MaxTRESMinsPJ= MinPrioThresh= Comment=a GrpTRESMins=cpu=1(1)\n"
).format
"""A line as _print_assoc_mgr_info writes it (src/scontrol/info_assoc_mgr.c at slurm-26-05-3-1)."""
USED, RUNNING_MINUTES = "cpu=N(46560),mem=N(9),gres/gpu=24000(23280)", "cpu=N(0),mem=N(0),gres/gpu=N(480)"
ASSOCIATIONS = "".join(
    (
        ASSOCIATION("root", "", "", "cpu=N(9)", "cpu=N(0)"),
        ASSOCIATION("science", "", "root(1)", "cpu=600000(46590),gres/gpu=N(1)", "cpu=N(0)"),
        ASSOCIATION("research", "", "science(2)", USED, RUNNING_MINUTES),
        ASSOCIATION("research", "alice(2001)", "", "gres/gpu=600(630)", "gres/gpu=N(0)"),
        ASSOCIATION("research", "bob(2002)", "", "gres/gpu=60(0)", "gres/gpu=N(0)"),
        ASSOCIATION("teaching", "alice(2001)", "", "gres/gpu=60(0)", "gres/gpu=N(0)"),
    )
)
CPU = "billing=4,cpu=4,mem=8192M,node=1"
REPORTS: dict[str, Callable[[str], str]] = {
    "a text of slurmctld's own": asked(queue=({**WAITING, "reason": "Nodes_required_for_job_are_DOWN"},)),
    "what a job used": asked(RUN, STEP),
    "GPUs that nobody measured": asked(RUN, {**STEP, "TRESUsageInTot": "cpu=01:00:00,mem=1G"}),
    "what the steps of a running job use": asked(
        RUNNING, queue=(NOW_RUNNING,), live="7.batch|cpu=00:10:00,mem=4096M\n7.extern|cpu=00:00:00,mem=1M\n"
    ),
    "each run of a requeued job": asked({**RUN, "User": "bob"}, FAILED, STEP, RUN),
    "who cancelled it": asked({**RUN, "State": "CANCELLED by 2001"}, queue=({**WAITING, "state": "CANCELLED"},)),
    "a state that slurmctld has first": asked(RUNNING, queue=({**WAITING, "state": "CANCELLED"},)),
    "a job that the database does not have yet": asked(queue=(WAITING,), around=("", "", "", "10\n30\n20\n")),
    "a database that is away": asked(queue=(WAITING,), records="sacct: error: slurmdbd: Connection refused\n"),
    "tasks of an array": asked(
        *({**RUN, "JobIDRaw": str(9 + n), "JobID": f"7_{n}", "ElapsedRaw": str(n)} for n in range(3)),
        {**UNSTARTED, "JobID": "7_[3-9%2]"}, queue=({**WAITING, "id": "7_[3-9%2]"},),
    ),
    "tasks of which the database is behind": asked(
        {**RUNNING, "JobIDRaw": "9", "JobID": "7_1"}, {**UNSTARTED, "JobID": "7_[1-3%1]"},
        queue=({**NOW_RUNNING, "id": "7_1"}, {**WAITING, "id": "7_2"}, {**WAITING, "id": "7_3"}),
    ),
    "components of a heterogeneous job, with the trouble of one's node": asked(
        *HETEROGENEOUS,
        around=("n-1|1999993000|Unknown|DOWN*|Not responding [slurm@2033-05-18T03:00:00]\n", "", "", ""),
    ),
    "a node that drains while the job runs": asked(RUNNING, queue=(NOW_RUNNING,), around=(DRAINS, "", "", "")),
    "trouble on its nodes within the window": asked(RUN, around=("", HISTORY, json.dumps(REPAIR), "")),
    "a job that reached its limit": asked({**RUN, "State": "TIMEOUT"}, STEP),
    "a job that was out of memory": asked({**RUN, "State": "OUT_OF_MEMORY"}, STEP),
    "a cancelled job": asked({**RUN, "State": "CANCELLED by 2001"}, STEP),
    "a short job": asked({**RUN, "ElapsedRaw": "30"}, STEP),
    "a job without GPUs": asked({**RUN, "AllocTRES": CPU}, {**STEP, "AllocTRES": CPU}),
    "a command that was not found": asked(
        {**BROKEN, "ExitCode": "127:0"}, printed="/home/a/slurm-7.out\n/home/a/job.sh: line 3: pyhton: not found\n"
    ),
    "an output file that can not be opened": asked({**BROKEN, "ExitCode": "0:53"}, printed="/home/alice/no/7.out\n"),
    "a step that failed below a script that went on": asked(
        RUN, STEP, {**STEP, "JobID": "7.1", "State": "OUT_OF_MEMORY", "ExitCode": "0:125"},
        {**STEP, "JobID": "7.2", "State": "FAILED", "ExitCode": "139:0"},
        printed="/home/alice/slurm-7.out\nsrun: error: n-0: task 0: Segmentation fault\n",
    ),
    "an error of NCCL, and a fault that was found after the end": asked(
        {**BROKEN, "ExitCode": "134:0"}, around=("", HISTORY, "", ""),
        printed="/home/a/slurm-7.out\nstep 1\nn-0:7:9 [1] socket.cc:60 NCCL WARN Call to recv failed\n\nbye\n",
    ),
    "a job that waited for another one, and a node that was drained later": asked(
        {**RUN, "Reason": "Dependency"}, around=("n-0|1999993701|Unknown|DRAIN|new driver\n", "", "", "")
    ),
    "a job that was cancelled while it waited": asked(
        {**UNSTARTED, "State": "CANCELLED by 2001", "End": "1999991000", "Reason": "QOSGrpGRES"}
    ),
    "a job that waits for hours of its account, and what is left to its user and to the accounts above": asked(
        UNSTARTED, queue=({**WAITING, "reason": "AssocGrpGRESMinutes"},), hours=ASSOCIATIONS
    ),
    "a job that waits for nodes that are out of service, and their reasons": asked(
        UNSTARTED,
        queue=({**WAITING, "reason": "ReqNodeNotAvail, UnavailableNodes:n-[1-2]"},),
        reasons="n-0: bad GPU\nn-[1-2]: hpc: its machine is refused: the budget of 1,000 USD for 2026-11 is used\n",
    ),
    "a job of a whole node": asked({**RUN, "AllocTRES": "cpu=208,mem=1T,node=1"}, STEP),
}  # fmt: skip


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in UTC: reports have its local time."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("utc")
def test_what_is_reported(reviewed) -> None:
    texts = {case: "\n".join(lines(report("7", ask, now=NOW))) for case, ask in REPORTS.items()}
    reviewed("jobs/reports", texts)


def test_the_document_has_what_it_used() -> None:
    (job,) = report("7", asked(RUN, STEP), now=NOW)["jobs"]
    assert job["used"] == {
        "cpu_seconds": 3600.0, "cpu_efficiency": 0.25, "memory_bytes": 1 << 30, "gpu_utilization": 0.5,
        "gpu_memory_bytes": 1 << 30,
    }  # fmt: skip


# As src/sacct/print.c prints a status of wait(2), before Slurm 25.11 and since; 4021 is ESLURMD_IO_ERROR, 253 SIG_OOM.
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("0:0", ""),
        ("1:0", ""),
        ("126:0", "not executable"),
        ("127:0", "did not find a command"),
        ("137:0", "SIGKILL: it was killed"),
        ("139:0", "SIGSEGV"),
        ("9:0", "or 137, which sacct prints as 9 before Slurm 25.11: SIGKILL"),
        ("0:9", "SIGKILL"),
        ("0:11", "segmentation fault"),
        ("0:15", "SIGTERM"),
        ("0:53", "output or input file"),
        ("0:52", "could not be started"),
        ("0:125", "more memory than the job asked for"),
        ("0:10", "SIGUSR1"),
        ("255:0", ""),
        ("", ""),
        ("1:2:3", ""),
    ],
)
def test_exit_codes_and_signals_in_words(code: str, words: str) -> None:
    found = exit_in_words(code)
    assert words in found
    assert bool(words) == bool(found)


def test_the_end_of_an_output_is_read_where_it_is_and_relative_to_the_jobs_folder(tmp_path: Path) -> None:
    """By a real shell, with stand-ins for Slurm's commands. Root reads it as the user."""
    (tmp_path / "7.out").write_text("".join(f"line {number}\n" for number in range(30)))
    programs.write(tmp_path / "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    programs.write(
        tmp_path / "sacct", f"case \"$*\" in *StdOut) echo 7.out ;; *WorkDir) echo '{tmp_path}' ;; *) exit 1 ;; esac"
    )
    programs.write(tmp_path / "runuser", 'shift 3; exec "$@"')
    script = output_script({"id": "7", "user": "alice"})
    path = f"{tmp_path}:{os.environ['PATH']}"
    ran = programs.run(["/bin/sh", "-c", script], env={**os.environ, "PATH": path}, check=True)
    found = parse_output(ran.stdout)
    assert found == {"path": f"{tmp_path}/7.out", "lines": [f"line {number}" for number in range(20, 30)], "nccl": ""}
    (tmp_path / "7.out").unlink()
    ran = programs.run(["/bin/sh", "-c", script], env={**os.environ, "PATH": path}, check=False)
    assert parse_output(ran.stdout)["lines"] == []


@pytest.mark.parametrize("given_id", ["", "x", "7;id", "7_", "7_[1-2]", "$(id)", "-7", "7.0", "99999999999"])
def test_an_invalid_job_id_runs_no_script(given_id: str) -> None:
    def nobody(script: str) -> str:
        raise AssertionError(script)

    with pytest.raises(JobError, match="Allowed: 7"):
        report(given_id, nobody)


def test_an_unknown_job_is_an_error() -> None:
    with pytest.raises(JobError, match="neither slurmctld nor the database has a job 7"):
        report("7", asked(records=""))


@given(name=st.text(), comment=st.text())
def test_a_users_text_makes_no_row_and_is_escaped(name: str, comment: str) -> None:
    row = {**RUN, "JobName": name, "AdminComment": comment}
    document = report("7", asked(row), now=NOW)
    assert document["jobs"][0]["name"] == name
    assert all(line.isprintable() for line in lines(document))


@given(st.integers(0, 10**7), st.integers(0, 999))
def test_cpu_times_are_parsed_as_slurm_prints_them(seconds: int, thousandths: int) -> None:
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    assert cpu_seconds(f"{days}-{clock}" if days else clock) == seconds
    if seconds < 3600:
        assert cpu_seconds(f"{seconds // 60:02d}:{seconds % 60:02d}.{thousandths:03d}") == pytest.approx(
            seconds + thousandths / 1000
        )
