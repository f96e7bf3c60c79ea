"""A base image is there as a whole or not at all, is made by one run at a time, and says why it could not be made.

mmdebstrap is played by small scripts here; test_real_image.py has the real one.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from components.local.host import images
from components.local.host.images import Recipe, recipe
from components.local.host.paths import HostError

ROOT = Path(__file__).parents[2]
DIGEST = recipe("debian-12").digest
MAKE = 'mkdir "$1/root" && echo debian > "$1/root/os"'


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[int]]:
    """Let `script` be the build, with the work folder as $1; returns the list of builds."""
    builds: list[int] = []

    def use(script: str) -> list[int]:
        def command(wanted: Recipe, work: Path, *, memory: bool = True) -> list[str]:
            builds.append(1)
            return ["sh", "-c", script, "sh", str(work), "memory" if memory else "disk"]

        monkeypatch.setattr(images, "_command", command)
        return builds

    return use


def _nothing(_: str) -> None:
    pass


def test_it_is_made_once(build: Callable[[str], list[int]], tmp_path: Path) -> None:
    builds = build(MAKE)
    first = images.ensure_image("debian-12", tmp_path, _nothing)
    assert (first / "os").read_text() == "debian\n"
    assert images.ensure_image("debian-12", tmp_path, _nothing) == first
    assert builds == [1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".build.lock", DIGEST]


def test_its_steps_are_told(build: Callable[[str], list[int]], tmp_path: Path) -> None:
    build(f"echo 'I: extracting archives...'; echo noise; {MAKE}")
    said: list[str] = []
    images.ensure_image("debian-12", tmp_path, said.append)
    assert said[1] == "base image debian-12: extracting archives..."
    assert len(said) == 3


def test_a_failed_build_leaves_nothing_and_says_its_last_lines(
    build: Callable[[str], list[int]], tmp_path: Path
) -> None:
    build('touch "$1/half"; echo "E: unable to fetch" >&2; exit 100')
    with pytest.raises(HostError) as caught:
        images.ensure_image("debian-12", tmp_path, _nothing)
    assert str(caught.value).endswith("(status 100); nothing of it was kept. Its output:\n  E: unable to fetch")
    assert [path.name for path in tmp_path.iterdir()] == [".build.lock"]


def test_a_full_disk_is_named(build: Callable[[str], list[int]], tmp_path: Path) -> None:
    build("echo 'cp: error writing: No space left on device' >&2; exit 1")
    with pytest.raises(HostError, match=rf"the disk of {tmp_path} became full while it was made .*free some space"):
        images.ensure_image("debian-12", tmp_path, _nothing)
    assert [path.name for path in tmp_path.iterdir()] == [".build.lock"]


def test_packages_that_do_not_fit_into_memory_are_unpacked_on_the_disk(
    build: Callable[[str], list[int]], tmp_path: Path
) -> None:
    builds = build(f"[ $2 = disk ] || {{ echo 'cp: No space left on device'; exit 1; }}; {MAKE}")
    said: list[str] = []
    made = images.ensure_image("debian-13", tmp_path, said.append, ["texlive-full"])
    assert (made / "os").exists()
    assert builds == [1, 1]
    assert "base image debian-13: its packages are too large for memory: building it on the disk" in said
    with pytest.raises(HostError, match="became full"):
        images.ensure_image("debian-13", tmp_path, said.append)


def test_a_small_disk_is_refused_before_anything_is_made(
    build: Callable[[str], list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = build(MAKE)
    monkeypatch.setattr(images, "DISK_NEEDED", 10**18)
    with pytest.raises(HostError, match="needs 1000000000000 MB"):
        images.ensure_image("debian-12", tmp_path, _nothing)
    assert builds == []


def test_an_unknown_base_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"image.base: 'debian-11' .* allowed here: debian-12, debian-13"):
        images.ensure_image("debian-11", tmp_path, _nothing)


def test_the_second_run_waits_and_takes_what_the_first_made(build: Callable[[str], list[int]], tmp_path: Path) -> None:
    builds = build(f"sleep 0.3; {MAKE}")
    said: list[str] = []
    runs = [threading.Thread(target=images.ensure_image, args=("debian-12", tmp_path, said.append)) for _ in range(2)]
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


def test_what_a_killed_build_left_is_removed_by_the_next(build: Callable[[str], list[int]], tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, stdout=subprocess.DEVNULL) as run:
        halves = _until(lambda: list(tmp_path.glob(".build-*/half")))
        builder = int((halves[0].parent / "pid").read_text())
        run.send_signal(signal.SIGKILL)
        run.wait()
    _until(lambda: not _alive(builder))
    build(MAKE)
    images.ensure_image("debian-12", tmp_path, _nothing)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".build.lock", DIGEST]


def _alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def _until(ready: Callable[[], object]) -> list[Path]:
    deadline = time.monotonic() + 60
    while not (found := ready()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found if isinstance(found, list) else []


class TestDigest:
    """A machine is made anew when its image's name changes: that must not happen for nothing, nor fail to happen."""

    def test_it_is_the_same_wherever_the_checkout_is(self, tmp_path: Path) -> None:
        for package in ("components", "hostfiles"):
            (tmp_path / package).symlink_to(ROOT / package)
        code = "from components.local.host.images import recipe; print(recipe('debian-12').digest)"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == DIGEST

    def test_packages_of_a_stack_count_but_not_their_order(self) -> None:
        plain, two = recipe("debian-13"), recipe("debian-13", ["podman", "crun"])
        assert two.digest != plain.digest
        assert two == recipe("debian-13", ["crun", "podman", "crun"])
        assert set(two.packages) == {*plain.packages, "podman", "crun"}

    def test_those_that_every_image_has_change_nothing(self) -> None:
        assert recipe("debian-13", ["munge", "python3"]) == recipe("debian-13")

    def test_every_ingredient_counts(self) -> None:
        base = recipe("debian-12")
        others = {
            Recipe("debian-12", "trixie", base.packages).digest,
            Recipe("debian-12", "bookworm", base.packages[1:]).digest,
            Recipe("other", "bookworm", base.packages).digest,
        }
        assert len(others | {DIGEST}) == 4
