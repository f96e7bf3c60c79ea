"""What the steps of an image share: files, sources, keys and modules, each taken only as it was named."""

import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

LIBRARY = Path(__file__).parents[2] / "scripts" / "image" / "library.sh"
CONTENT = b"what was named\n"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """Address of a web server for the files of a folder."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "file").write_bytes(CONTENT)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def bash(text: str, **environment: str) -> tuple[int, str]:
    """Exit code and output of a step with this text."""
    script = f'. "{LIBRARY}"\n{environment.pop("before", "")}\n{text}'
    # The library sets its own PATH: stand-ins come before it again.
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    return done.returncode, done.stdout + done.stderr


def git(folder: Path, *words: str) -> str:
    """Run git in a repository of the test's."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class TestPut:
    def test_it_writes_text_and_mode_and_says_so_once(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "file"
        assert bash(f"put {path} 0750 <<<text") == (0, f"wrote {path}\n")
        assert path.read_text() == "text\n"
        assert path.stat().st_mode & 0o7777 == 0o750
        assert bash(f"put {path} 0750 <<<text") == (0, "")
        assert list(path.parent.iterdir()) == [path]

    def test_another_mode_or_a_link_is_set_right(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        bash(f"put {path} <<<text")
        path.chmod(0o666)
        assert bash(f"put {path} <<<text") == (0, f"wrote {path}\n")
        (tmp_path / "other").write_text("text\n")
        path.unlink()
        path.symlink_to(tmp_path / "other")
        bash(f"put {path} <<<new")
        assert (tmp_path / "other").read_text() == "text\n"
        assert path.read_text() == "new\n"


STATUS = {
    # What `dkms status -k KERNEL` printed for one real module of each kind, built for Debian's 6.1.0-56-cloud-amd64.
    "2.8.1": "{}, 1.1, 6.1.0-56-cloud-amd64, x86_64: {}\n",
    "2.8.7": "{}/1.1, 6.1.0-56-cloud-amd64, x86_64: {}\n",
    "3.0.10": "{}/1.1, 6.1.0-56-cloud-amd64, x86_64: {}\n",
}
LOST = (
    "installed (WARNING! Diff between built and installed module!)",
    "installed (Differences between built and installed modules)",
)


class TestBuilt:
    """Modules that DKMS has built and installed, by what `dkms status` of its versions prints."""

    def built(self, said: str, name: str = "dmabuf-import-helper") -> tuple[int, str]:
        return bash(f"built {name}", before=f"dkms() {{ printf %b {said!r}; }}", KERNEL="6.1.0-56-cloud-amd64")

    @pytest.mark.parametrize("version", STATUS)
    @pytest.mark.parametrize(
        "state", ["installed", "installed (original_module exists)", "installed (Original modules exist)"]
    )
    def test_what_is_installed_is(self, version: str, state: str) -> None:
        said = "nvidia/580.95.05, 6.1.0-56-cloud-amd64, x86_64: built\n" + STATUS[version].format(
            "dmabuf-import-helper", state
        )
        assert self.built(said) == (0, "")

    @pytest.mark.parametrize("version", STATUS)
    @pytest.mark.parametrize("state", ["added", "built", *LOST])
    def test_what_is_not_or_was_lost_since_is_shown(self, version: str, state: str) -> None:
        said = STATUS[version].format("dmabuf-import-helper", state)
        status, told = self.built(said)
        assert (status, said.strip() in told) == (1, True)

    def test_a_name_is_the_whole_name(self) -> None:
        said = STATUS["3.0.10"].format("dmabuf-import-helper", "installed")
        assert [self.built(said, name)[0] for name in ("import-helper", "dmabuf", "dmabuf-import-helper/1.1")] == [
            1,
            1,
            0,
        ]
        assert "it has no modules for it" in self.built("")[1]


class TestFetch:
    def test_a_file_of_the_named_content_is_kept_and_not_fetched_again(self, served: str, tmp_path: Path) -> None:
        path, hash_ = tmp_path / "to" / "file", sha256(CONTENT).hexdigest()
        assert bash(f"fetch {served}/file {hash_} {path}")[0] == 0
        assert path.read_bytes() == CONTENT
        assert bash(f"fetch {served}/gone {hash_} {path}")[0] == 0

    def test_any_other_content_is_refused_and_nothing_replaced(self, served: str, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_text("old")
        status, said = bash(f"fetch {served}/file {'0' * 64} {path}")
        assert status == 1
        assert f"error: what stands at {served}/file has SHA-256 {sha256(CONTENT).hexdigest()}, not {'0' * 64}" in said
        assert path.read_text() == "old"


class TestCheckout:
    @pytest.fixture
    def upstream(self, tmp_path: Path) -> Path:
        """A repository with two commits."""
        folder = tmp_path / "upstream"
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main")
        git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
        for number in (1, 2):
            (folder / "file").write_text(f"{number}\n")
            git(folder, "add", ".")
            git(folder, "commit", "-q", "-m", str(number))
        return folder

    def test_exactly_the_commit_and_nothing_beside_it(self, upstream: Path, tmp_path: Path) -> None:
        there, first = tmp_path / "tree", git(upstream, "rev-parse", "HEAD~")
        assert bash(f"checkout file://{upstream} {first} {there}") == (0, "")
        assert (there / "file").read_text() == "1\n"
        (there / "file").write_text("changed")
        (there / "left").write_text("from a build that was killed")
        assert bash(f"checkout file:///gone {first} {there}") == (0, "")
        assert (there / "file").read_text() == "1\n"
        assert not (there / "left").exists()

    def test_a_folder_that_a_killed_run_left_is_made_anew(self, upstream: Path, tmp_path: Path) -> None:
        there = tmp_path / "tree"
        there.mkdir()
        (there / "half").write_text("")
        assert bash(f"checkout file://{upstream} {git(upstream, 'rev-parse', 'HEAD')} {there}")[0] == 0
        assert sorted(path.name for path in there.iterdir()) == [".git", "file"]

    def test_its_submodules_are_of_the_commits_that_it_names(self, upstream: Path, tmp_path: Path) -> None:
        whole, first = tmp_path / "whole", git(upstream, "rev-parse", "HEAD~")
        whole.mkdir()
        git(whole, "init", "-q", "-b", "main")
        git(whole, "submodule", "--quiet", "add", f"file://{upstream}", "part")
        git(whole / "part", "checkout", "-q", first)
        git(whole, "add", ".")
        git(whole, "commit", "-q", "-m", "with a part")
        git(whole, "config", "uploadpack.allowAnySHA1InWant", "true")
        local = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
        there, commit = tmp_path / "tree", git(whole, "rev-parse", "HEAD")
        assert bash(f"checkout file://{whole} {commit} {there}", **local)[0] == 0
        assert (there / "part" / "file").read_text() == "1\n"
        # Also what a build has changed there is as it was, the next time.
        (there / "part" / "file").write_text("built")
        bash(f"checkout file://{whole} {commit} {there}", **local)
        assert (there / "part" / "file").read_text() == "1\n"

    def test_a_branch_and_a_commit_that_is_not_there_are_refused(self, upstream: Path, tmp_path: Path) -> None:
        status, said = bash(f"checkout file://{upstream} main {tmp_path / 'tree'}")
        assert status == 1
        assert "main is no commit: a branch or a tag can change" in said
        status, said = bash(f"checkout file://{upstream} {'1' * 40} {tmp_path / 'tree'}")
        assert status == 1
        assert f"commit {'1' * 40} could not be had" in said


class TestRepository:
    @pytest.fixture
    def keys(self, served: str, tmp_path: Path) -> tuple[str, list[str]]:
        """A file of two keys on the web server, and their fingerprints."""
        home = tmp_path / "gpg"
        home.mkdir(mode=0o700)
        found = []
        for name in ("one", "two"):
            command = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
            subprocess.run(
                [*command, "--passphrase", "", "--quick-generate-key", f"{name}@localhost", "ed25519"],
                check=True, capture_output=True,
            )  # fmt: skip
            listed = subprocess.run(
                [*command, "--with-colons", "--fingerprint", f"{name}@localhost"],
                check=True, capture_output=True, text=True,
            ).stdout  # fmt: skip
            found.append(next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr")))
        exported = subprocess.run(
            ["gpg", "--homedir", str(home), "--armor", "--export"], check=True, capture_output=True
        ).stdout
        (tmp_path / "served" / "keys").write_bytes(exported)
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
        return f"{served}/keys", found

    def test_only_the_named_key_of_a_file_is_trusted(self, keys: tuple[str, list[str]], tmp_path: Path) -> None:
        url, (one, two) = keys
        line = "deb [signed-by=@key@] https://example.org/ /"
        status, said = bash(f"repository ours {url} {two} '{line}'", HPC_APT=str(tmp_path / "apt"))
        assert status == 0, said
        kept = tmp_path / "apt" / "keyrings" / "hpc-ours.gpg"
        shown = subprocess.run(["gpg", "--show-keys", str(kept)], check=True, capture_output=True, text=True).stdout
        assert two in shown
        assert one not in shown
        listed = (tmp_path / "apt" / "sources.list.d" / "hpc-ours.list").read_text()
        assert listed == f"deb [signed-by={kept}] https://example.org/ /\n"

    def test_a_key_that_nobody_has_named_is_refused(self, keys: tuple[str, list[str]], tmp_path: Path) -> None:
        status, said = bash(f"repository ours {keys[0]} {'A' * 40} deb", HPC_APT=str(tmp_path / "apt"))
        assert status == 1
        assert f"the key at {keys[0]} is not {'A' * 40}" in said
        assert not (tmp_path / "apt").exists()

    @pytest.mark.parametrize("which", ["kept", "refused", "not had"])
    def test_neither_a_file_nor_a_process_is_left(
        self, keys: tuple[str, list[str]], tmp_path: Path, which: str
    ) -> None:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        url, fingerprint = keys[0] + ("-of-nobody" if which == "not had" else ""), keys[1][0]
        wanted = "A" * 40 if which == "refused" else fingerprint
        bash(f"repository ours {url} {wanted} deb", HPC_APT=str(tmp_path / "apt"), TMPDIR=str(scratch))
        assert list(scratch.iterdir()) == []
        mine = str(scratch).encode()
        assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if mine in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class TestMachine:
    @pytest.mark.parametrize(("vendors", "there"), [(["0x8086"], False), (["0x8086", "0x10de"], True), ([], False)])
    def test_a_gpu_is_known_by_its_maker(self, vendors: list[str], tmp_path: Path, *, there: bool) -> None:
        for number, vendor in enumerate(vendors):
            (tmp_path / str(number)).mkdir()
            (tmp_path / str(number) / "vendor").write_text(vendor + "\n")
        assert bash("has_gpu && echo yes || echo no", HPC_PCI=str(tmp_path)) == (0, "yes\n" if there else "no\n")

    @pytest.mark.parametrize(
        ("made_for", "status"), [("5.15.0-1077-gcp", 0), ("5.15.0-1078-gcp", 1), ("5.15.0-1077-gcp-other", 1)]
    )
    def test_a_module_for_another_kernel_is_none(self, made_for: str, status: int) -> None:
        modinfo = f"modinfo() {{ echo '{made_for} SMP mod_unload'; }}"
        found, said = bash("module_for lustre", before=modinfo, KERNEL="5.15.0-1077-gcp")
        assert found == status
        assert not said or "the kernel module lustre is not there for 5.15.0-1077-gcp" in said

    def test_a_missing_parameter_is_named(self) -> None:
        status, said = bash("needs SLURM_URL")
        assert status == 1
        assert "error: the parameter SLURM_URL is empty" in said
