"""The NCCL test as jobs, and pairs of nodes that show which node is slow."""

import math
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cluster.jobs.nccl import ROUNDS_WITHOUT_FAST, NcclRun, PairResult, PairSearch, build_script, run_script
from cluster.jobs.partition_facts import PartitionFacts, partition_facts
from cluster.jobs.script import ENV, JobScript, render_environment
from cluster.report.nccl_log import read_text
from cluster.report.nccl_result import check
from tests import programs
from tests.cluster.report.nccl_logs import log
from tests.cluster.shell import shellcheck
from tests.cluster.stacks import ROOT, config

GOLDEN = ROOT / "tests" / "golden" / "jobs"


def gpus(stack: str) -> PartitionFacts:
    return next(row for row in partition_facts(config(stack)) if row.gpu)


SCRIPTS: dict[str, JobScript] = {
    "a3mega-build": build_script(config("a3mega"), gpus("a3mega")),
    "a3mega-run": run_script(config("a3mega"), NcclRun(partition=gpus("a3mega"), nodes=2, collective="all_gather")),
    "classic-build": build_script(config("classic"), gpus("classic")),
    "classic-run": run_script(
        config("classic"), NcclRun(partition=gpus("classic"), nodes=2, collective="all_gather", check=True)
    ),
    "nebius-run": run_script(config("nebius"), NcclRun(partition=gpus("nebius"), nodes=2, collective="all_gather")),
    "nebius-run-over-fabric": run_script(
        config("nebius"), NcclRun(partition=gpus("nebius"), nodes=1, collective="all_reduce", over="fabric")
    ),
    "dev-run-binaries": run_script(
        config("dev"),
        NcclRun(
            partition=gpus("dev"), nodes=1, collective="all_gather", binaries="/opt/nccl-tests", nodelist="dev-gpu-0"
        ),
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_equal_their_golden_files(name, golden):
    golden(f"jobs/{name}.sh", SCRIPTS[name].text())


def test_every_golden_script_has_a_test():
    assert {path.stem for path in GOLDEN.glob("*.sh")} == {*SCRIPTS, "a3mega-env"}


def test_the_environment_of_a3_mega_equals_its_golden_file(golden):
    golden("jobs/a3mega-env.sh", render_environment(config("a3mega")))


def test_scripts_are_clean_for_shellcheck(tmp_path: Path):
    for name, script in SCRIPTS.items():
        stack = name.partition("-")[0]
        (tmp_path / f"{name}.sh").write_text(script.text().replace(ENV, f"env-{stack}.sh"))
        (tmp_path / f"env-{stack}.sh").write_text(render_environment(config(stack)))
    assert shellcheck(*(f"{name}.sh" for name in SCRIPTS), options=("-x",), cwd=tmp_path) == ""


def test_no_build_for_an_image_with_nccl_tests():
    with pytest.raises(ValueError, match="nccl-tests is installed"):
        build_script(config("nebius"), gpus("nebius"))


class Node:
    """A node in a folder: srun runs its command here, once; programs are stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        (folder / "home/nccl/logs").mkdir(parents=True)
        (folder / "env.sh").write_text("HPC_CONTAINER_MOUNTS=/a:/a HPC_CONTAINER_ENV=A\n")
        self.tool(
            "srun",
            f"echo \"srun ${{*//$'\\n'/ }}\" >>{folder}/calls\n"
            'while [[ ${1:-} == --* ]]; do shift; done\nexport SLURMD_NODENAME=n-0\nexec "$@"',
        )

    def tool(self, name: str, body: str) -> None:
        programs.write(self.bin / name, body)

    def run(self, name: str) -> "subprocess.CompletedProcess[str]":
        text = SCRIPTS[name].text().replace(ENV, f"{self.folder}/env.sh").replace("/dev/nvidia", f"{self.folder}/gpu")
        environ = {
            "PATH": f"{self.bin}:/usr/bin:/bin", "HOME": f"{self.folder}/home", "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "n-[0-1]", "SLURM_JOB_NUM_NODES": "2", "TMPDIR": str(self.folder),
        }  # fmt: skip
        return programs.run(["bash", "-c", text], env=environ)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().replace(str(self.folder), "").splitlines()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


class TestRun:
    def gpus(self, node: Node, count: int) -> None:
        for number in range(count):
            (node.folder / f"gpu{number}").touch()

    def test_a_warm_up_comes_first_and_has_its_own_log(self, node: Node):
        self.gpus(node, 8)
        node.tool("all_gather_perf_mpi", 'echo "measured $*"')
        done = node.run("nebius-run")
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        header = "# hpc: cluster=soperator machine_type=gpu-h100-sxm/8gpu-128vcpu-1600gb nodes=2 collective=all_gather "
        assert lines[0].startswith(f"{header}nodelist=n-[0-1] job=7 date=20")
        assert lines[1:] == [
            "==> nodes: n-[0-1]",
            "==> warm-up",
            "==> test: all_gather_perf_mpi -b 512M -e 8G -f 2 -g 1 -c 0",
            "measured -b 512M -e 8G -f 2 -g 1 -c 0",
        ]
        warm_up = node.folder / "home/nccl/logs/7-warm-up.log"
        assert warm_up.read_text() == "measured -b 512M -e 512M -f 2 -g 1 -w 2 -n 5 -c 0\n"
        assert [call.split()[1:4] for call in node.calls[1:]] == [
            ["--mpi=pmix", "--ntasks-per-node=8", "--cpu-bind=none"]
        ] * 2

    def test_the_network_and_the_ports_that_nccl_uses_are_in_the_log_once(self, node: Node):
        self.gpus(node, 8)
        node.tool(
            "all_gather_perf_mpi",
            '[[ ${NCCL_DEBUG:-} == INFO && $NCCL_DEBUG_SUBSYS == *INIT* ]] || { echo "measured"; exit; }\n'
            'for rank in 0 1 2; do echo "n-0:$rank:9 [$rank] NCCL INFO Using network Socket"; done; echo other\n'
            "for host in n-0 n-0 n-1; do "
            'echo "$host:1:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0"; done',
        )
        done = node.run("nebius-run")
        assert done.stdout.splitlines()[2:] == [
            "==> warm-up",
            "n-0:0:9 [0] NCCL INFO Using network Socket",
            *(f"{host}:1:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0" for host in ("n-0", "n-1")),
            "==> test: all_gather_perf_mpi -b 512M -e 8G -f 2 -g 1 -c 0",
            "measured",
        ]
        measured = log("all_gather", hosts=("n-0", "n-1"))
        result = check(read_text(done.stdout.replace("measured", measured), "7.log"))
        assert "network that NCCL uses: Socket" in [reason.text for reason in result.reasons]
        assert {"nccl-fabric-inactive", "nccl-nics-missing"} <= {finding.id for finding in result.findings}

    def test_a_node_without_all_of_its_gpus_fails(self, node: Node):
        self.gpus(node, 7)
        done = node.run("nebius-run")
        assert done.returncode == 1
        assert done.stderr == "n-0: 7 GPUs, and the partition has 8 on each node\n"
        assert "warm-up" not in done.stdout

    def test_a_warm_up_that_fails_is_shown(self, node: Node):
        self.gpus(node, 8)
        node.tool("all_gather_perf_mpi", "echo 'NCCL failure'; exit 3")
        done = node.run("nebius-run")
        assert done.returncode == 1
        assert "NCCL failure" in done.stderr
        assert "==> test" not in done.stdout

    def test_the_programs_of_the_build_run_in_its_container(self, node: Node):
        self.gpus(node, 8)
        build = node.folder / "home/nccl/nccl-tests-2.13.11-24.04-py3/build"
        programs.write(build / "all_gather_perf", "echo measured")
        done = node.run("a3mega-run")
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("\nmeasured\n")
        container = "--container-image=/home/nccl/nvidia+pytorch+24.04-py3.sqsh"
        mounts = "--container-mounts=/a:/a,/home/nccl:/home/nccl --container-env=A bash -c"
        assert f"--mpi=pmi2 --ntasks-per-node=8 --cpu-bind=none {container} {mounts}" in node.calls[-1]


class TestBuild:
    PROGRAMS = "for name in {0..9}; do mkdir -p build; touch build/${name}_perf; done"

    @pytest.fixture(autouse=True)
    def tools(self, node: Node):
        node.tool("enroot", f'echo "enroot $*" >>{node.folder}/calls; [[ -w $XDG_RUNTIME_DIR ]]; echo image >"$3"')
        node.tool("git", f'echo "git $*" >>{node.folder}/calls; [[ $1 != rev-parse ]] || cat {node.folder}/commit')
        node.tool("make", self.PROGRAMS)
        (node.folder / "commit").write_text("8dfeab9eb9bdfdf13503e71e1f33e7f8a208b540\n")

    def test_an_image_is_imported_once(self, node: Node):
        for done in (node.run("a3mega-build"), node.run("a3mega-build")):
            assert done.returncode == 0, done.stderr
            assert done.stdout.splitlines()[-1].startswith("==> nccl-tests: 10 programs in ")
        imports = [call for call in node.calls if call.startswith("enroot")]
        file = "/home/nccl/nvidia+pytorch+24.04-py3.sqsh"
        assert imports == [f"enroot import --output {file}.part docker://nvcr.io#nvidia/pytorch:24.04-py3"]
        assert sorted(path.name for path in (node.folder / "home/nccl").iterdir()) == [
            "logs",
            "nccl-tests-2.13.11-24.04-py3",
            "nvidia+pytorch+24.04-py3.sqsh",
        ]
        assert not list(node.folder.glob("tmp.*")), "enroot's runtime files"

    def test_another_commit_fails(self, node: Node):
        (node.folder / "commit").write_text("0000\n")
        assert node.run("a3mega-build").returncode == 1
        assert not (node.folder / "home/nccl/nccl-tests-2.13.11-24.04-py3").exists()

    def test_a_build_that_lacks_programs_fails(self, node: Node):
        node.tool("make", "mkdir -p build; touch build/all_reduce_perf")
        done = node.run("a3mega-build")
        assert done.returncode == 1
        assert "the build ended with 1 programs, not 10: all_reduce_perf" in done.stderr
        assert not (node.folder / "home/nccl/nccl-tests-2.13.11-24.04-py3").exists()


FAST = 188.0


def played(count: int, bad: set[int], *, share: float = 0.25, failure: str = "", ways: frozenset[str] = frozenset()):
    """All rounds on nodes of which some are slow, or only the way between two; what was found."""
    found = PairSearch([f"n-{number}" for number in range(count)])
    slow = {f"n-{number}" for number in bad}
    while pairs := found.next():
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs), "each node is in one pair of a round"
        for number, pair in enumerate(pairs):
            hit = bool(slow & set(pair)) or ways == set(pair)
            found.measured.append(
                PairResult(
                    round=found.rounds + (number == 0), nodes=pair, job="1",
                    busbw=FAST * (share if hit else 1.0), failure=failure if hit else "", compared=not hit,
                )
            )  # fmt: skip
    return found


@given(st.integers(4, 200), st.data(), st.sampled_from([0.0, 0.25, 0.875]))
def test_one_slow_node_is_found_in_two_rounds(count: int, data: st.DataObject, share: float):
    assume(count != 5)  # three suspects, where two are sound
    bad = data.draw(st.integers(0, count - 1))
    found = played(count, {bad}, share=share)
    assert (found.slow, found.open, found.odd) == ([f"n-{bad}"], [], [])
    assert found.rounds == 2
    assert len(found.sound) == count - 1


def test_a_single_pair_is_sound_only_by_a_reference():
    for compared in (True, False):
        pair = PairResult(round=1, nodes=("n-0", "n-1"), job="1", busbw=FAST / 2, compared=compared)
        found = PairSearch(["n-0", "n-1"], [pair])
        assert (found.passed, found.open) == ((True, []) if compared else (False, ["n-0", "n-1"]))
        assert not found.next()


@given(st.integers(2, 200))
def test_sound_nodes_take_one_round(count: int):
    found = played(count, set())
    assert (found.slow, found.open, len(found.sound)) == ([], [], count)
    # An odd one meets a node of another pair.
    assert (found.rounds, len(found.measured)) == (1 + count % 2, math.ceil(count / 2))


@given(st.integers(4, 60), st.data())
def test_every_slow_node_is_found_while_one_pair_is_fast(count: int, data: st.DataObject):
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 2))
    assume(any({2 * pair, 2 * pair + 1}.isdisjoint(bad) for pair in range(count // 2)))
    found = played(count, bad)
    sound = {f"n-{number}" for number in range(count) if number not in bad}
    assert set(found.slow) <= {f"n-{number}" for number in bad}
    assert set(found.sound) == sound or found.open
    if len(bad) * 3 < count:
        assert set(found.slow) == {f"n-{number}" for number in bad}
    if 4 * len(bad) + 2 <= count:  # each suspect has a sound partner at once
        assert found.rounds <= 2


@given(st.integers(3, 40))
def test_where_all_fail_no_node_is_named(count: int):
    found = played(count, set(range(count)), failure="TCP's level")
    assert (found.slow, found.sound, len(found.open)) == ([], [], count)
    assert found.rounds <= ROUNDS_WITHOUT_FAST


def test_slow_nodes_in_every_first_pair_are_found_where_there_is_a_reference():
    found = played(4, {1, 2}, failure="below the reference")
    assert found.slow == ["n-1", "n-2"]


def test_a_slow_pair_of_two_nodes_stays_undecided():
    found = played(2, {1}, failure="below the reference")
    assert (found.slow, found.open, found.rounds) == ([], ["n-0", "n-1"], 1)


def test_a_slow_network_between_two_sound_nodes_is_no_slow_node():
    found = played(8, set(), share=0.5, ways=frozenset({"n-2", "n-3"}))
    assert (found.slow, found.open) == ([], [])
    assert [pair.nodes for pair in found.odd] == [("n-2", "n-3")]


@pytest.mark.parametrize(("share", "slow"), [(0.95, []), (0.875, ["n-3"])])
def test_one_of_eight_nics_is_enough(share: float, slow: list[str]):
    assert played(6, {3}, share=share).slow == slow
