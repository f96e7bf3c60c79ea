"""`./hpc check jobs`: the jobs of its plan, what it prints, its exit codes, and its NCCL test. The cluster is a
stand-in."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cli.cluster.cluster import from_outputs
from cli.cluster.jobs import Jobs
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs import check
from cli.errors import CliError
from cluster.config import ClusterConfig
from cluster.jobs.quickcheck import CheckPlan, CheckResult, Options, plan
from components.deploy import config_text
from scripts.node.slurm.hostlist import expand
from scripts.node.slurm.jobs import Job
from scripts.node.slurm.nodes import parse as nodes_of
from tests.cli import conftest
from tests.cli.conftest import Hpc, patch_outputs
from tests.cluster.stacks import cluster

CONFIG = cluster(
    nodesets={"cpu": {"count": 2}, "gpu": {"count": 1, "machine_type": "local-2c-2gpu"}},
    partitions={"cpu": {"nodesets": ["cpu"], "default": True}, "gpu": {"nodesets": ["gpu"]}},
)
NODES = """\
NodeName=dev-cpu-0 CPUAlloc=0 CPUTot=2 RealMemory=2048 AllocMem=0 State=IDLE
NodeName=dev-cpu-1 CPUAlloc=2 CPUTot=2 RealMemory=2048 AllocMem=0 State=ALLOCATED
NodeName=dev-gpu-0 CPUAlloc=0 CPUTot=2 RealMemory=2048 AllocMem=0 State=IDLE+DRAIN Reason=fan [root@2026-11-21T05:43:58]
"""
OUTPUTS = {**conftest.OUTPUTS, "config": config_text(CONFIG)}


def passing(spec: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the lines of a driver on sound nodes."""
    for group in spec["groups"]:
        for node in expand(group["nodes"]):
            for name in ("hello", "home", "shared", "memory", "accounting"):
                yield {"check": name, "status": "pass", "node": node, "partition": group["partition"]}


