"""`./hpc examples`: without a cluster, and the files that it writes and removes on one."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from cli.cluster.jobs import Jobs
from cli.commands.jobs.examples import write
from cluster.jobs.examples import EXAMPLES, RECORD
from tests import programs
from tests.cli.conftest import OUTPUTS, Hpc, patch_outputs
from tests.cluster.stacks import EVERY


class FolderJobs(Jobs):
    """Jobs of a cluster whose file system is a folder."""

    def __init__(self, root: Path) -> None:
        object.__setattr__(self, "root", root)

    def put(self, files: Mapping[str, str]) -> list[str]:
        changed = []
        for path, text in files.items():
            target = self.place(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.read_text() != text:
                target.write_text(text)
                changed.append(path)
        return changed

    def run(self, line: str, *, stdin: str = "", seconds: float = 60) -> str:
        command = ["bash", "-c", line.replace(EXAMPLES, str(self.place(EXAMPLES)))]
        done = programs.run(command, input=stdin, check=True, timeout=seconds)
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
    def test_a_second_run_changes_nothing(self, jobs: FolderJobs):
        first, second = write(jobs, files(a="1", b="2")), write(jobs, files(a="1", b="2"))
        assert first.new == ["a.sh", "b.sh"]
        assert asdict(second) == {"new": [], "changed": [], "removed": [], "kept": []}

    def test_a_former_example_is_removed_and_no_other_file(self, jobs: FolderJobs):
        write(jobs, files(a="1", b="2", old="3"))
        jobs.place(f"{EXAMPLES}/theirs.sh").write_text("4")
        found = write(jobs, files(a="1", b="5", c="6"))
        assert (found.new, found.changed, found.removed, found.kept) == (["c.sh"], ["b.sh"], ["old.sh"], [])
        assert jobs.names() == {RECORD, "a.sh", "b.sh", "c.sh", "theirs.sh"}

    def test_a_former_example_that_somebody_changed_stays(self, jobs: FolderJobs):
        write(jobs, files(a="1", old="3"))
        jobs.place(f"{EXAMPLES}/old.sh").write_text("mine now")
        found = write(jobs, files(a="1"))
        assert (found.removed, found.kept) == ([], ["old.sh"])
        assert jobs.names() == {RECORD, "a.sh", "old.sh"}

    def test_a_run_after_a_stopped_one_removes_old_examples(self, jobs: FolderJobs, monkeypatch: pytest.MonkeyPatch):
        """The run is stopped at each of its calls of `put` in turn."""
        for calls in range(4):
            write(jobs, files(a="1", **{f"old{calls}": "2"}))
            allowed = [FolderJobs.put] * calls

            def put(self: FolderJobs, rows: Mapping[str, str], *, allowed: list[Any] = allowed) -> list[str]:
                if not allowed:
                    raise KeyboardInterrupt
                return allowed.pop()(self, rows)

            with monkeypatch.context() as patch:
                patch.setattr(FolderJobs, "put", put)
                with pytest.raises(KeyboardInterrupt) if calls < 3 else nullcontext():
                    write(jobs, files(a="1", new="3"))
            write(jobs, files(a="1"))
            assert jobs.names() == {RECORD, "a.sh"}


def file(stack: str) -> tuple[str, str]:
    """Return the option for a stack file of this repository: the tests' project has only `dev`."""
    return "--config-file", str(EVERY[stack])


class TestWithoutACluster:
    def test_the_list_has_left_out_examples_with_the_reason(self, hpc: Hpc):
        ended = hpc("examples", "dev", "--list")
        assert (ended.code, ended.err) == (0, "")
        assert "hello.sh" in ended.out
        assert "  mpi.sh                the machines have no Open MPI" in ended.out

    def test_the_list_as_json_has_options_and_left_out_examples(self, hpc: Hpc):
        document = json.loads(hpc("examples", "a3mega", *file("a3mega"), "--list", "--json").out)
        options = {row["name"]: row["options"] for row in document["examples"]}
        assert options["pytorch.sh"]["gpus-per-node"] == "h100:8"
        assert "mpi.sh" in options
        assert not document["left_out"]
        dev = json.loads(hpc("examples", "dev", "--list", "--json").out)
        assert "mpi.sh" in dev["left_out"]

    def test_a_dry_run_lists_the_files(self, hpc: Hpc):
        shown = hpc("examples", "nebius", *file("nebius"), "--dry-run").out.splitlines()
        assert "/opt/apps/hpc/examples/train.py" in shown

    def test_copies_that_do_not_differ_are_not_written_again(self, hpc: Hpc, tmp_path: Path):
        folder = tmp_path / "deep/examples"
        line = ("examples", "a3mega", *file("a3mega"), "--copy-to", str(folder), "--json")
        first, second = hpc(*line), hpc(*line)
        assert {"README", "env.sh", "hello.sh", "train.py"} <= set(json.loads(first.out)["changed"])
        assert json.loads(second.out)["changed"] == []
        assert (folder / "hello.sh").stat().st_mode & 0o111

    def test_copy_to_a_file_is_an_error(self, hpc: Hpc, tmp_path: Path):
        (tmp_path / "file").write_text("")
        ended = hpc("examples", "a3mega", *file("a3mega"), "--copy-to", str(tmp_path / "file"))
        assert ended.error.startswith(f"error: can't write to {tmp_path}/file")

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            (("--list", "--dry-run"), "give one of them"),
            (("--config-file", "Pulumi.dev.yaml"), "give --list, --dry-run or --copy-to"),
            ((), "dev"),
        ],
    )
    def test_wrong_options_and_a_stack_not_up_are_refused(self, hpc: Hpc, arguments: tuple[str, ...], error: str):
        ended = hpc("examples", "dev", *arguments)
        assert (ended.code, ended.out) == (1, "")
        assert error in ended.err


def test_a_cluster_whose_last_up_did_not_end_well_is_refused(hpc: Hpc, monkeypatch: pytest.MonkeyPatch):
    patch_outputs(monkeypatch, OUTPUTS)
    assert "stack dev has no output config. Bring it up to date with: ./hpc up dev" in hpc("examples", "dev").error
