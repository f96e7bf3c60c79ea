"""A script that is downloaded is the very one that the stack names; an error page never gets through."""

import contextlib
import http.server
import socket
import threading

import pytest
from jobs import prologs
from jobs.prologs import digest, obtain
from system.host import SetupError

SCRIPT = b"#!/bin/sh\necho pinned\n"
PAGE = b"\n<!DOCTYPE html>\n<html><title>Not found</title></html>\n"


PAGES = {"/script": SCRIPT, "/page": PAGE, "/large": b"#!/bin/sh\n" + b"#" * prologs.LARGEST, "/empty": b""}


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

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(prologs, "PAUSE", 0)
    _Server.asked = []
    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=serving.serve_forever, args=[0.02], daemon=True).start()
    yield f"http://127.0.0.1:{serving.server_port}"
    serving.shutdown()
    serving.server_close()


def source(url: str, data: bytes = SCRIPT) -> dict[str, str]:
    return {"url": url, "sha256": digest(data)}


def test_it_is_downloaded_once(server, tmp_path):
    there = tmp_path / "script"
    assert obtain("a", source(f"{server}/script"), there) == SCRIPT
    there.write_bytes(SCRIPT)
    assert obtain("a", source(f"{server}/script"), there) == SCRIPT
    assert _Server.asked == ["/script"]


def test_redirects_are_followed(server, tmp_path):
    assert obtain("a", source(f"{server}/moved"), tmp_path / "script") == SCRIPT


def test_another_content_shows_itself(server, tmp_path):
    with pytest.raises(SetupError) as caught:
        obtain("a", source(f"{server}/page"), tmp_path / "script")
    said = str(caught.value)
    assert f"{server}/page is not the script that the stack names; nothing was replaced" in said
    assert f"expected sha256: {digest(SCRIPT)}" in said
    assert f"found sha256:    {digest(PAGE)}" in said
    assert "first line:      <!DOCTYPE html>" in said


def test_a_pinned_page_is_no_script_either(server, tmp_path):
    with pytest.raises(SetupError, match=r"/page is not a script: its first line names no interpreter") as caught:
        obtain("a", source(f"{server}/page", PAGE), tmp_path / "script")
    assert digest(PAGE) in str(caught.value)


def test_nothing_at_all_is_no_script(server, tmp_path):
    with pytest.raises(SetupError, match=r"found:    \(nothing\)"):
        obtain("a", source(f"{server}/empty", b""), tmp_path / "script")


def test_an_address_that_leads_nowhere_is_asked_once(server, tmp_path):
    with pytest.raises(SetupError, match="the server answered 404 Not Found"):
        obtain("a", source(f"{server}/gone"), tmp_path / "script")
    assert _Server.asked == ["/gone"]


def test_a_server_that_is_busy_is_asked_again(server, tmp_path):
    with pytest.raises(SetupError, match="the server answered 503"):
        obtain("a", source(f"{server}/busy"), tmp_path / "script")
    assert len(_Server.asked) == prologs.TRIES


def test_a_page_without_end_is_not_kept(server, tmp_path):
    with pytest.raises(SetupError, match="larger than 4 MiB"):
        obtain("a", source(f"{server}/large"), tmp_path / "script")


def test_a_network_without_a_way_out_is_said(server, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(SetupError, match=r"refused\. The controller must reach it; .* name it as `file`"):
        obtain("a", source(f"http://127.0.0.1:{port}/script"), tmp_path / "script")


@pytest.mark.parametrize("first", ["#!/usr/bin/pyhton3", "#!/bin/sh\r", "#!/no/such -e"])
def test_a_script_that_this_machine_can_not_start_is_refused(first, tmp_path):
    """slurmd would drain every node of its jobs."""
    with pytest.raises(SetupError, match=r"there is no .* on this machine, by which its first line wants to be run"):
        obtain("a", {"lines": [first, "true", ""]}, tmp_path / "script")
