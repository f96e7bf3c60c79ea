"""Warm-up of nodes: which jobs run, what is printed, and the job's script."""

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from jobs import warm_up

from tests import programs

SCRIPT = Path(warm_up.__file__).with_name("warm_up.sh")
THREE = ["n-0", "n-1", "n-2"]
PART = {"name": "p", "nodes": THREE, "others": [], "rxdm": False, "options": ["--partition=p"]}
# The nodes whose files are in `there` have the image. A job fails where `broken` has the first of its nodes.
SRUN = """\
nodes= source= last=
for word; do
    case $word in --nodelist=*) nodes=${word#*=} ;; esac
    [ "$last" != warm-up ] || source=$word
    last=$word
done
echo "$nodes $source" >>"$HERE/jobs"
! grep -qx "$nodes" "$HERE/broken" || { echo 'srun: error: Requested nodes are busy' >&2; exit 1; }
for node in $(echo "$nodes" | tr , ' '); do
    [ -z "$source" ] || touch "$HERE/there/$node"
    [ -e "$HERE/there/$node" ] && echo "warm-up: $node ready" || echo "warm-up: $node lacks"
done
"""


class TestRun:
    """A run, with stand-ins of sinfo and srun."""

    @pytest.fixture(autouse=True)
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "there").mkdir()
        (tmp_path / "broken").touch()
        programs.write(tmp_path / "bin" / "sinfo", 'cat "$HERE/states"')
        programs.write(tmp_path / "bin" / "srun", SRUN)
        monkeypatch.setenv("HERE", str(tmp_path))
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
        self.folder = tmp_path
        return tmp_path

    def warm(self, *states: str, **part: Any) -> int:
        """Warm nodes in these states; return how many are not warm."""
        text = "".join(f"{node} {state}\n" for node, state in zip(THREE, states, strict=True))
        (self.folder / "states").write_text(text)
        (self.folder / "jobs").write_text("")
        return warm_up.warm({"images": ["alpine"], "partitions": [{**PART, **part}], "seconds": 60})

    def jobs(self) -> list[str]:
        return [" ".join(line.split()) for line in (self.folder / "jobs").read_text().splitlines()]

    def test_one_node_downloads_and_sends_to_the_others(self, capsys: pytest.CaptureFixture[str]):
        assert self.warm("idle", "mixed", "allocated") == 0
        assert sorted(self.jobs()[:3]) == THREE
        assert self.jobs()[3:] == ["n-0,n-1,n-2 n-0"]
        printed = capsys.readouterr().out
        assert "sending images from n-0 to 2 nodes\n" in printed
        assert printed.endswith("warm-up: 3 of 3 nodes are warm\n")
        assert self.warm("idle", "idle", "idle") == 0
        assert sorted(self.jobs()) == THREE, "nothing is lacking"

    def test_a_node_that_has_the_image_sends_it(self):
        (self.folder / "there" / "n-2").touch()
        assert self.warm("idle", "idle", "idle") == 0
        assert self.jobs()[3:] == ["n-2,n-0,n-1 n-2"]

    def test_each_node_downloads_if_sending_fails(self):
        (self.folder / "broken").write_text("n-0,n-1,n-2\n")
        assert self.warm("idle", "idle", "idle") == 0
        assert sorted(self.jobs()[4:]) == ["n-0 n-0", "n-1 n-1", "n-2 n-2"]

    def test_nodes_that_take_no_jobs_are_reported_and_those_that_are_off_are_not_started(
        self, capsys: pytest.CaptureFixture[str]
    ):
        assert self.warm("idle*", "drained", "idle~") == 2
        assert self.jobs() == []
        printed = capsys.readouterr().out
        assert "node n-0: not warm: idle*\nnode n-1: not warm: drained\n" in printed
        assert printed.endswith("warm-up: 0 of 2 nodes are warm, 1 are off\n")

    def test_a_failed_job_is_reported_with_its_reason(self, capsys: pytest.CaptureFixture[str]):
        (self.folder / "broken").write_text("n-1\n")
        assert self.warm("idle", "idle", "idle") == 1
        assert "node n-1: not warm: srun: error: Requested nodes are busy\n" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("part", "jobs"),
        [
            ({}, ["n-0,n-1,n-2"]),
            ({"nodes": ["n-0"], "others": ["n-1", "n-2"]}, ["n-0,n-1"]),
        ],
    )
    def test_rxdm_runs_before_jobs_on_several_nodes(self, part: dict[str, Any], jobs: list[str]):
        for node in THREE:
            (self.folder / "there" / node).touch()
        assert self.warm("idle", "idle", "idle", rxdm=True, **part) == 0
        assert self.jobs() == jobs

    def test_a_node_without_a_partner_for_rxdm_is_not_warm(self, capsys: pytest.CaptureFixture[str]):
        (self.folder / "there" / "n-0").touch()
        assert self.warm("idle", "drained", "down", rxdm=True) == 3
        assert "node n-0: not warm: rxdm runs for jobs on two or more nodes, and no other is free" in (
            capsys.readouterr().out
        )

    def test_jobs_end_when_the_time_is_over(self, capsys: pytest.CaptureFixture[str]):
        programs.write(self.folder / "bin" / "srun", "exec sleep 60")
        (self.folder / "states").write_text("n-0 idle\n")
        part = {**PART, "nodes": ["n-0"]}
        assert warm_up.warm({"images": ["alpine"], "partitions": [part], "seconds": 0}) == 1
        assert "node n-0: not warm: no end in time" in capsys.readouterr().out


