"""check jobs: how its driver is run on the login machine, where mail is looked for, and its NCCL part."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest

from cli.cluster.cluster import from_outputs
from cli.cluster.jobs import Jobs, JobState
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs import check
from cli.commands.jobs.check import NcclCheck
from cli.commands.jobs.job_cluster import JobCluster
from cli.errors import CliError
from cluster.config import ClusterConfig
from cluster.jobs.partition_facts import partition_facts
from cluster.jobs.quickcheck import CheckPlan, CheckResult, Options, parse_resources, plan
from cluster.observe.nodes import parse_nodes
from tests.cli.commands.jobs.test_check import CONFIG, NODES, OUTPUTS
from tests.cluster.stacks import cluster


def jobs() -> Jobs:
    return Jobs(from_outputs("dev", OUTPUTS), "dev", "alice")


def planned(nodes: str, config: ClusterConfig = CONFIG) -> CheckPlan:
    return plan(partition_facts(config), parse_nodes(nodes), parse_resources(nodes), Options(run="ab12"))


def raising(error: BaseException) -> Callable[..., None]:
    def function(*_: object, **__: object) -> None:
        raise error

    return function


def breaks_off(*_: object, show: Callable[..., None], note: Callable[..., None]) -> None:
    show({"dev-controller": ['{"event": "begin"}']})
    note({"dev-controller": ["Connection closed"]})


@pytest.mark.parametrize(
    ("follow", "error", "said"),
    [
        (breaks_off, CliError, "did not come to their end:\nConnection closed"),
        (raising(KeyboardInterrupt()), KeyboardInterrupt, ""),
    ],
    ids=["breaks off", "ctrl-c"],
)
@pytest.mark.usefixtures("root")
def test_what_ends_the_driver_early_cancels_its_jobs(
    monkeypatch: pytest.MonkeyPatch, follow: Callable[..., None], error: type[BaseException], said: str
):
    lines: list[str] = []
    monkeypatch.setattr(check, "follow", follow)
    monkeypatch.setattr(Jobs, "run", lambda _, line: lines.append(line))
    with pytest.raises(error, match=said or None):
        check.run_plan(jobs(), planned(NODES), lambda _: None)
    assert lines == ["scancel --quiet --name=hpc-check-ab12"]


@pytest.mark.parametrize(
    ("said", "status"), [("came\n", "pass"), ("none\n", "skip"), ("sent\n", "skip"), ("missing\n", "fail")]
)
def test_mail_is_looked_for_as_the_user(root: object, monkeypatch: pytest.MonkeyPatch, said: str, status: str):
    lines: list[str] = []
    monkeypatch.setattr(check, "_MAIL_SECONDS", 0)
    monkeypatch.setattr(Scheduler, "run", lambda _, line: lines.append(line) or said)
    found = check.mail_result(Scheduler(jobs().cluster, "dev"), "alice", "ab12")
    assert found.status == status
    assert "runuser -u" in lines[0]
    assert "Name=hpc-check-ab12 " in lines[0]


@pytest.mark.usefixtures("root")
class TestNccl:
    FREE = NODES.replace("IDLE+DRAIN Reason=fan [root@2026-11-21T05:43:58]", "IDLE Gres=gpu:standin:2")

    @pytest.fixture
    def ran(self, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
        """Stands for Slurm: what was submitted and cancelled; `states` and `log` are what a test sets."""
        found = SimpleNamespace(scripts=[], dependencies=[], cancelled=[], state="COMPLETED", log="")

        def submit(_: Jobs, script: str, *, options: dict[str, str]) -> str:
            found.scripts.append(script)
            found.dependencies.append(options.get("dependency", ""))
            return str(len(found.scripts))

        def wait(_: Jobs, ids: Iterable[str], *_more: object, **__: object) -> dict[str, JobState]:
            return {job: JobState(id=job, state=found.state, nodes="n", exit_code="1:0", elapsed="1") for job in ids}

        monkeypatch.setattr(Jobs, "submit", submit)
        monkeypatch.setattr(Jobs, "wait", wait)
        monkeypatch.setattr(Jobs, "cancel", lambda _, ids: found.cancelled.extend(ids))
        monkeypatch.setattr(Jobs, "run", lambda *_, **__: found.log)
        return found

    def results(
        self, nodes: str = FREE, *, binaries: str = "/opt/nccl", config: ClusterConfig = CONFIG
    ) -> list[CheckResult]:
        place, facts = JobCluster(jobs=jobs(), config=config), partition_facts(config)
        check = NcclCheck(cluster=place, facts=facts, planned=planned(nodes, config), binaries=binaries)
        return check.results(lambda _: None)

    def test_a_rehearsal_has_nothing_to_measure(self):
        (one,) = self.results(binaries="")
        assert (one.status, one.partition) == ("skip", "gpu")
        assert "device files" in one.text

    @pytest.mark.parametrize(
        ("state", "log", "text"),
        [
            ("FAILED", "", "job 1 ended as FAILED"),
            ("RUNNING", "", "job 1 did not end in time"),
            ("COMPLETED", "nothing\n", "job 1"),
        ],
    )
    def test_each_node_with_gpus_has_a_run(self, ran: SimpleNamespace, state: str, log: str, text: str):
        ran.state, ran.log = state, log
        (one,) = self.results()
        assert (one.node, one.status) == ("dev-gpu-0", "fail")
        assert text in one.text
        assert "--nodelist=dev-gpu-0" in ran.scripts[0]
        assert ran.cancelled == (["1"] if state == "RUNNING" else [])

    @pytest.mark.parametrize(("busbw", "status"), [(3.0, "fail"), (100.0, "skip"), (300.0, "pass")])
    def test_a_run_that_is_compared_with_nothing_is_skipped(self, ran: SimpleNamespace, busbw: float, status: str):
        half = f"1000.0 {busbw / 1.875} {busbw} N/A"
        columns = "time algbw busbw #wrong"
        lines = [
            "# hpc: machine_type=gpu-h100-sxm/8gpu-128vcpu-1600gb nodes=2 collective=all_reduce",
            f"# size count type redop root {columns} {columns}",
            *(f"{size << 20} {size << 18} float sum -1 {half} {half}" for size in (512, 1024, 2048)),
            "# Out of bounds values : 0 OK",
            f"# Avg bus bandwidth    : {busbw}\n",
        ]
        ran.log = "\n".join(lines)
        (one,) = self.results()
        assert one.status == status
        assert ("no reference to compare with" in one.text) == (status == "skip")

    def test_ctrl_c_cancels_the_runs(self, ran: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(Jobs, "wait", raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            self.results()
        assert ran.cancelled == ["1"]

    def test_a_busy_node_is_skipped(self):
        (one,) = self.results(self.FREE.replace("dev-gpu-0 CPUAlloc=0", "dev-gpu-0 CPUAlloc=1"))
        assert (one.node, one.status) == ("dev-gpu-0", "skip")

    def test_a_run_over_a_partition_waits_for_its_own_nodes_only(self, ran: SimpleNamespace):
        kinds = {name: {"count": 2, "machine_type": "local-2c-2gpu"} for name in ("a", "b")}
        config = cluster(
            nodesets=kinds, partitions={"a": {"nodesets": ["a"], "default": True}, "b": {"nodesets": ["b"]}}
        )
        room = "CPUAlloc=0 CPUTot=2 RealMemory=2048 AllocMem=0 State=IDLE Gres=gpu:standin:2"
        self.results("\n".join(f"NodeName=dev-{name}-{n} {room}" for name in kinds for n in (0, 1)), config=config)
        assert ran.dependencies == ["", "", "afterany:1:2", "", "", "afterany:4:5"]
