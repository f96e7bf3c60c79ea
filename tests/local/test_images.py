"""A base image is there as a whole or not at all, is made by one run at a time of the host's own sources, and is pruned
where no machine stands on it. mmdebstrap is played by small scripts; test_real_image.py has the real one."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from system.login import sshd_settings

from components.local.host import images as base_images
from components.local.host.images import (
    BUILD,
    KEPT_SECONDS,
    ROOTFS,
    TRIM,
    BaseImageRecipe,
    host_sources,
    note_root,
    one_liners,
    prune,
    recipe,
    stanzas,
)
from components.local.host.paths import HostError
from tests import programs
from tests.cluster.shell import shellcheck
from tests.waiting import lives, wait_for

ROOT = Path(__file__).parents[2]
DIGEST = recipe("debian-12").digest
MAKE = 'mkdir "$1/root" && echo debian > "$1/root/os"'


Build = Callable[[str], list[int]]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Build:
    """Let `script` be the build, with the work folder as $1; returns the list of builds."""
    builds: list[int] = []

    def use(script: str) -> list[int]:
        def command(wanted: BaseImageRecipe, work: Path, *, memory: bool = True) -> list[str]:
            builds.append(1)
            return ["sh", "-c", script, "sh", str(work), "memory" if memory else "disk"]

        monkeypatch.setattr(base_images, "_command", command)
        return builds

    return use


def _nothing(_: str) -> None:
    pass


def test_an_image_is_built_once(build: Build, tmp_path: Path) -> None:
    builds = build(MAKE)
    first = base_images.ensure_image("debian-12", tmp_path, _nothing)
    assert (first / "os").read_text() == "debian\n"
    assert base_images.ensure_image("debian-12", tmp_path, _nothing) == first
    assert builds == [1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".build.lock", DIGEST]


def test_users_of_the_host_reach_no_program_of_an_image(build: Build, tmp_path: Path) -> None:
    """Neither of the one that is used, nor of an older one that is left."""
    old = tmp_path / ("0" * 16)
    (old / "root").mkdir(parents=True)
    (old / "image.json").write_text("{}")
    build(MAKE)
    root = base_images.ensure_image("debian-12", tmp_path, _nothing)
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (old, root.parent)} == {0o700}
    root.parent.chmod(0o755)
    base_images.ensure_image("debian-12", tmp_path, _nothing)
    assert stat.S_IMODE(root.parent.stat().st_mode) == 0o700


def test_the_steps_of_a_build_are_reported(build: Build, tmp_path: Path) -> None:
    build(f"echo 'I: extracting archives...'; echo noise; {MAKE}")
    said: list[str] = []
    base_images.ensure_image("debian-12", tmp_path, said.append)
    assert said[1] == "base image debian-12: extracting archives..."
    assert len(said) == 3


def test_a_failed_build_leaves_nothing_and_prints_its_last_lines(build: Build, tmp_path: Path) -> None:
    build('touch "$1/half"; echo "E: unable to fetch" >&2; exit 100')
    with pytest.raises(HostError) as caught:
        base_images.ensure_image("debian-12", tmp_path, _nothing)
    assert str(caught.value).endswith("(status 100); nothing of it was kept. Its output:\n  E: unable to fetch")
    assert [path.name for path in tmp_path.iterdir()] == [".build.lock"]


def test_a_full_disk_is_named(build: Build, tmp_path: Path) -> None:
    build("echo 'cp: error writing: No space left on device' >&2; exit 1")
    with pytest.raises(HostError, match=rf"the disk of {tmp_path} became full while it was made .*free some space"):
        base_images.ensure_image("debian-12", tmp_path, _nothing)
    assert [path.name for path in tmp_path.iterdir()] == [".build.lock"]


def test_packages_that_do_not_fit_into_memory_are_unpacked_on_the_disk(build: Build, tmp_path: Path) -> None:
    builds = build(f"[ $2 = disk ] || {{ echo 'cp: No space left on device'; exit 1; }}; {MAKE}")
    said: list[str] = []
    made = base_images.ensure_image("debian-13", tmp_path, said.append, ["texlive-full"])
    assert (made / "os").exists()
    assert builds == [1, 1]
    assert "base image debian-13: its packages are too large for memory: building it on the disk" in said
    with pytest.raises(HostError, match="became full"):
        base_images.ensure_image("debian-13", tmp_path, said.append)


def test_a_small_disk_is_refused_before_the_build(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = build(MAKE)
    monkeypatch.setattr(base_images, "DISK_NEEDED", 10**18)
    with pytest.raises(HostError, match="needs 1000000000000 MB"):
        base_images.ensure_image("debian-12", tmp_path, _nothing)
    assert builds == []


def test_an_unknown_base_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"image.base: 'debian-11' .* allowed here: debian-12, debian-13"):
        base_images.ensure_image("debian-11", tmp_path, _nothing)


def test_a_second_run_waits_and_uses_the_image_of_the_first(build: Build, tmp_path: Path) -> None:
    builds = build(f"sleep 0.3; {MAKE}")
    said: list[str] = []
    runs = [
        threading.Thread(target=base_images.ensure_image, args=("debian-12", tmp_path, said.append)) for _ in range(2)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert builds == [1]
    assert "base image debian-12: waiting for another run that builds it" in said


KILLED = """
import sys
from pathlib import Path
from components.local.host import images
def command(wanted, work):
    return ["setpriv", "--pdeathsig", "KILL", "sh", "-c", "echo $$ > $1/pid; touch $1/half; sleep 60", "sh", str(work)]
