"""./hpc examples: where it needs no cluster, and what it writes and removes on one."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from cli.cluster.jobs import Jobs
from cli.commands.jobs.examples import write
from cluster.jobs.examples import EXAMPLES, RECORD
from tests.cli.conftest import Hpc
from tests.cluster.stacks import EVERY


class FolderJobs(Jobs):
    """Jobs whose cluster is a folder."""

    def __init__(self, root: Path) -> None:
        object.__setattr__(self, "root", root)

    def put(self, files: Mapping[str, str], mode: int = 0o644) -> list[str]:
        changed = []
        for path, text in files.items():
            target = self.place(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.read_text() != text:
                target.write_text(text)
                target.chmod(mode)
                changed.append(path)
        return changed

    def run(self, line: str, *, stdin: str = "", seconds: float = 60) -> str:
        command = ["bash", "-c", line.replace(EXAMPLES, str(self.place(EXAMPLES)))]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, timeout=seconds)
        return done.stdout

    def place(self, path: str) -> Path:
        return Path(f"{self.__dict__['root']}{path}")

    def names(self) -> set[str]:
        return {path.name for path in self.place(EXAMPLES).iterdir()}


@pytest.fixture
def jobs(tmp_path: Path) -> FolderJobs:
    return FolderJobs(tmp_path)


def files(**texts: str) -> dict[str, str]:
    return {f"{EXAMPLES}/{name}.sh": text for name, text in texts.items()}


class TestOnACluster:
    def test_twice_changes_nothing(self, jobs: FolderJobs):
        first, again = write(jobs, files(a="1", b="2")), write(jobs, files(a="1", b="2"))
        assert first.new == ["a.sh", "b.sh"]
        assert asdict(again) == {"new": [], "changed": [], "removed": [], "kept": []}

    def test_what_is_no_example_any_more_is_removed_and_nothing_else(self, jobs: FolderJobs):
        write(jobs, files(a="1", b="2", old="3"))
        jobs.place(f"{EXAMPLES}/theirs.sh").write_text("4")
        found = write(jobs, files(a="1", b="5", c="6"))
        assert (found.new, found.changed, found.removed, found.kept) == (["c.sh"], ["b.sh"], ["old.sh"], [])
        assert jobs.names() == {RECORD, "a.sh", "b.sh", "c.sh", "theirs.sh"}

    def test_one_that_somebody_changed_stays(self, jobs: FolderJobs):
        write(jobs, files(a="1", old="3"))
        jobs.place(f"{EXAMPLES}/old.sh").write_text("mine now")
        found = write(jobs, files(a="1"))
        assert (found.removed, found.kept) == ([], ["old.sh"])
        assert jobs.names() == {RECORD, "a.sh", "old.sh"}

    def test_a_run_that_was_stopped_leaves_nothing_unknown(self, jobs: FolderJobs, monkeypatch: pytest.MonkeyPatch):
        """Whichever call it was stopped at, the next run removes what is no example any more."""
        for calls in range(4):
            write(jobs, files(a="1", **{f"old{calls}": "2"}))
            real, count = jobs.put, 0

            def put(rows: Mapping[str, str], mode: int = 0o644, *, real=real, most: int = calls) -> list[str]:
                nonlocal count
                count += 1
                if count > most:
                    raise KeyboardInterrupt
                return real(rows, mode)

            with monkeypatch.context() as patch:
                patch.setattr(FolderJobs, "put", lambda _self, rows, mode=0o644, put=put: put(rows, mode))
                try:
                    write(jobs, files(a="1", new="3"))
                except KeyboardInterrupt:
                    assert calls < 3
            write(jobs, files(a="1"))
            assert jobs.names() == {RECORD, "a.sh"}


def file(stack: str) -> tuple[str, str]:
    """The project's own stack file: the tests' project has `dev` only."""
    return "--config-file", str(EVERY[stack])


class TestWithoutACluster:
    def test_the_list_says_what_is_left_out_and_why(self, hpc: Hpc):
        ended = hpc("examples", "dev", "--list")
        assert (ended.code, ended.err) == (0, "")
        assert "hello.sh" in ended.out
        assert "  mpi.sh                the machines have no Open MPI" in ended.out

    def test_the_list_is_json_for_programs(self, hpc: Hpc):
        found = json.loads(hpc("examples", "a3mega", *file("a3mega"), "--list", "--json").out)
        options = {one["name"]: one["options"] for one in found["examples"]}
        assert options["pytorch.sh"]["gpus-per-node"] == "h100:8"
        assert "mpi.sh" in options
        assert not found["left_out"]
        dev = json.loads(hpc("examples", "dev", "--list", "--json").out)
        assert "mpi.sh" in dev["left_out"]

    def test_a_dry_run_names_the_files(self, hpc: Hpc):
        shown = hpc("examples", "nebius", *file("nebius"), "--dry-run").out.splitlines()
        assert "/opt/apps/hpc/examples/train.py" in shown

    def test_copies_are_written_once(self, hpc: Hpc, tmp_path: Path):
        folder = tmp_path / "deep/examples"
        line = ("examples", "a3mega", *file("a3mega"), "--copy-to", str(folder), "--json")
        first, again = hpc(*line), hpc(*line)
        assert {"README", "env.sh", "hello.sh", "train.py"} <= set(json.loads(first.out)["changed"])
        assert json.loads(again.out)["changed"] == []
        assert (folder / "hello.sh").stat().st_mode & 0o111

    def test_a_folder_that_is_a_file_is_named(self, hpc: Hpc, tmp_path: Path):
        (tmp_path / "file").write_text("")
        ended = hpc("examples", "a3mega", *file("a3mega"), "--copy-to", str(tmp_path / "file"))
        assert ended.err.startswith(f"error: can't write to {tmp_path}/file")

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            (("--list", "--dry-run"), "give one of them"),
            (("--config-file", "Pulumi.dev.yaml"), "give --list, --dry-run or --copy-to"),
            ((), "dev"),
        ],
    )
    def test_what_does_not_go_together_or_is_not_up(self, hpc: Hpc, arguments: tuple[str, ...], error: str):
        ended = hpc("examples", "dev", *arguments)
        assert (ended.code, ended.out) == (1, "")
        assert error in ended.err
