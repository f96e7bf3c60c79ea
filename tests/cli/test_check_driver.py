"""check jobs: how its driver is run on the login machine, where mail is looked for, and its NCCL part."""

from collections.abc import Callable
from typing import Any

import pytest

from cli.cluster import quickcheck
from cli.cluster.cluster import from_outputs
from cli.cluster.jobs import Jobs, JobState
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs.check import NcclCheck
from cli.commands.jobs.job_cluster import JobCluster
from cli.errors import CliError
from cluster.jobs.partition_facts import partition_facts
from cluster.jobs.quickcheck_plan import CheckPlan, Options, parse_rooms, plan
from cluster.observe.nodes import parse_nodes
from tests.cli.test_check_jobs import CONFIG, NODES, OUTPUTS
from tests.cluster.stacks import cluster


class TestDriver:
    """How the driver is run on the login machine."""

    @pytest.fixture
    def planned(self) -> CheckPlan:
        rooms = parse_rooms(NODES)
        return plan(partition_facts(CONFIG), parse_nodes(NODES), rooms, Options(run="ab12"))

    def test_one_that_breaks_off_is_an_error_and_its_jobs_are_cancelled(
        self, root: object, planned: CheckPlan, monkeypatch: pytest.MonkeyPatch
    ):
        lines: list[str] = []

        def follow(*_: object, show: Callable[..., None], note: Callable[..., None]) -> None:
            show({"dev-controller": ['{"event": "begin"}']})
            note({"dev-controller": ["Connection closed"]})

        monkeypatch.setattr(quickcheck, "follow", follow)
        monkeypatch.setattr(Jobs, "run", lambda _, line: lines.append(line))
        with pytest.raises(CliError, match="did not come to their end:\nConnection closed"):
            quickcheck.run(self.jobs(), planned, lambda _: None)
        assert lines == ["scancel --quiet --name=hpc-check-ab12"]

    def test_ctrl_c_cancels_its_jobs(self, root: object, planned: CheckPlan, monkeypatch: pytest.MonkeyPatch):
        lines: list[str] = []

        def follow(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(quickcheck, "follow", follow)
        monkeypatch.setattr(Jobs, "run", lambda _, line: lines.append(line))
        with pytest.raises(KeyboardInterrupt):
            quickcheck.run(self.jobs(), planned, lambda _: None)
        assert lines == ["scancel --quiet --name=hpc-check-ab12"]

    @staticmethod
    def jobs() -> Jobs:
        return Jobs(from_outputs("dev", OUTPUTS), "dev", "alice")


class TestMail:
    @pytest.mark.parametrize(
        ("said", "status"), [("came\n", "pass"), ("none\n", "skip"), ("sent\n", "skip"), ("missing\n", "fail")]
    )
    def test_it_is_looked_for_as_the_user(self, root: object, monkeypatch: pytest.MonkeyPatch, said: str, status: str):
        lines: list[str] = []
        monkeypatch.setattr(quickcheck, "_MAIL_SECONDS", 0)
        monkeypatch.setattr(Scheduler, "ask", lambda _, line: lines.append(line) or said)
        found = quickcheck.mail_result(Scheduler(TestDriver.jobs().cluster, "dev"), "alice", "ab12")
        assert found.status == status
        assert "runuser -u" in lines[0]
        assert "Name=hpc-check-ab12 " in lines[0]


class TestNccl:
    FREE = NODES.replace("IDLE+DRAIN Reason=fan [root@2026-11-21T05:43:58]", "IDLE Gres=gpu:standin:2")

    @pytest.fixture
    def test(self) -> Callable[..., NcclCheck]:
        def make(nodes: str, **more: Any) -> NcclCheck:
            facts = partition_facts(CONFIG)
            planned = plan(facts, parse_nodes(nodes), parse_rooms(nodes), Options(run="ab12"))
            return NcclCheck(
                cluster=JobCluster(jobs=TestDriver.jobs(), config=CONFIG), facts=facts, planned=planned, **more
            )

        return make

    def test_a_rehearsal_has_nothing_to_measure(self, root: object, test: Callable[..., NcclCheck]):
        (one,) = test(self.FREE).results(lambda _: None)
        assert (one.status, one.partition) == ("skip", "gpu")
        assert "device files" in one.text

    @pytest.mark.parametrize(
        ("state", "log", "text"),
        [
            ("FAILED", "", "job 41 ended as FAILED"),
            ("RUNNING", "", "job 41 did not end in time"),
            ("COMPLETED", "nothing\n", "job 41"),
        ],
    )
    @pytest.mark.usefixtures("root")
    def test_each_node_with_gpus_has_a_run(
        self, test: Callable[..., NcclCheck], monkeypatch: pytest.MonkeyPatch, state: str, log: str, text: str
    ):
        cancelled: list[str] = []
        scripts: list[str] = []
        row = JobState(id="41", state=state, reason="", nodes="dev-gpu-0", exit_code="1:0", elapsed="1")
        monkeypatch.setattr(Jobs, "submit", lambda _, script, **__: scripts.append(script) or "41")
        monkeypatch.setattr(Jobs, "wait", lambda *_, **__: {"41": row})
        monkeypatch.setattr(Jobs, "cancel", lambda _, ids: cancelled.extend(ids))
        monkeypatch.setattr(Jobs, "run", lambda *_, **__: log)
        (one,) = test(self.FREE, binaries="/opt/nccl").results(lambda _: None)
        assert (one.node, one.status) == ("dev-gpu-0", "fail")
        assert text in one.text
        assert "--nodelist=dev-gpu-0" in scripts[0]
        assert cancelled == (["41"] if state == "RUNNING" else [])

    @pytest.mark.parametrize(("busbw", "status"), [(3.0, "fail"), (100.0, "skip"), (300.0, "pass")])
    @pytest.mark.usefixtures("root")
    def test_a_run_that_is_compared_with_nothing_is_skipped(
        self, test: Callable[..., NcclCheck], monkeypatch: pytest.MonkeyPatch, busbw: float, status: str
    ):
        half = f"1000.0 {busbw / 1.875} {busbw} N/A"
        columns = "time algbw busbw #wrong"
        lines = [
            "# hpc: machine_type=gpu-h100-sxm/8gpu-128vcpu-1600gb nodes=2 collective=all_reduce",
            f"# size count type redop root {columns} {columns}",
            *(f"{size << 20} {size << 18} float sum -1 {half} {half}" for size in (512, 1024, 2048)),
            "# Out of bounds values : 0 OK",
            f"# Avg bus bandwidth    : {busbw}\n",
        ]
        text = "\n".join(lines)
        row = JobState(id="41", state="COMPLETED", reason="", nodes="dev-gpu-0", exit_code="0:0", elapsed="1")
        monkeypatch.setattr(Jobs, "submit", lambda *_, **__: "41")
        monkeypatch.setattr(Jobs, "wait", lambda *_, **__: {"41": row})
        monkeypatch.setattr(Jobs, "run", lambda *_, **__: text)
        (one,) = test(self.FREE, binaries="/opt/nccl").results(lambda _: None)
        assert one.status == status
        assert ("no reference to compare with" in one.text) == (status == "skip")

    def test_ctrl_c_cancels_the_runs(
        self, root: object, test: Callable[..., NcclCheck], monkeypatch: pytest.MonkeyPatch
    ):
        cancelled: list[str] = []

        def wait(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Jobs, "submit", lambda *_, **__: "41")
        monkeypatch.setattr(Jobs, "wait", wait)
        monkeypatch.setattr(Jobs, "cancel", lambda _, ids: cancelled.extend(ids))
        with pytest.raises(KeyboardInterrupt):
            test(self.FREE, binaries="/opt/nccl").results(lambda _: None)
        assert cancelled == ["41"]

    def test_a_busy_node_is_skipped(self, root: object, test: Callable[..., NcclCheck]):
        busy = self.FREE.replace("dev-gpu-0 CPUAlloc=0", "dev-gpu-0 CPUAlloc=1")
        (one,) = test(busy, binaries="/opt/nccl").results(lambda _: None)
        assert (one.node, one.status) == ("dev-gpu-0", "skip")

    @pytest.mark.usefixtures("root")
    def test_a_run_over_a_partition_waits_for_its_own_nodes_only(self, monkeypatch: pytest.MonkeyPatch):
        kinds = {name: {"count": 2, "machine_type": "local-2c-2gpu"} for name in ("a", "b")}
        config = cluster(
            nodesets=kinds, partitions={"a": {"nodesets": ["a"], "default": True}, "b": {"nodesets": ["b"]}}
        )
        text = "\n".join(
            f"NodeName=dev-{name}-{n} CPUAlloc=0 CPUTot=2 RealMemory=2048 AllocMem=0 State=IDLE Gres=gpu:standin:2"
            for name in kinds for n in range(2)
        )  # fmt: skip
        facts = partition_facts(config)
        planned = plan(facts, parse_nodes(text), parse_rooms(text), Options(run="ab12"))
        asked: list[str] = []

        def submit(_: Jobs, __: str, *, options: dict[str, str]) -> str:
            asked.append(options.get("dependency", ""))
            return str(len(asked))

        monkeypatch.setattr(Jobs, "submit", submit)
        monkeypatch.setattr(Jobs, "wait", lambda *_, **__: {})
        monkeypatch.setattr(Jobs, "cancel", lambda *_: None)
        monkeypatch.setattr(Jobs, "run", lambda *_, **__: "")
        place = JobCluster(jobs=TestDriver.jobs(), config=config)
        test = NcclCheck(cluster=place, facts=facts, planned=planned, binaries="/opt/nccl")
        test.results(lambda _: None)
        assert asked == ["", "", "afterany:1:2", "", "", "afterany:4:5"]