images._command = command
images.ensure_image("debian-12", Path(sys.argv[1]), print)
"""


def test_the_folder_of_a_killed_build_is_removed_by_the_next(build: Build, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, stdout=subprocess.DEVNULL) as run:
        wait_for(lambda: any(tmp_path.glob(".build-*/half")))
        halves = list(tmp_path.glob(".build-*/half"))
        builder = int((halves[0].parent / "pid").read_text())
        run.send_signal(signal.SIGKILL)
        run.wait()
    wait_for(lambda: not lives(builder))
    build(MAKE)
    base_images.ensure_image("debian-12", tmp_path, _nothing)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".build.lock", DIGEST]


class TestDigest:
    """A machine is made anew when its image's name changes: that must not happen for nothing, nor fail to happen."""

    def test_the_digest_does_not_depend_on_the_checkouts_path(self, tmp_path: Path) -> None:
        for package in ("components", "scripts"):
            (tmp_path / package).symlink_to(ROOT / package)
        code = "from components.local.host.images import recipe; print(recipe('debian-12').digest)"
        command = [sys.executable, "-c", code]
        done = programs.run(command, cwd=tmp_path, check=True)
        assert done.stdout.strip() == DIGEST

    def test_the_digest_depends_on_packages_but_not_on_their_order(self) -> None:
        plain, two = recipe("debian-13"), recipe("debian-13", ["podman", "crun"])
        assert two.digest != plain.digest
        assert two == recipe("debian-13", ["crun", "podman", "crun"])
        assert set(two.packages) == {*plain.packages, "podman", "crun"}

    def test_packages_of_every_image_do_not_change_the_digest(self) -> None:
        assert recipe("debian-13", ["munge", "python3"]) == recipe("debian-13")

    def test_the_digest_depends_on_every_file_and_field(self) -> None:
        base = recipe("debian-12")
        others = {
            BaseImageRecipe("debian-12", "trixie", base.packages).digest,
            BaseImageRecipe("debian-12", "bookworm", base.packages[1:]).digest,
            BaseImageRecipe("other", "bookworm", base.packages).digest,
        }
        assert len(others | {DIGEST}) == 4


def image(images: Path, digest: str, *, idle: float = KEPT_SECONDS + 60, **meta: object) -> None:
    """Put an image into the cache, last used `idle` seconds ago."""
    (images / digest / "root").mkdir(parents=True)
    file = images / digest / "image.json"
    file.write_text(json.dumps({"base": "debian-12", "made": 1, **meta}))
    then = file.stat().st_mtime - idle
    os.utime(file, (then, then))