class TestScript:
    """The script that runs on nodes, with a stand-in for enroot."""

    @pytest.fixture
    def node(self, tmp_path: Path) -> Path:
        text = SCRIPT.read_text()
        for old, new in (
            ("/var/lib/hpc/images", f"{tmp_path}/images"),
            ("PATH=/usr/local/sbin", f"PATH={tmp_path}/bin:/usr/local/sbin"),
        ):
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "script").write_text(text)
        text = f'echo "$*" >>{tmp_path}/asked\n[ ! -e {tmp_path}/broken ] || exit 1\necho "$4" >"$3"'
        programs.write(tmp_path / "bin" / "enroot", text)
        return tmp_path

    def warm(self, node: Path, *arguments: str, umask: int = 0o022, nodes: int = 1, name: str = "n-0") -> str:
        """Run the script as the task of a node, and return what it printed."""
        job = {"SLURMD_NODENAME": name, "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": str(nodes)}
        line = ["/bin/bash", "-c", (node / "script").read_text(), "warm-up", *arguments]
        return programs.run(line, env=job, timeout=120, umask=umask).stdout

    @pytest.mark.parametrize("umask", [0o022, 0o077])
    def test_an_image_is_downloaded_once_for_everybody(self, node: Path, umask: int):
        image = "nvcr.io+nvidia+x+1=nvcr.io/nvidia/x:1"
        for _ in range(2):
            assert self.warm(node, "n-0", image, "alpine=alpine", umask=umask) == "warm-up: n-0 ready\n"
        there = node / "images" / "nvcr.io+nvidia+x+1.sqsh"
        assert there.read_text() == "docker://nvcr.io#nvidia/x:1\n"
        assert (node / "images" / "alpine.sqsh").read_text() == "docker://alpine\n"
        assert there.stat().st_mode & 0o777 == 0o644
        assert (there.parent / ".lock").stat().st_mode & 0o777 == 0o600
        assert there.parent.stat().st_mode & 0o777 == 0o755
        assert len((node / "asked").read_text().splitlines()) == 2
        assert sorted(path.name for path in (node / "images").iterdir()) == [".lock", "alpine.sqsh", there.name]

    def test_a_failed_download_leaves_no_image(self, node: Path):
        (node / "broken").touch()
        assert self.warm(node, "n-0", "alpine=alpine") == ""
        assert [path.name for path in (node / "images").iterdir()] == [".lock"]
        (node / "broken").unlink()
        assert self.warm(node, "n-0", "alpine=alpine") == "warm-up: n-0 ready\n"

    def test_without_a_source_nothing_is_downloaded(self, node: Path):
        assert self.warm(node, "", "alpine=alpine") == "warm-up: n-0 lacks\n"
        assert not (node / "asked").exists()
        assert self.warm(node, "") == "warm-up: n-0 ready\n", "rxdm alone"

    def test_the_source_sends_and_another_node_renames_what_has_arrived(self, node: Path):
        """sbcast copies to the folder of the other node, which is another one here."""
        other = node / "other"
        (other / "images").mkdir(parents=True)
        copy = f'for word; do from=$last last=$word; done; cp "$from" {shlex.quote(str(other))}/images/"${{last##*/}}"'
        programs.write(node / "bin" / "sbcast", copy)
        assert self.warm(node, "n-0", "alpine=alpine", nodes=2) == "warm-up: n-0 ready\n"
        assert sorted(path.name for path in (node / "images").iterdir()) == [".lock", "alpine.sqsh"]
        assert sorted(path.name for path in (other / "images").iterdir()) == [".copy-alpine", ".sent-7"]
        text = (node / "script").read_text().replace(f"{node}/images", f"{other}/images")
        (node / "script").write_text(text)
        assert self.warm(node, "n-0", "alpine=alpine", nodes=2, name="n-1") == "warm-up: n-1 ready\n"
        assert [path.name for path in (other / "images").iterdir()] == ["alpine.sqsh"]
