"""After slurmctld's start, jobs are ended if two checks find no process on their nodes, which must all answer."""

import pytest
from jobs import lost_jobs
from jobs.lost_jobs import RunningJob, began_before_boot
from system import remote_node
from system.host import SetupError

from tests import squeue

OLD = "2026-01-02T03:04:05"


class Cluster:
    """Jobs that slurmctld takes to be running, and the processes of each node; what was ended, and what was waited."""

    def __init__(self):
        self.jobs = {"7": ("n0",), "8": ("n0", "n1"), "9": ("n1",)}
        self.alive: dict[str, str | None] = {"n0": "8 .", "n1": "9 ."}
        self.ended, self.slept = [], []
        self.meanwhile = lambda: None
        """A change between the first check and the second."""

    def run(self, *words, **_):
        if words[:2] == ("env", "TZ=UTC"):
            words = words[2:]
            assert words[0] == "squeue" or words[3:] == ("show", "node")
        else:
            assert words[0] != "squeue", "times in a zone of its own"
        if words[0] == "squeue":
            jobs = self.jobs.items()
            rows = [{"i": job, "A": job, "T": "RUNNING", "S": OLD, "N": ",".join(nodes)} for job, nodes in jobs]
            return squeue.printed(words, rows)
        if words[:3] == ("scontrol", "show", "config"):
            return "BatchStartTimeout       = 60 sec\nMessageTimeout          = 30 sec\n"
        if words[0] == "scancel":
            self.ended.append(("cancelled", words[1]))
            return ""
        return "".join(f"NodeName={node} NodeAddr={node}\n" for node in self.alive)

    def succeeds(self, *words, **_):
        if words[1] == "requeue" and words[2] != "8":
            self.ended.append(("requeued", words[2]))
            return True
        return words[1] == "ping"

    def answer(self, node, _address, _script):
        said = self.alive[node]
        if said is None:
            raise SetupError("it does not answer SSH")
        return said

    def sleep(self, seconds):
        self.slept.append(seconds)
        if len(self.slept) == 2:
            self.meanwhile()


@pytest.fixture
def cluster(monkeypatch):
    found = Cluster()
    monkeypatch.setattr(lost_jobs, "run", found.run)
    monkeypatch.setattr(lost_jobs, "succeeds", found.succeeds)
    monkeypatch.setattr(lost_jobs.time, "sleep", found.sleep)
    monkeypatch.setattr(remote_node, "run_on_node", found.answer)
    return found


@pytest.mark.parametrize(
    ("n0", "n1", "ended"),
    [
        ("8 .", "9 .", [("requeued", "7")]),
        ("7 .", "9 .", [("cancelled", "8")]),  # it can't be requeued
        # A node that gives no whole answer keeps its jobs.
        *((said, "9 .", []) for said in (None, "", "8", "8 9")),
        ("7 .", None, []),
    ],
)
def test_a_job_without_a_process_on_any_of_its_nodes_ends_after_slurmctlds_own_time(cluster, n0, n1, ended):
    cluster.alive = {"n0": n0, "n1": n1}
    lost_jobs.end_missing_jobs()
    assert cluster.ended == ended
    assert cluster.slept == [90, *[lost_jobs.SECOND_CHECK_SECONDS] * bool(ended)]


@pytest.mark.parametrize(
    "change",
    [
        lambda cluster: cluster.alive.update(n0="7 8 ."),  # it has a process at the second check
        lambda cluster: (cluster.jobs.pop("7"), cluster.jobs.update({"11": ("n0",)})),  # one ended, another began
    ],
)
def test_jobs_that_changed_before_the_second_check_are_not_ended(cluster, change):
    cluster.meanwhile = lambda: change(cluster)
    lost_jobs.end_missing_jobs()
    assert cluster.ended == []


def test_a_component_of_a_heterogeneous_job_is_not_ended(cluster, monkeypatch):
    component = {"i": "11+1", "A": "12", "T": "RUNNING", "S": OLD, "N": "n0"}

    def run(*words: str, **_: object) -> str:
        return squeue.printed(words, [component]) if "squeue" in words else cluster.run(*words)

    monkeypatch.setattr(lost_jobs, "run", run)
    lost_jobs.end_missing_jobs()
    assert cluster.ended == []


def test_processes_are_known_by_title_and_environment(tmp_path):
    for number, title, words in (
        ("1", b"/sbin/init", [b"TERM=linux"]),
        ("20", b"slurmstepd: [7.extern]", []),
        ("21", b"slurmstepd: [12.batch]\0\0\0", []),
        ("22", b"/bin/sh\0/opt/apps/adm/slurm/slurm_prolog", [b"SLURM_JOB_ID=13", b"PATH=/bin"]),
        ("23", b"python\0slurmstepd: [99.0]", [b"NOT_SLURM_JOB_ID=98"]),
    ):
        (tmp_path / number).mkdir()
        (tmp_path / number / "cmdline").write_bytes(title)
        (tmp_path / number / "environ").write_bytes(b"\0".join(words) + b"\0")
    (tmp_path / "24").mkdir()
    assert lost_jobs.jobs_with_processes(tmp_path) == {"7", "12", "13"}


BEFORE, BOOT, AFTER = "2026-01-02T03:04:05", "2026-01-02T03:04:06", "2026-01-02T03:04:07"


@pytest.mark.parametrize(
    ("began", "boots", "ended"),
    [
        (BEFORE, {"n0": BEFORE, "n1": BOOT}, True),
        (BOOT, {"n0": BOOT, "n1": BOOT}, False),
        (AFTER, {"n0": BOOT}, False),
        (BEFORE, {"n2": BOOT}, False),
    ],
)
def test_jobs_that_began_before_a_boot_of_a_node_of_theirs(began, boots, ended):
    job = RunningJob("7", began, ("n0", "n1"))
    assert began_before_boot([job], boots) == [job] * ended