def machine(root: Path, text: str) -> Path:
    """A machine that does not run, by its record."""
    record = root / "stacks/lab/machines/m0/machine.json"
    record.parent.mkdir(parents=True)
    record.write_text(text)
    return record


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with an old image."""
    monkeypatch.setenv("HPC_LOCAL_ROOT", str(tmp_path / "root"))
    image(tmp_path / "images", "old")
    return tmp_path / "images"


def test_an_image_that_no_machine_uses_is_removed(images: Path) -> None:
    said: list[str] = []
    assert prune(images, said.append) == ["old"]
    assert said == ["removing base image old (debian-12), which no machine uses"]
    assert list(images.iterdir()) == []


def test_images_that_a_new_stack_would_use_stay(images: Path) -> None:
    image(images, DIGEST)
    podman = recipe("debian-13", ["podman"]).digest
    image(images, podman, base="debian-13", own=["podman"])
    assert prune(images, print) == ["old"]


def test_an_image_that_was_used_within_a_day_stays(images: Path) -> None:
    """Another version of this program may be about to create machines of it."""
    image(images, "recent", idle=60)
    assert prune(images, print) == ["old"]


@pytest.mark.parametrize("place", ["images/..", "root", "elsewhere"])
def test_the_image_of_a_stopped_machine_stays_whatever_root_it_is_under(images: Path, place: str) -> None:
    root = (images.parent / place).resolve()
    machine(root, json.dumps({"image": "old"}))
    note_root(images, root)
    assert prune(images, print) == []


def test_nothing_is_removed_where_a_machines_record_cannot_be_read(images: Path) -> None:
    machine(images.parent / "root", "{")
    with pytest.raises(ValueError, match="Expecting"):
        prune(images, print)
    assert (images / "old").exists()


def test_a_root_that_does_not_exist_uses_no_image(images: Path) -> None:
    note_root(images, images.parent / "gone")
    assert prune(images, print) == ["old"]
    assert list((images / ".roots").iterdir()) == []


def test_building_an_image_prunes_the_others(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def built(_wanted: object, command: list[str], *_: object) -> None:
        (Path(command[0]) / "root").mkdir()

    monkeypatch.setattr(base_images, "DISK_NEEDED", 0)
    monkeypatch.setattr(base_images, "_command", lambda _wanted, work, **_more: [str(work)])
    monkeypatch.setattr(base_images, "_run", built)
    base_images.ensure_image("debian-12", images, print)
    assert {path.name for path in images.iterdir() if not path.name.startswith(".")} == {DIGEST}


DEB822 = """\
# the installer wrote this
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib non-free-firmware
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def test_deb822_sources_keep_the_release_its_updates_and_key() -> None:
    first, second = stanzas(DEB822, "bookworm")
    assert first.text == (
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    assert second.suites == {"bookworm-security"}


def test_one_line_sources_keep_options() -> None:
    text = (
        "# deb http://mirror.example/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/etc/keys/own.gpg] http://mirror.example/debian bookworm main contrib # ours\n"
        "deb-src http://mirror.example/debian bookworm main\n"
    )
    (only,) = one_liners(text, "bookworm")
    assert only.text == "deb [arch=amd64 signed-by=/etc/keys/own.gpg] http://mirror.example/debian bookworm main\n"


def test_a_key_in_the_stanza_is_kept() -> None:
    text = (
        "Types: deb\nURIs: https://mirror.example/debian/\nSuites: bookworm\nComponents: main\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n -----END PGP PUBLIC KEY BLOCK-----\n"
    )
    (only,) = stanzas(text, "bookworm")
    assert only.text.endswith(
        "Signed-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n -----END PGP PUBLIC KEY BLOCK-----\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "deb [signed-by=/etc/keys/vendor.gpg] https://apt.vendor.example bookworm main\n",
        "deb https://apt.vendor.example/linux bookworm stable\n",
        "deb http://mirror.example/debian trixie main\n",
        "deb cdrom:[Debian 12]/debian bookworm main\n",
    ],
)
def test_other_repositories_and_releases_are_skipped(text: str) -> None:
    assert list(one_liners(text, "bookworm")) == []