@pytest.fixture
def up(root: object, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stack `dev` is up. Returns what its cluster was given."""
    asked: dict[str, Any] = {"rows": passing}
    patch_outputs(monkeypatch, OUTPUTS)

    def ask(_: Scheduler, line: str, *, seconds: float = 0) -> str:
        del seconds
        return NODES if line.startswith("scontrol") else "came\n"

    def run(jobs: Jobs, planned: CheckPlan, _: Callable[[str], None]) -> list[dict[str, str]]:
        asked["user"], asked["spec"] = jobs.user, json.loads(planned.spec)
        return list(asked["rows"](asked["spec"]))

    monkeypatch.setattr(Scheduler, "run", ask)
    monkeypatch.setattr(Scheduler, "nodes", lambda _: nodes_of(NODES))
    monkeypatch.setattr(Jobs, "put", lambda _, files: asked.__setitem__("files", files))
    monkeypatch.setattr(Jobs, "run", lambda *_, **__: "")
    monkeypatch.setattr(check, "run_plan", run)
    return asked


def test_nodes_that_are_not_checked_are_listed_with_the_reason(up: dict[str, Any], hpc: Hpc):
    done = hpc("check", "jobs", "dev", "--suite", "hello")
    assert done.code == 1
    assert "dev-cpu-0  cpu        pass   pass  pass    pass    pass" in done.out
    assert "not checked: dev-cpu-1 (cpu): no free CPU on dev-cpu-1: busy. To do: --wait" in done.out
    assert "not checked: dev-gpu-0 (gpu): drained: fan. To do: ./hpc status dev; once" in done.out
    assert "2 nodes not checked" in done.out
    assert up["user"] == "alice"
    assert [group["nodes"] for group in up["spec"]["groups"]] == ["dev-cpu-0"]
    assert set(up["files"]) == {f"/opt/apps/hpc/checks/{name}.py" for name in ("container", "driver", "node")}


def test_a_busy_node_does_not_fail_the_check(up: dict[str, Any], hpc: Hpc):
    assert hpc("check", "jobs", "dev", "--suite", "hello", "--partition", "cpu").code == 0


def test_options_are_passed_to_the_plan(up: dict[str, Any], hpc: Hpc):
    hpc("check", "jobs", "dev", "--nodes", "cpu-[0-1]", "--as", "bob", "--wait", "--exclusive", "--image", "/a.sif")
    spec = up["spec"]
    assert (up["user"], spec["wait"], spec["image"]) == ("bob", True, "/a.sif")
    assert (spec["exclusive"], spec["container"]) == (True, True)
    assert [group["nodes"] for group in spec["groups"]] == ["dev-cpu-[0-1]"]


@pytest.mark.parametrize(
    ("option", "image"),
    [
        ("nvcr.io/nvidia/pytorch:24.04-py3", "nvcr.io#nvidia/pytorch:24.04-py3"),
        ("nvcr.io#nvidia/pytorch", "nvcr.io#nvidia/pytorch"),
        ("localhost:5000/a", "localhost:5000#a"),
        ("redhat/ubi9-minimal", "redhat/ubi9-minimal"),
        ("ubuntu:24.04", "ubuntu:24.04"),
    ],
)
def test_an_image_may_have_a_slash_or_a_hash_after_the_registry(up: dict[str, Any], hpc: Hpc, option: str, image: str):
    hpc("check", "jobs", "dev", "--nodes", "cpu-0", "--image", option)
    assert up["spec"]["image"] == image


def test_json_has_the_results_and_the_nodes_without(up: dict[str, Any], hpc: Hpc):
    done = hpc("check", "jobs", "dev", "--suite", "hello", "--json")
    report = json.loads(done.out)
    assert (done.code, report["passed"], report["user"]) == (1, False, "alice")
    assert {row["check"] for row in report["results"]} == {"hello", "home", "shared", "memory", "accounting", "mail"}
    assert [row["node"] for row in report["not_checked"]] == ["dev-cpu-1", "dev-gpu-0"]


def test_nothing_is_submitted_if_no_node_can_be_checked(up: dict[str, Any], hpc: Hpc):
    done = hpc("check", "jobs", "dev", "--nodes", "gpu-0")
    assert done.code == 1
    assert "0 passed, 0 failed, 0 skipped, 1 node not checked" in done.out
    assert "spec" not in up


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--partition", "batch"], "--partition batch: cluster dev has the partitions cpu, gpu."),
        (["--nodes", "cpu-7"], "cluster dev has no node 'cpu-7'. Did you mean dev-cpu-"),
        (["--as", "carol"], "no user 'carol'"),
    ],
)
def test_an_unknown_partition_node_or_user_is_refused(up: dict[str, Any], hpc: Hpc, options: list[str], message: str):
    assert message in hpc("check", "jobs", "dev", *options).error


def test_control_sequences_of_a_node_are_escaped(up: dict[str, Any], hpc: Hpc):
    def failing(spec: Mapping[str, Any]) -> Iterator[dict[str, str]]:
        for row in passing(spec):
            if row["check"] == "hello":
                yield {**row, "status": "fail", "text": "0 of 2 tasks answered, exit code 1", "output": "\x1b[2Jgone"}

    up["rows"] = failing
    done = hpc("check", "jobs", "dev", "--suite", "hello")
    assert "dev-cpu-0: hello failed: 0 of 2 tasks answered, exit code 1" in done.out
    assert "\\x1b[2Jgone" in done.out
    assert "\x1b" not in done.out


def jobs(config: ClusterConfig = CONFIG) -> Jobs:
    return Jobs(from_outputs("dev", {**OUTPUTS, "config": config_text(config)}), "alice")


def planned(nodes: str, config: ClusterConfig = CONFIG) -> CheckPlan:
    return plan(config, nodes_of(nodes), Options(run="ab12"))


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def disconnect(*_: object, show: Callable[..., None], note: Callable[..., None]) -> None:
    show({"dev-controller": ['{"note": "begin"}']})
    note({"dev-controller": ["Connection closed"]})


@pytest.mark.parametrize(
    ("follow", "error", "message"),
    [
        (disconnect, CliError, "did not come to their end:\nConnection closed"),
        (interrupt, KeyboardInterrupt, None),
    ],
)
@pytest.mark.usefixtures("root")
def test_jobs_are_cancelled_if_the_driver_does_not_complete(
    monkeypatch: pytest.MonkeyPatch, follow: Callable[..., None], error: type[BaseException], message: str | None
):
    lines: list[str] = []
    monkeypatch.setattr(check, "follow", follow)
    monkeypatch.setattr(Jobs, "run", lambda _, line: lines.append(line))
    with pytest.raises(error, match=message):
        check.run_plan(jobs(), planned(NODES), lambda _: None)
    assert lines == ["scancel --quiet --name=hpc-check-ab12"]


def test_lines_that_are_not_the_drivers_are_left_out():
    lines = ["Welcome!", "[1]", '{"done": true}', "\x1b[31m", '{"check": "hello"']
    assert list(check.parse_rows(lines)) == [{"done": True}]


@pytest.mark.parametrize(
    ("output", "status"), [("came\n", "pass"), ("none\n", "skip"), ("sent\n", "skip"), ("missing\n", "fail")]
)
def test_the_mailbox_is_read_as_the_user(root: object, monkeypatch: pytest.MonkeyPatch, output: str, status: str):
    lines: list[str] = []
    monkeypatch.setattr(check, "_MAIL_SECONDS", 0)
    monkeypatch.setattr(Scheduler, "run", lambda _, line: lines.append(line) or output)
    assert check.mail_result(Scheduler(jobs().cluster), "alice", "ab12").status == status
    assert "runuser -u" in lines[0]
    assert "Name=hpc-check-ab12 " in lines[0]


@pytest.mark.usefixtures("root")
class TestNccl:
    FREE = NODES.replace("IDLE+DRAIN Reason=fan [root@2026-11-21T05:43:58]", "IDLE Gres=gpu:standin:2")

    @pytest.fixture
    def slurm(self, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
        """A stand-in for Slurm, with what was submitted and cancelled. A test sets `state` and `log` of all jobs."""
        slurm = SimpleNamespace(scripts=[], cancelled=[], waited=[], state="COMPLETED", log="")

        def submit(_: Jobs, script: str) -> str:
            slurm.scripts.append(script)
            return str(len(slurm.scripts))

        def wait(_: Jobs, ids: Iterable[str], *_more: object) -> dict[str, Job]:
            slurm.waited.append(list(ids))
            return {job: Job(id=job, state=slurm.state, nodes="n", exit_code="1:0", elapsed="1") for job in ids}

        monkeypatch.setattr(check, "RUN_MINUTES", -1)
        monkeypatch.setattr(Jobs, "prepare", lambda *_: None)
        monkeypatch.setattr(Jobs, "submit", submit)
        monkeypatch.setattr(Jobs, "wait", wait)
        monkeypatch.setattr(Jobs, "cancel", lambda _, ids: slurm.cancelled.extend(ids))
        monkeypatch.setattr(Jobs, "run", lambda *_, **__: slurm.log)
        return slurm

    def results(
        self, nodes: str = FREE, *, binaries: str = "/opt/nccl", config: ClusterConfig = CONFIG
    ) -> list[CheckResult]:
        return check.nccl_results(jobs(config), planned(nodes, config), binaries, whole=True)

    def test_a_rehearsal_is_skipped(self):
        (result,) = self.results(binaries="")
        assert (result.status, result.partition) == ("skip", "gpu")
        assert "device files" in result.text

    @pytest.mark.parametrize(
        ("state", "log", "text"),
        [
            ("FAILED", "", "the job ended as FAILED"),
            ("RUNNING", "", "the job did not end in time"),
            ("COMPLETED", "nothing\n", "its log has no measurement"),
        ],
    )
    def test_a_run_that_did_not_succeed_fails_its_node(self, slurm: SimpleNamespace, state: str, log: str, text: str):
        slurm.state, slurm.log = state, log
        (result,) = self.results()
        assert (result.node, result.status) == ("dev-gpu-0", "fail")
        assert text in result.text
        assert "--nodelist=dev-gpu-0" in slurm.scripts[0]
        assert slurm.cancelled == (["1"] if state == "RUNNING" else [])

    @pytest.mark.parametrize(("busbw", "status"), [(3.0, "fail"), (100.0, "fail"), (300.0, "pass"), (700.0, "skip")])
    def test_a_run_without_a_reference_is_skipped(self, slurm: SimpleNamespace, busbw: float, status: str):
        half = f"1000.0 {busbw / 0.9375} {busbw} N/A"
        columns = "time algbw busbw #wrong"
        lines = [
            "# hpc: machine_type=gpu-h100-sxm/8gpu-128vcpu-1600gb nodes=2 collective=all_gather",
            f"# size count type redop root {columns} {columns}",
            *(f"{size << 20} {size << 18} float none -1 {half} {half}" for size in (512, 1024, 2048)),
            "# Out of bounds values : 0 OK",
            f"# Avg bus bandwidth    : {busbw}\n",
        ]
        slurm.log = "\n".join(lines)
        (result,) = self.results()
        assert result.status == status
        assert ("no reference to compare with" in result.text) == (status == "skip")

    def test_ctrl_c_cancels_the_runs(self, slurm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(Jobs, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            self.results()
        assert slurm.cancelled == ["1"]

    def test_a_busy_node_is_skipped(self):
        (result,) = self.results(self.FREE.replace("dev-gpu-0 CPUAlloc=0", "dev-gpu-0 CPUAlloc=1"))
        assert (result.node, result.status) == ("dev-gpu-0", "skip")

    def test_the_run_over_a_partition_begins_after_the_runs_of_its_nodes(self, slurm: SimpleNamespace):
        kinds = {name: {"count": 2, "machine_type": "local-2c-2gpu"} for name in ("a", "b")}
        config = cluster(
            nodesets=kinds, partitions={"a": {"nodesets": ["a"], "default": True}, "b": {"nodesets": ["b"]}}
        )
        room = "CPUAlloc=0 CPUTot=2 RealMemory=2048 AllocMem=0 State=IDLE Gres=gpu:standin:2"
        self.results("\n".join(f"NodeName=dev-{name}-{n} {room}" for name in kinds for n in (0, 1)), config=config)
        assert slurm.waited == [["1", "2", "3", "4"], ["5", "6"]]
        assert "--nodelist=dev-b-[0-1]" in slurm.scripts[5]
