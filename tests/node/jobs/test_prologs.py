"""The tree of scripts matches the stack, or is not changed; files of others stay. Downloads; env.sh."""

import contextlib
import http.server
import json
import os
import socket
from pathlib import Path

import pytest
from jobs import prologs, rxdm
from jobs.prologs import digest, obtain
from jobs.rxdm import DEBIAN
from system import host, mounts
from system.host import SetupError

from tests import programs

RXDM = f"#!/bin/bash\nif {DEBIAN}; then\n\techo export\nfi\n"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(prologs, "TREE", tmp_path / "adm" / "slurm")
    monkeypatch.setattr(host, "SHARED", tmp_path)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    monkeypatch.setattr(mounts, "mount_all", lambda _: False)
    monkeypatch.setattr(rxdm, "trial_failure", lambda _: "")
    return tmp_path / "adm" / "slurm"


def payload(*names: str, rxdm_text: str | None = None, **more):
    return {
        "cluster": "lab",
        "controller_nodeset": "",
        "mounts": [],
        "scripts": {name: {"lines": ["#!/bin/sh", f"echo {name}", ""]} for name in names},
        "links": {f"prolog_slurmd.d/{name}.prolog_slurmd": f"../scripts/{name}" for name in names}
        | ({"partition-a3-epilog_slurmd.d/rxdm.epilog_slurmd": "../scripts/rxdm"} if rxdm_text else {}),
        "rxdm": {"lines": rxdm_text.split("\n"), "sha256": digest(rxdm_text.encode())} if rxdm_text else None,
        **more,
    }


def files(tree) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_symlink() or path.is_file()}


OWN = {"slurm_mux", "slurm_prolog", "slurm_epilog", "etc/slurm_mux.conf", "etc/hpc.json"}