def test_a_disabled_stanza_is_skipped() -> None:
    assert list(stanzas("Enabled: no\n" + DEB822.split("\n\n")[1], "bookworm")) == []


class TestWholeHost:
    """If the host has only a part of the release (its updates, say), an image can't be made from that."""

    def _write(self, etc: Path, name: str, text: str) -> None:
        (etc / "sources.list.d").mkdir(exist_ok=True)
        (etc / name).write_text(text)

    def _system(self, etc: Path) -> Path:
        """Another one than that of the sources."""
        self._write(etc, "os-release", "ID=ubuntu\nVERSION_CODENAME=noble\n")
        return etc / "os-release"

    def test_both_formats_are_read(self, tmp_path: Path) -> None:
        self._write(tmp_path, "sources.list", "")
        self._write(tmp_path, "sources.list.d/debian.sources", DEB822)
        self._write(tmp_path, "sources.list.d/extra.list", "deb http://mirror.example/debian bookworm-updates main\n")
        self._write(tmp_path, "sources.list.d/vendor.list.disabled", "deb http://mirror.example/debian bookworm main\n")
        assert [source.suffix for source in host_sources("bookworm", tmp_path)] == [".sources", ".sources", ".list"]

    def test_updates_without_the_release_are_no_source(self, tmp_path: Path) -> None:
        self._write(tmp_path, "sources.list", "deb http://mirror.example/debian bookworm-updates main\n")
        assert host_sources("bookworm", tmp_path, self._system(tmp_path)) == ()

    def test_another_distribution_is_no_source(self, tmp_path: Path) -> None:
        self._write(tmp_path, "sources.list", "deb http://mirror.example/ubuntu noble main universe\n")
        assert host_sources("bookworm", tmp_path, self._system(tmp_path)) == ()

    def test_an_image_of_another_release_comes_from_the_same_mirror(self, tmp_path: Path) -> None:
        self._write(tmp_path, "os-release", "ID=debian\nVERSION_CODENAME=bookworm\n")
        self._write(tmp_path, "sources.list", "deb http://mirror.example/debian bookworm main\n")
        self._write(tmp_path, "sources.list.d/debian.sources", DEB822)
        one_line, *stanzas_ = host_sources("trixie", tmp_path, tmp_path / "os-release")
        assert one_line.text == "deb http://mirror.example/debian trixie main\n"
        assert [source.suites for source in stanzas_] == [{"trixie", "trixie-updates"}, {"trixie-security"}]
        assert "Suites: trixie trixie-updates\n" in stanzas_[0].text
        self._write(tmp_path, "os-release", 'ID=ubuntu\nVERSION_CODENAME="bookworm"\n')
        assert host_sources("trixie", tmp_path, tmp_path / "os-release") == ()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["10.0.0.1@tcp:/home"], 1, "usage: mount.lustre"),
        (["10.0.0.1:/home", "/home"], 1, "not of the form ADDRESS@tcp:/NAME"),
        (["10.0.0.1@tcp:/nope", "/"], 2, "this cluster has no shared folder nope"),
    ],
)
def test_mount_lustre_refuses_with_a_reason(arguments: list[str], status: int, said: str) -> None:
    done = programs.run(["sh", str(ROOTFS / "usr/sbin/mount.lustre"), *arguments])
    assert done.returncode == status
    assert said in done.stderr


def test_sshds_settings_in_the_image_are_those_of_the_set_up() -> None:
    assert (ROOTFS / "etc/ssh/sshd_config.d/hpc.conf").read_text() == sshd_settings(None)


SCRIPTS = [
    BUILD, TRIM, BUILD.parent / "start-machine.sh", BUILD.parent / "keep-machine.sh",
    ROOTFS / "usr/sbin/mount.lustre", ROOTFS / "usr/lib/hpc/machine-setup",
]  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_pass_shellcheck_and_are_executable(script: Path) -> None:
    assert shellcheck(script) == ""
    assert script.stat().st_mode & 0o111
