"""Jobs of a user on a cluster that is up; ssh is a stand-in that runs the line here, as are Slurm's commands."""

from pathlib import Path

import pytest

from cli.cluster import jobs as module
from cli.cluster.cluster import from_outputs
from cli.cluster.jobs import Jobs, parse_sacct, parse_squeue
from cli.errors import CliError
from scripts.node.slurm.jobs import Job
from tests.cli.conftest import OUTPUTS, Tool

SQUEUE_WIDTHS = (16, 20, 12, 20, 60, 4000)


def row(*cells: str) -> str:
    """A line of squeue."""
    return "".join(cell.ljust(width) for cell, width in zip(cells, SQUEUE_WIDTHS, strict=True))


@pytest.fixture
def jobs(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Alice's jobs; who a line runs as is the first line of `as`."""
    tool("ssh", 'for word; do last=$word; done; exec bash -c "$last"')
    tool("runuser", f'echo "$2" >>{tmp_path}/as; exec bash -c "$4"')
    monkeypatch.setattr(module, "FOLDER", str(tmp_path / "apps"))
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    return Jobs(from_outputs("dev", OUTPUTS), "alice")


class TestFiles:
    def test_only_changed_files_are_written_and_scripts_are_executable(self, jobs: Jobs, tmp_path: Path):
        folder = tmp_path / "apps"
        odd = "a 'b' \"c\" \\n ü\n$HOME `id` \u2028"
        files = {f"{folder}/a/run.sh": "#!/bin/bash\n", f"{folder}/a/b/data": odd}
        assert jobs.put(files) == list(files)
        assert (folder / "a/b/data").read_text() == odd
        modes = {"a": 0o755, "a/run.sh": 0o755, "a/b/data": 0o644}
        assert {name: (folder / name).stat().st_mode & 0o777 for name in modes} == modes
        assert jobs.put(files) == []
        (folder / "a/run.sh").chmod(0o700)
        (folder / "a/b/data").write_text("x")
        assert jobs.put(files) == list(files)
        assert sorted(path.name for path in folder.rglob("*")) == ["a", "b", "data", "run.sh"]
        assert not (tmp_path / "as").exists(), "files are root's"

    def test_a_folder_that_users_can_write_to_is_refused(self, jobs: Jobs, tmp_path: Path):
        (tmp_path / "apps/a").mkdir(parents=True)
        (tmp_path / "apps/a").chmod(0o777)
        with pytest.raises(CliError, match="apps/a is not a folder that root alone can write to"):
            jobs.put({f"{tmp_path}/apps/a/run.sh": ""})
        assert list((tmp_path / "apps/a").iterdir()) == []

    def test_a_link_is_not_followed(self, jobs: Jobs, tmp_path: Path):
        (tmp_path / "apps").mkdir()
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere/file").write_text("mine")
        (tmp_path / "apps/folder").symlink_to(tmp_path / "elsewhere")
        (tmp_path / "apps/file").symlink_to(tmp_path / "elsewhere/file")
        with pytest.raises(CliError, match="not a folder"):
            jobs.put({f"{tmp_path}/apps/folder/file": "x"})
        assert jobs.put({f"{tmp_path}/apps/file": "x"}) == [f"{tmp_path}/apps/file"]
        assert not (tmp_path / "apps/file").is_symlink()
        assert (tmp_path / "elsewhere/file").read_text() == "mine"

    def test_a_file_that_can_not_be_written_is_an_error_without_a_traceback(self, jobs: Jobs, tmp_path: Path):
        (tmp_path / "apps").write_text("")
        with pytest.raises(CliError) as raised:
            jobs.put({f"{tmp_path}/apps/a/run.sh": ""})
        assert str(raised.value) == f"dev-controller: {tmp_path}/apps/a/run.sh can't be written: File exists"

    @pytest.mark.parametrize("path", ["/etc/passwd", "apps/x", "{}/apps/../x"])
    def test_paths_outside_of_the_folder_are_refused(self, jobs: Jobs, tmp_path: Path, path: str):
        with pytest.raises(ValueError, match="not below"):
            jobs.put({path.format(tmp_path): ""})

    def test_files_are_read_as_the_user(self, jobs: Jobs, tmp_path: Path):
        (tmp_path / "a b.out").write_text("0123456789")
        assert jobs.read(f"{tmp_path}/a b.out", most=4) == "0123"
        assert (tmp_path / "as").read_text() == "alice\n"
        with pytest.raises(CliError, match="No such file"):
            jobs.read(f"{tmp_path}/none", most=4)


class TestSubmission:
    def test_a_script_is_submitted_with_options(self, jobs: Jobs, tool: Tool, tmp_path: Path):
        tool("sbatch", f'printf "%s|" "$@" >{tmp_path}/given; echo "some plugin speaks"; echo "17;dev"')
        assert jobs.submit("#!/bin/sh\n", {"job-name": "a $b", "hold": False, "exclusive": True}) == "17"
        assert (tmp_path / "given").read_text() == "--parsable|--job-name=a $b|--exclusive|"
        assert (tmp_path / "as").read_text() == "alice\n"

    def test_the_text_of_a_script_is_submitted_on_standard_input(self, jobs: Jobs, tool: Tool, tmp_path: Path):
        tool("sbatch", f"cat >{tmp_path}/given; echo 18")
        assert jobs.submit('#!/bin/bash\necho "$HOME" \'\n') == "18"
        assert (tmp_path / "given").read_text() == '#!/bin/bash\necho "$HOME" \'\n'

    def test_the_error_has_the_output_of_sbatch(self, jobs: Jobs, tool: Tool):
        tool("sbatch", "echo 'sbatch: error: Invalid partition' >&2; exit 1")
        with pytest.raises(CliError, match="dev-login-0: sbatch: error: Invalid partition"):
            jobs.submit("#!/bin/sh\n")
        tool("sbatch", "echo hello")
        with pytest.raises(CliError, match="printed no job id: hello"):
            jobs.submit("#!/bin/sh\n")

    def test_cancelling_no_job_runs_no_command(self, jobs: Jobs, tool: Tool, tmp_path: Path):
        tool("scancel", f'echo "$@" >>{tmp_path}/given')
        jobs.cancel([])
        jobs.cancel(["1", "2"])
        assert (tmp_path / "given").read_text() == "--quiet 1 2\n"


class TestWaiting:
    def answers(self, tool: Tool, folder: Path, *texts: str) -> None:
        """Each call of squeue prints the next text, and then the last one again."""
        for number, text in enumerate(texts):
            (folder / f"answer-{number}").write_text(text)
        tool(
            "squeue",
            f"n=$(cat {folder}/n 2>/dev/null || echo 0); [ $n -lt {len(texts) - 1} ] && echo $((n + 1)) >{folder}/n\n"
            f"cat {folder}/answer-$n",
        )

    def test_every_change_of_state_is_reported_once(self, jobs: Jobs, tool: Tool, tmp_path: Path):
        waits = row("7", "PENDING", "0:0", "0:00", "Resources", "")
        runs = row("7", "RUNNING", "0:0", "0:03", "None", "dev-cpu-[0-1]")
        ended = row("7", "COMPLETED", "0:0", "1:00:00", "None", "dev-cpu-[0-1]")
        other = row("8", "FAILED", "1:0", "0:01", "NonZeroExitCode", "dev-cpu-0")
        texts = ["\n".join([line, other]) for line in (waits, waits, runs, runs, ended)]
        self.answers(tool, tmp_path, *texts)
        seen: list[str] = []
        last = jobs.wait(["7"], lambda found: seen.append(found["7"].state), 60)
        assert seen == ["PENDING", "RUNNING", "COMPLETED"]
        assert last["7"].elapsed == "1:00:00"
        assert last["7"].completed
        assert list(last) == ["7"]

    def test_jobs_that_slurmctld_has_removed_are_read_from_the_database(self, jobs: Jobs, tool: Tool, tmp_path: Path):
        self.answers(tool, tmp_path, "")
        tool("sacct", f'echo "$@" >{tmp_path}/given; echo "7|CANCELLED by 2001|0:15|00:00:09|dev-cpu-0"')
        assert jobs.wait(["7"], lambda _: None, 60)["7"] == Job(
            id="7", state="CANCELLED", exit_code="0:15", elapsed="00:00:09", nodes="dev-cpu-0"
        )
        assert "--jobs=7 " in (tmp_path / "given").read_text()

    def test_a_job_in_neither_slurmctld_nor_the_database_is_an_error(
        self, jobs: Jobs, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        self.answers(tool, tmp_path, "")
        tool("sacct", "true")
        monkeypatch.setattr(module, "_RECORD_SECONDS", 0.05)
        for seconds in (60, 0):  # what was asked for is in the answer, so it does not return without it
            with pytest.raises(CliError, match="job 99: slurmctld and the accounting database do not know it"):
                jobs.wait(["99"], lambda _: None, seconds)

    def test_after_the_timeout_the_last_states_are_returned(self, jobs: Jobs, tool: Tool, tmp_path: Path):
        self.answers(tool, tmp_path, row("7", "PENDING", "0:0", "0:00", "Resources", ""))
        assert jobs.wait(["7"], lambda _: None, 0)["7"].state == "PENDING"


class TestStates:
    @pytest.mark.parametrize(
        ("tasks", "whole"),
        [
            (["COMPLETED", "PENDING"], "PENDING"),
            (["COMPLETED", "RUNNING", "PENDING"], "RUNNING"),
            (["COMPLETED", "FAILED", "COMPLETED"], "FAILED"),
            (["COMPLETED", "REQUEUE_HOLD"], "REQUEUE_HOLD"),
            (["COMPLETED", "COMPLETED"], "COMPLETED"),
        ],
    )
    def test_a_job_array_has_one_state(self, tasks: list[str], whole: str):
        squeue = "\n".join(row("4", state, "0:0", "0:00", "None", "") for state in tasks)
        sacct = "\n".join(f"4_{number}|{state}|0:0|00:00:01|n" for number, state in enumerate(tasks))
        assert parse_squeue(squeue, ["4"])["4"].state == whole
        assert parse_sacct(sacct, ["4"])["4"].state == whole

    @pytest.mark.parametrize(
        ("printed", "meant"),
        [("0:0", "0:0"), ("3:0", "3:0"), ("0:9", "0:9"), ("0", "0:0"), ("512", "2:0"), ("9", "0:9")],
    )
    def test_exit_codes_of_every_release_are_parsed(self, printed: str, meant: str):
        assert parse_squeue(row("4", "FAILED", printed, "0:01", "None", "n"), ["4"])["4"].exit_code == meant

    def test_lines_that_are_no_records_are_skipped(self):
        assert parse_sacct("sacct: something\n\n4|COMPLETED\n", ["4"]) == {}
        assert parse_squeue("\n" + row("4", "RUNNING", "0:0", "0:00", "None", "n"), ["5"]) == {}