class TestStaging:
    def test_all_files_and_links_exist_and_are_executable(self, tree):
        prologs.stage(payload("10-a", "20-b"))
        assert files(tree) == OWN | {
            "scripts/10-a",
            "scripts/20-b",
            "prolog_slurmd.d/10-a.prolog_slurmd",
            "prolog_slurmd.d/20-b.prolog_slurmd",
        }
        assert (tree / "prolog_slurmd.d/10-a.prolog_slurmd").read_text() == "#!/bin/sh\necho 10-a\n"
        assert all((tree / name).stat().st_mode & 0o777 == 0o755 for name in ("slurm_prolog", "scripts/10-a"))
        assert "cluster=lab\n" in (tree / "etc/slurm_mux.conf").read_text()

    def test_a_second_run_changes_nothing(self, tree, capsys):
        prologs.stage(payload("10-a"))
        capsys.readouterr()
        prologs.stage(payload("10-a"))
        assert capsys.readouterr().out == ""

    def test_removed_scripts_are_deleted_with_empty_folders(self, tree):
        prologs.stage(payload("10-a"))
        prologs.stage(payload("10-a", links={"epilog_slurmd.d/10-a.epilog_slurmd": "../scripts/10-a"}))
        assert files(tree) == OWN | {"scripts/10-a", "epilog_slurmd.d/10-a.epilog_slurmd"}
        assert not (tree / "prolog_slurmd.d").exists()

    def test_nothing_is_replaced_if_one_text_is_not_a_script(self, tree):
        prologs.stage(payload("10-a"))
        wrong = payload("10-a", "20-b")
        wrong["scripts"]["10-a"]["lines"] = ["#!/bin/sh", "echo new"]
        wrong["scripts"]["20-b"]["lines"] = ["<!DOCTYPE html>", "<html>404</html>"]
        with pytest.raises(SetupError, match="first line names no interpreter") as caught:
            prologs.stage(wrong)
        assert "script 20-b" in str(caught.value)
        assert "<!DOCTYPE html>" in str(caught.value)
        assert (tree / "scripts/10-a").read_text() == "#!/bin/sh\necho 10-a\n"

    def test_files_of_a_killed_run_are_recorded(self, tree, monkeypatch):
        def killed(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(prologs, "link", killed)
        with pytest.raises(KeyboardInterrupt):
            prologs.stage(payload("10-a"))
        assert (tree / "scripts/10-a").exists()
        prologs.remove()
        assert not tree.exists()


class TestOthers:
    def test_files_of_others_stay(self, tree):
        prologs.stage(payload("10-a"))
        (tree / "prolog_slurmd.d/mine.prolog_slurmd").write_text("#!/bin/sh\n")
        prologs.stage(payload("20-b"))
        prologs.remove()
        assert files(tree) == {"prolog_slurmd.d/mine.prolog_slurmd"}

    def test_a_file_of_others_is_not_overwritten(self, tree):
        (tree / "scripts").mkdir(parents=True)
        (tree / "scripts/10-a").write_text("#!/bin/sh\n# mine\n")
        with pytest.raises(SetupError, match=r"not made by this program.*scripts/10-a"):
            prologs.stage(payload("10-a"))
        assert files(tree) == {"scripts/10-a"}

    def test_an_identical_file_is_accepted(self, tree):
        prologs.stage(payload("10-a"))
        (tree / "etc/hpc.json").unlink()
        prologs.stage(payload("10-a"))
        assert prologs.own_paths() == files(tree) - {"etc/hpc.json"}


class TestRxdm:
    def converge(self, staged) -> None:
        prologs.stage(staged)
        links = {path: target for path, target in staged["links"].items() if target == "../scripts/rxdm"}
        rxdm.converge({"known": {}, "links": links, "sha256": staged["rxdm"]["sha256"]})

    def test_a_new_version_is_staged_beside_the_one_that_runs(self, tree):
        """Jobs may start between staging and judging: they get the version before, or none."""
        self.converge(payload(rxdm_text=RXDM))
        patched = (tree / "scripts/rxdm").read_text()
        newer = RXDM.replace("export", "newer")
        prologs.stage(payload(rxdm_text=newer))
        assert (tree / "scripts/rxdm").read_text() == patched
        assert (tree / "scripts/rxdm.staged").read_text() == newer

    def test_no_link_leads_to_nothing(self, tree):
        prologs.stage(payload("10-a", rxdm_text=RXDM))
        assert [path for path in tree.rglob("*") if path.is_symlink() and not path.exists()] == []
        assert not list(tree.glob("partition-*/*"))

    def test_a_patched_version_is_not_staged_again(self, tree, capsys):
        self.converge(payload(rxdm_text=RXDM))
        capsys.readouterr()
        prologs.stage(payload(rxdm_text=RXDM))
        assert capsys.readouterr().out == ""
        (tree / "scripts/rxdm.staged").write_text("of a version that was taken back")
        prologs.stage(payload(rxdm_text=RXDM))
        assert not (tree / "scripts/rxdm.staged").exists()

    def test_rxdm_is_removed_with_its_section_of_the_stack_file(self, tree):
        self.converge(payload("10-a", rxdm_text=RXDM))
        prologs.stage(payload("10-a"))
        assert files(tree) == OWN | {"scripts/10-a", "prolog_slurmd.d/10-a.prolog_slurmd"}
        rxdm.undo()


class TestObserve:
    def test_links_scripts_and_files_of_others(self, tree):
        prologs.stage(payload("10-a"))
        (tree / "scripts/theirs").write_text("x")
        (tree / "prolog_slurmd.d/lost.prolog_slurmd").symlink_to("../scripts/lost")
        seen = prologs.observe()
        assert seen["slurm_prolog"] == "-> slurm_mux"
        assert seen["prolog_slurmd.d/10-a.prolog_slurmd"] == "-> ../scripts/10-a"
        assert seen["scripts/10-a"] == digest(b"#!/bin/sh\necho 10-a\n")
        assert seen["scripts/theirs"] == digest(b"x")
        assert "prolog_slurmd.d/lost.prolog_slurmd" not in seen

    def test_a_changed_rxdm_is_reported(self, tree):
        TestRxdm().converge(payload(rxdm_text=RXDM))
        assert prologs.observe()["scripts/rxdm"] == prologs.rxdm_record()["after"]
        (tree / "scripts/rxdm").write_text("#!/bin/sh\n")
        assert prologs.observe()["scripts/rxdm"] == "changed"

    def test_a_script_without_execute_permission_is_reported(self, tree):
        prologs.stage(payload("10-a"))
        (tree / "scripts/10-a").chmod(0o644)
        assert prologs.observe()["scripts/10-a"] == "not executable"
        assert prologs.observe()["etc/slurm_mux.conf"] != "not executable"


class TestRootOfANode:
    """It may write into the tree; the controller's root does not follow it out of there."""

    @pytest.mark.parametrize("path", ["../../kept", "{tmp}/kept", "out/kept"])
    def test_no_file_elsewhere_is_removed(self, tree, tmp_path, path):
        prologs.stage(payload("10-a"))
        (tmp_path / "kept").touch()
        (tree / "out").symlink_to(tmp_path)
        (tree / prologs.OWN_PATHS).write_text(json.dumps({"paths": [path.format(tmp=tmp_path)]}))
        for work in (prologs.remove, lambda: prologs.stage(payload("20-b"))):
            with pytest.raises(SetupError, match=r"was changed|symbolic link"):
                work()
        assert (tmp_path / "kept").exists()

    def test_no_file_elsewhere_is_written(self, tree, tmp_path):
        prologs.stage(payload("10-a"))
        (tmp_path / "cron.d").mkdir()
        (tree / "scripts/10-a").unlink()
        (tree / "scripts").rmdir()
        (tree / "scripts").symlink_to(tmp_path / "cron.d")
        with pytest.raises(SetupError, match="symbolic link"):
            prologs.stage(payload("10-a"))
        assert list((tmp_path / "cron.d").iterdir()) == []


SCRIPT = b"#!/bin/sh\necho pinned\n"
PAGE = b"\n<!DOCTYPE html>\n<html><title>Not found</title></html>\n"


PAGES = {"/script": SCRIPT, "/page": PAGE, "/large": b"#!/bin/sh\n" + b"#" * prologs.MAX_BYTES, "/empty": b""}


class _Server(http.server.BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/script")
        elif self.path in PAGES:
            self.send_response(200)
        else:
            self.send_response(503 if self.path == "/busy" else 404)
        self.end_headers()
        with contextlib.suppress(OSError):  # who asked may have heard enough
            self.wfile.write(PAGES.get(self.path, PAGE))


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(prologs, "PAUSE_SECONDS", 0)
    _Server.asked = []
    with programs.served(_Server) as port:
        yield f"http://127.0.0.1:{port}"


def source(url: str, data: bytes = SCRIPT) -> dict[str, str]:
    return {"url": url, "sha256": digest(data)}


def test_a_script_is_downloaded_once_and_redirects_are_followed(server, tmp_path):
    there = tmp_path / "script"
    assert obtain("a", source(f"{server}/moved"), there) == SCRIPT
    there.write_bytes(SCRIPT)
    assert obtain("a", source(f"{server}/moved"), there) == SCRIPT
    assert _Server.asked == ["/moved", "/script"]


@pytest.mark.parametrize(
    ("page", "data", "why", "asked"),
    [
        ("page", PAGE, rf"(?s)/page is not a script: its first line names no interpreter.*{digest(PAGE)}", 1),
        ("empty", b"", r"found:    \(nothing\)", 1),
        ("gone", SCRIPT, "the server answered 404 Not Found", 1),
        ("busy", SCRIPT, "the server answered 503", prologs.TRIES),
        ("large", SCRIPT, "larger than 4 MiB", 1),
    ],
)
def test_a_page_is_refused_and_only_a_busy_server_asked_again(server, tmp_path, page, data, why, *, asked):
    with pytest.raises(SetupError, match=why):
        obtain("a", source(f"{server}/{page}", data), tmp_path / "script")
    assert _Server.asked == [f"/{page}"] * asked


def test_the_error_for_another_hash_has_the_first_line(server, tmp_path):
    with pytest.raises(SetupError) as caught:
        obtain("a", source(f"{server}/page"), tmp_path / "script")
    said = str(caught.value)
    assert f"{server}/page is not the script that the stack names; nothing was replaced" in said
    assert f"expected sha256: {digest(SCRIPT)}" in said
    assert f"found sha256:    {digest(PAGE)}" in said
    assert "first line:      <!DOCTYPE html>" in said


def test_the_error_without_a_network_has_a_remedy(server, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(SetupError, match=r"refused\. The controller must reach it; .* name it as `file`"):
        obtain("a", source(f"http://127.0.0.1:{port}/script"), tmp_path / "script")


@pytest.mark.parametrize("first", ["#!/usr/bin/pyhton3", "#!/bin/sh\r", "#!/no/such -e"])
def test_a_script_that_this_machine_can_not_start_is_refused(first, tmp_path):
    """slurmd would drain every node of its jobs."""
    with pytest.raises(SetupError, match=r"there is no .* on this machine, which its first line names"):
        obtain("a", {"lines": [first, "true", ""]}, tmp_path / "script")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prologs, "ENVIRONMENT", tmp_path / "apps/hpc/env.sh")
    monkeypatch.setattr(host, "SHARED", tmp_path / "apps")
    return prologs.ENVIRONMENT


def test_env_sh_has_the_mode_that_other_commands_give_it(file: Path):
    prologs.keep_environment(["# one", "export A=1"])
    assert file.read_text() == "# one\nexport A=1\n"
    # scripts/jobs/put.py gives *.sh this mode, and would change the file of another.
    assert file.stat().st_mode & 0o777 == 0o755


def test_env_sh_stays_if_the_input_has_no_lines(file: Path):
    prologs.keep_environment(["export A=1"])
    prologs.keep_environment([])
    assert file.read_text() == "export A=1\n"


def test_env_sh_is_not_written_into_a_folder_that_others_can_write_to(file: Path):
    file.parent.mkdir(parents=True)
    file.parent.chmod(0o777)
    with pytest.raises(SetupError, match="may be written by others"):
        prologs.keep_environment(["export A=1"])
    assert not file.exists()
