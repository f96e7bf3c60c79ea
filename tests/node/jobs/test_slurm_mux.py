"""slurm_prolog and slurm_epilog, as slurmd starts them, with real bash."""

import os
import re
import shutil
import subprocess
import time

import pytest

from tests import programs
from tests.cluster.stacks import ROOT


class Tree:
    """A tree as scripts/node/jobs/prologs.py makes it, with scripts that print their name and exit with a code."""

    def __init__(self, path) -> None:
        self.path = path
        self.logs = path / "logs"
        shutil.copy(ROOT / "scripts/node/jobs/slurm_mux.sh", path / "slurm_mux")
        (path / "slurm_mux").chmod(0o755)
        for name in ("slurm_prolog", "slurm_epilog"):
            (path / name).symlink_to("slurm_mux")
        (path / "etc").mkdir()
        self.conf(f"cluster=lab\ncontroller_nodeset=shared\nlogs={self.logs}\n")

    def conf(self, text: str) -> None:
        (self.path / "etc/slurm_mux.conf").write_text(text)

    def add(self, place: str, body: str) -> None:
        programs.write(self.path / place, f"echo ran {place}\n{body}")

    def run(
        self, kind: str = "prolog", *, node: str = "lab-gpu-0", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        env = {"SLURM_JOB_ID": "7", "SLURM_JOB_PARTITION": "batch", "SLURMD_NODENAME": node, **variables}
        return programs.run([str(self.path / f"slurm_{kind}")], env=env, timeout=120)

    def log(self, kind: str = "prolog") -> str:
        return (self.logs / f"{kind}.log").read_text()

    def ran(self, kind: str = "prolog") -> list[str]:
        return re.findall(r"^ran (.*)$", self.log(kind), re.MULTILINE)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def umask() -> int:
    """Return what this process has, which can be asked only by setting another."""
    os.umask(mask := os.umask(0o022))
    return mask


def places(kind: str) -> list[str]:
    folders = (f"{kind}_slurmd.d", f"partition-batch-{kind}_slurmd.d", f"nodeset-gpu-{kind}_slurmd.d")
    return [f"{folder}/{name}.{kind}_slurmd" for folder in folders for name in ("10-first", "20-second", "Zlast")]


class TestOrder:
    @pytest.mark.parametrize("kind", ["prolog", "epilog"])
    def test_all_nodes_then_the_partition_then_the_nodeset_each_by_name(self, tree, kind):
        for place in reversed(places(kind)):
            tree.add(place, "")
        assert tree.run(kind, LANG="en_US.UTF-8").returncode == 0
        assert tree.ran(kind) == places(kind)

    def test_no_script_is_no_error(self, tree):
        assert tree.run().returncode == 0
        assert tree.log() == ""

    def test_scripts_of_other_partitions_nodesets_and_kinds_do_not_run(self, tree):
        for place in (
            "partition-other-prolog_slurmd.d/a.prolog_slurmd",
            "nodeset-cpu-prolog_slurmd.d/a.prolog_slurmd",
            "epilog_slurmd.d/a.epilog_slurmd",
            "prolog_slurmd.d/a.epilog_slurmd",
            "prolog_slurmd.d/README",
        ):
            tree.add(place, "exit 1")
        assert tree.run().returncode == 0
        assert tree.ran() == []

    @pytest.mark.parametrize(
        ("node", "nodeset"),
        [("lab-gpu-0", "gpu"), ("lab-gpu-large-12", "gpu-large"), ("lab-2-3", "2"), ("lab-controller", "shared")],
    )
    def test_the_nodeset_is_in_the_nodes_name(self, tree, node, nodeset):
        for name in ("gpu", "gpu-large", "2", "shared"):
            tree.add(f"nodeset-{name}-prolog_slurmd.d/a.prolog_slurmd", "")
        tree.run(node=node)
        assert tree.ran() == [f"nodeset-{nodeset}-prolog_slurmd.d/a.prolog_slurmd"]

    @pytest.mark.parametrize("node", ["other-gpu-0", "lab-gpu", "gpu-0"])
    def test_a_node_of_another_cluster_has_no_nodeset(self, tree, node):
        tree.add("nodeset-gpu-prolog_slurmd.d/a.prolog_slurmd", "")
        assert tree.run(node=node).returncode == 0
        assert tree.ran() == []


class TestFailures:
    def test_a_prolog_ends_at_the_first_failure(self, tree):
        first, second, *_ = places("prolog")
        tree.add(first, "exit 3")
        tree.add(second, "")
        done = tree.run()
        assert done.returncode == 3
        assert tree.ran() == [first]
        assert "job=7 10-first: failed, exit code 3; see" in done.stderr, "slurmd's own log has it"

    def test_an_epilog_runs_all_scripts_and_returns_the_first_failure(self, tree):
        codes = dict(zip(places("epilog"), [0, 4, 5, 0, 0, 6, 0, 0, 0], strict=True))
        for place, code in codes.items():
            tree.add(place, f"exit {code}")
        assert tree.run("epilog").returncode == 4
        assert tree.ran("epilog") == list(codes)

    @pytest.mark.parametrize("kind", ["prolog", "epilog"])
    @pytest.mark.parametrize("lost", ["link to nothing", "not executable", "a folder"])
    def test_a_script_that_cannot_run_is_skipped_and_logged(self, tree, kind, lost):
        tree.add(f"{kind}_slurmd.d/b.{kind}_slurmd", "")
        script = tree.path / f"{kind}_slurmd.d/a.{kind}_slurmd"
        if lost == "link to nothing":
            script.symlink_to("../scripts/lost")
        elif lost == "a folder":
            script.mkdir()
        else:
            tree.add(f"{kind}_slurmd.d/a.{kind}_slurmd", "")
            script.chmod(0o644)
        assert tree.run(kind).returncode == 0
        assert tree.ran(kind) == [f"{kind}_slurmd.d/b.{kind}_slurmd"]
        assert f"a: cannot be run, as {script} is not executable or a link to nothing\n" in tree.log(kind)
        assert "a: skipped, exit code 0" in tree.log(kind)

    def test_a_missing_configuration_is_an_error(self, tree):
        tree.conf("")
        done = tree.run()
        assert done.returncode == 1
        assert "etc/slurm_mux.conf cannot be read" in done.stderr

    def test_it_runs_by_its_links_only(self, tree):
        done = programs.run([str(tree.path / "slurm_mux")])
        assert (done.returncode, "slurm_prolog or slurm_epilog" in done.stderr) == (2, True)


class TestRxdm:
    """Its work is NCCL's profile; where that is not written, a job on two or more nodes would use plain TCP."""

    PLACE = "partition-batch-prolog_slurmd.d/rxdm.prolog_slurmd"
    EXPORT = "export NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices"

    @pytest.fixture
    def profile(self, tree):
        """The profile, in a temporary folder: its path in the script is replaced."""
        profile = tree.path / "nccl-env-profile.sh"
        mux = tree.path / "slurm_mux"
        mux.write_text(mux.read_text().replace("profile=/var/lib/tcpxo/lib64/", f"profile={tree.path}/"))
        return profile

    @pytest.mark.parametrize(
        ("body", "nodes", "kind", "mode", "code"),
        [
            ("echo '{export}' > {profile}", 2, "prolog", 0o755, 0),
            ("exit 0", 2, "prolog", 0o755, 1),
            ("echo 'export NCCL_SOCKET_IFNAME=eth0' > {profile}", 2, "prolog", 0o755, 1),
            ("", 2, "prolog", 0o644, 1),  # it can't be run
            ("", 1, "prolog", 0o644, 0),
            ("exit 0", 1, "prolog", 0o755, 0),
            ("exit 0", 2, "epilog", 0o755, 0),
        ],
    )
    def test_prologs_of_jobs_on_several_nodes_need_a_profile(self, tree, profile, body, nodes, *, kind, mode, code):
        place = self.PLACE.replace("prolog", kind)
        tree.add(place, body.format(export=self.EXPORT, profile=profile))
        (tree.path / place).chmod(mode)
        assert tree.run(kind, SLURM_JOB_NUM_NODES=str(nodes)).returncode == code
        for text in (f"rxdm: did not write {profile}, so NCCL would use plain TCP", "rxdm: failed, exit code 1"):
            assert (text in tree.log(kind)) == bool(code)

    def test_the_profile_of_an_earlier_job_does_not_count(self, tree, profile):
        profile.write_text(f"{self.EXPORT}\n")
        os.utime(profile, (time.time() - 60, time.time() - 60))
        tree.add(self.PLACE, "exit 0")
        assert tree.run(SLURM_JOB_NUM_NODES="2").returncode == 1


class TestEnvironment:
    def test_scripts_get_a_context_a_path_and_no_input(self, tree):
        tree.add("epilog_slurmd.d/a.epilog_slurmd", 'echo "context=$SLURM_SCRIPT_CONTEXT"; env | grep ^PATH=; cat')
        tree.run("epilog", PATH=f"{os.environ['PATH']}:.")
        assert "context=epilog_slurmd\n" in tree.log("epilog")
        assert "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n" in tree.log("epilog")

    def test_a_job_does_not_wait_for_processes_that_a_script_left(self, tree):
        tree.add("prolog_slurmd.d/a.prolog_slurmd", f"sleep 300 & echo $! > {tree.path}/left")
        began = time.monotonic()
        assert tree.run().returncode == 0
        assert time.monotonic() - began < 100
        os.kill(int((tree.path / "left").read_text()), 9)


class TestLog:
    def test_the_log_has_time_job_script_and_exit_code(self, tree):
        tree.add("prolog_slurmd.d/a.prolog_slurmd", "echo to the other >&2; exit 9")
        tree.run(SLURM_JOB_USER="alice")
        stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} job=7 slurm_prolog"
        assert re.fullmatch(
            rf"{stamp} a: starts \(user alice, partition batch\)\n"
            "ran prolog_slurmd.d/a.prolog_slurmd\nto the other\n"
            rf"{stamp} a: failed, exit code 9\n",
            tree.log(),
        )

    def test_the_log_is_appended_to(self, tree):
        tree.add("prolog_slurmd.d/a.prolog_slurmd", "")
        tree.run(SLURM_JOB_ID="1")
        tree.run(SLURM_JOB_ID="2")
        assert re.findall(r"job=(\d) slurm_prolog a: ended, exit code 0", tree.log()) == ["1", "2"]

    def test_the_log_is_for_root_and_scripts_keep_their_umask(self, tree):
        tree.add("prolog_slurmd.d/a.prolog_slurmd", f"touch {tree.path}/made")
        tree.run()
        assert (tree.logs / "prolog.log").stat().st_mode & 0o777 == 0o600
        assert (tree.path / "made").stat().st_mode & 0o777 == 0o666 & ~umask()

    def test_scripts_run_though_the_log_can_not_be_written(self, tree):
        """A node whose disk is full keeps working; the journal has what was said."""
        tree.logs.write_text("a file in the place of the folder")
        tree.add("prolog_slurmd.d/a.prolog_slurmd", f"touch {tree.path}/mark; exit 3")
        assert tree.run().returncode == 3
        assert (tree.path / "mark").exists()
