"""Warm-up of nodes: groups, names of files, reasons of failures, and the job's script."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import warm_up

from tests import programs

SCRIPT = Path(warm_up.__file__).with_name("warm_up.sh")
NAMES = st.lists(st.integers(0, 500).map(lambda n: f"n-{n}"), unique=True, max_size=60)


@given(NAMES, NAMES)
def test_every_node_is_in_one_group_and_none_is_alone_where_there_is_another(needing: list[str], partners: list[str]):
    groups = warm_up.grouped(needing, partners)
    assert [node for group in groups for node in group][: len(needing)] == needing
    for group in groups:
        assert len(group) <= warm_up.GROUP + 1
        assert len(set(group)) == len(group)
        assert len(group) > 1 or (len(needing) == 1 and not set(partners) - set(needing))


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("nvcr.io/nvidia/pytorch:24.04-py3", "nvcr.io+nvidia+pytorch+24.04-py3"),
        ("alpine", "alpine"),
        ("alpine@sha256:0a", "alpine+sha256+0a"),
    ],
)
def test_files_are_named_after_their_images(image: str, name: str):
    assert warm_up.file_name(image) == name


@pytest.mark.parametrize(
    ("code", "err", "text"),
    [
        (1, "no enroot\nsrun: error: n-0: task 0: Exited with exit code 1\n", "exit code 1: no enroot"),
        (1, "srun: error: Unable to allocate resources: Requested nodes are busy\n", "busy for 60 s"),
        (124, "", "no end in time"),
        (1, "srun: error: Task launch failed\n", "exit code 1: srun: error: Task launch failed"),
    ],
)
def test_reasons_of_failed_jobs(code: int, err: str, text: str):
    assert warm_up.why(code, err) == text


THREE = ["n-0", "n-1", "n-2"]
PART = {"name": "p", "nodes": THREE, "others": [], "rxdm": True, "cpus": 1, "memory": 256, "minutes": None}


class TestRun:
    """A run in which srun is a stand-in."""

    @pytest.fixture
    def warm(self, monkeypatch: pytest.MonkeyPatch):
        """Warm nodes in these states, with these answers of srun."""

        def warm(states: dict[str, str], **answers: tuple[int, str, str]) -> warm_up.Run:
            run = warm_up.Run({"images": ["alpine"], "partitions": [PART], "seconds": 60})
            self.jobs: list[tuple[list[str], list[str]]] = []

            def job(_part: object, nodes: list[str], arguments: list[str]) -> tuple[int, str, str]:
                self.jobs.append((nodes, arguments))
                if arguments == ["--rxdm"]:
                    return answers.get("rxdm", (0, "warm-up: ready\n" * len(nodes), ""))
                return answers.get(nodes[0].replace("-", ""), (0, "warm-up: ready\n", ""))

            monkeypatch.setattr(run, "job", job)
            monkeypatch.setattr(warm_up, "node_states", lambda: states)
            run.run()
            return run

        return warm

    def test_a_node_that_is_off_is_neither_started_nor_reported(self, warm):
        run = warm({"n-0": "idle", "n-1": "idle~", "n-2": "allocated#"})
        assert all("n-1" not in nodes and "n-2" not in nodes for nodes, _ in self.jobs)
        assert not {"n-1", "n-2"} & (set(run.missed) | run.wanted)

    def test_each_node_downloads_then_rxdm_runs_on_several(self, warm, capsys: pytest.CaptureFixture[str]):
        run = warm(dict.fromkeys(THREE, "idle"))
        assert sorted(nodes[0] for nodes, words in self.jobs if words == ["--look", "alpine=alpine"]) == THREE
        assert self.jobs[-1] == (["n-0", "n-1", "n-2"], ["--rxdm"])
        assert (sorted(run.ready), run.missed) == (THREE, {})
        assert "node n-2: ready after 0 s (3 of 3)" in capsys.readouterr().out

    @pytest.mark.parametrize("code", [0, 1])
    def test_one_node_downloads_images_and_sends_them_to_others(self, monkeypatch: pytest.MonkeyPatch, code: int):
        """If sending fails twice, the others download the images."""
        run = warm_up.Run({"images": ["alpine"], "partitions": [{**PART, "rxdm": False}], "seconds": 60})
        there: set[str] = {"n-0"} if code == 0 else set()
        downloads: list[str] = []
        sent: list[list[str]] = []

        def job(_part: object, nodes: list[str], arguments: list[str]) -> tuple[int, str, str]:
            if arguments[0] == "--send":
                sent.append(nodes)
                there.update(nodes if not code else ())
                return code, "", "no sbcast"
            if arguments[0] != "--look" and nodes[0] not in there:
                downloads.append(nodes[0])
                there.update(nodes)
            return 0, "warm-up: ready\n" if there.issuperset(nodes) else "warm-up: lacks alpine\n", ""

        monkeypatch.setattr(run, "job", job)
        monkeypatch.setattr(warm_up, "node_states", lambda: dict.fromkeys(THREE, "idle"))
        assert run.run() == {}
        assert sent == [THREE] * (2 if code else 1)
        assert sorted(downloads) == (["n-0", "n-1", "n-2"] if code else [])
        assert sorted(run.ready) == THREE

    def test_nodes_that_take_no_jobs_are_reported(self, warm):
        run = warm({"n-0": "idle", "n-1": "drained", "n-2": "idle*"})
        assert run.missed.keys() == {"n-0", "n-1", "n-2"}
        assert run.missed["n-1"] == "drained"
        assert "no other node is free" in run.missed["n-0"]

    def test_a_node_that_has_run_rxdm_is_a_partner_and_does_not_run_it_again(self, warm):
        has_rxdm = (0, "warm-up: rxdm\nwarm-up: ready\n", "")
        run = warm(dict.fromkeys(THREE, "mixed"), n0=has_rxdm, n1=has_rxdm)
        assert [nodes for nodes, words in self.jobs if words == ["--rxdm"]] == [["n-2", "n-0"]]
        assert not run.missed
        again = warm(dict.fromkeys(THREE, "idle"), n0=has_rxdm, n1=has_rxdm, n2=has_rxdm)
        assert not [nodes for nodes, words in self.jobs if words == ["--rxdm"]]
        assert len(again.ready) == 3

    def test_a_node_that_is_not_to_be_warmed_is_a_partner_and_not_counted(
        self, warm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setitem(PART, "nodes", ["n-0"])
        monkeypatch.setitem(PART, "others", ["n-1", "n-2"])
        run = warm({"n-0": "idle", "n-1": "drained", "n-2": "idle"})
        assert self.jobs[-1] == (["n-0", "n-2"], ["--rxdm"])
        assert list(run.ready) == ["n-0"]
        assert "(1 of 1)" in capsys.readouterr().out

    def test_a_failure_is_reported_and_raises_nothing(self, warm):
        failed = (1, "", "prolog failed\n")
        run = warm(dict.fromkeys(THREE, "idle"), rxdm=failed)
        assert run.missed == dict.fromkeys(THREE, "exit code 1: prolog failed")


@pytest.mark.parametrize(("longest", "minutes"), [(None, 32), (15, 15), (60, 32)])
def test_a_job_has_no_longer_time_limit_than_its_partition(
    monkeypatch: pytest.MonkeyPatch, longest: int | None, minutes: int
):
    asked: list[list[str]] = []

    def popen(line: list[str], **_: object) -> SimpleNamespace:
        asked.append(line)
        return SimpleNamespace(communicate=lambda **_: ("", ""), returncode=0)

    monkeypatch.setattr(
        warm_up, "subprocess", SimpleNamespace(Popen=popen, DEVNULL=0, PIPE=0, TimeoutExpired=TimeoutError)
    )
    run = warm_up.Run({"images": [], "partitions": [], "seconds": 1810})
    run.job({**PART, "minutes": longest}, ["n-0"], [])
    assert f"--time={minutes}" in asked[0]


class TestScript:
    """The script that runs on nodes, with a stand-in for enroot."""

    @pytest.fixture
    def node(self, tmp_path: Path) -> Path:
        text = SCRIPT.read_text()
        for old, new in (
            ("/var/lib/hpc/images", f"{tmp_path}/images"),
            ("/run/hpc/warm-up", f"{tmp_path}/marks"),
            ("/opt/apps/adm/slurm/scripts/rxdm", f"{tmp_path}/rxdm"),
            ("PATH=/usr/local/sbin", f"PATH={tmp_path}/bin:/usr/local/sbin"),
        ):
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "script").write_text(text)
        text = f'echo "$*" >>{tmp_path}/asked\n[ ! -e {tmp_path}/broken ] || exit 1\necho "$4" >"$3"'
        programs.write(tmp_path / "bin" / "enroot", text)
        return tmp_path

    def warm(self, node: Path, *arguments: str, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
        return programs.run(
            ["/bin/bash", "-c", (node / "script").read_text(), "warm-up", *arguments], env={}, timeout=120, umask=umask
        )

    @pytest.mark.parametrize("umask", [0o022, 0o077])
    def test_an_image_is_downloaded_once_for_everybody(self, node: Path, umask: int):
        image = "nvcr.io+nvidia+x+1=nvcr.io/nvidia/x:1"
        for _ in range(2):
            assert self.warm(node, image, "alpine=alpine", umask=umask).stdout == "warm-up: ready\n"
        there = node / "images" / "nvcr.io+nvidia+x+1.sqsh"
        assert there.read_text() == "docker://nvcr.io#nvidia/x:1\n"
        assert there.stat().st_mode & 0o777 == 0o644
        assert (there.parent / ".lock").stat().st_mode & 0o777 == 0o600
        assert there.parent.stat().st_mode & 0o777 == 0o755
        assert len((node / "asked").read_text().splitlines()) == 2
        assert sorted(path.name for path in (node / "images").iterdir()) == [".lock", "alpine.sqsh", there.name]

    def test_a_failed_download_leaves_no_image(self, node: Path):
        (node / "broken").touch()
        assert self.warm(node, "alpine=alpine").returncode == 1
        assert [path.name for path in (node / "images").iterdir()] == [".lock"]
        assert not (node / "images" / "alpine.sqsh").exists()
        (node / "broken").unlink()
        assert self.warm(node, "alpine=alpine").returncode == 0
        assert (node / "images" / "alpine.sqsh").read_text() == "docker://alpine\n"

    def test_look_downloads_nothing(self, node: Path):
        assert self.warm(node, "--look", "alpine=alpine").stdout == "warm-up: lacks alpine\n"
        assert not (node / "asked").exists()
        self.warm(node, "alpine=alpine")
        assert self.warm(node, "--look", "alpine=alpine").stdout == "warm-up: ready\n"

    def test_rxdm_is_noted_by_its_version(self, node: Path):
        (node / "rxdm").write_text("one")
        assert self.warm(node).stdout == "warm-up: ready\n"
        self.warm(node, "--rxdm")
        assert self.warm(node).stdout == "warm-up: rxdm\nwarm-up: ready\n"
        (node / "rxdm").write_text("two")
        assert self.warm(node).stdout == "warm-up: ready\n"
