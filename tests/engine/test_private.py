"""A private folder is its holder's while that lives, and swept when it does not; what others put in /tmp is left."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import hostfiles
from hostfiles import PrivateFolder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hostfiles, "PARENT", tmp_path)
    return tmp_path


def names(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


def test_it_is_the_users_alone_and_goes(place: Path) -> None:
    folder = PrivateFolder("kind")
    assert folder.path.name.startswith(f"kind-{os.getpid()}-")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "key").write_text("secret")
    folder.remove()
    assert names(place) == set()


def test_a_living_holders_stays_and_a_dead_ones_goes(place: Path) -> None:
    code = "import sys; from pathlib import Path; import hostfiles; hostfiles.PARENT = Path(sys.argv[1])\n"
    code += "folder = hostfiles.PrivateFolder('kind'); print(folder.path, flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(place)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    theirs = Path(holder.stdout.readline().strip())
    mine = PrivateFolder("kind")
    assert names(place) == {theirs.name, mine.path.name}
    holder.kill()
    holder.communicate()
    other = PrivateFolder("kind")
    assert names(place) == {mine.path.name, other.path.name}


def test_a_process_number_tells_nothing(place: Path) -> None:
    """That of a living process, and one that none has: both may be of another container's."""
    for number in (os.getppid(), 2**22 + 1):
        (place / f"kind-{number}-x").mkdir(mode=0o700)
    mine = PrivateFolder("kind")
    assert names(place) == {mine.path.name}, "nobody holds either"


def test_what_others_put_there_is_left_alone_and_in_nobodys_way(place: Path) -> None:
    target = place / "precious"
    target.mkdir()
    (target / "file").write_text("x")
    (place / "kind-1-link").symlink_to(target)
    (place / "kind-2-dangling").symlink_to(place / "nowhere")
    (place / "kind-").write_text("a file")
    (place / "kind-3-file").write_text("a file")
    os.mkfifo(place / "kind-4-fifo")
    if os.geteuid() == 0:
        (place / "kind-5-theirs").mkdir()
        os.chown(place / "kind-5-theirs", 65534, 65534)
    before = names(place)
    PrivateFolder("kind").remove()
    assert names(place) == before
    assert (target / "file").exists()


def test_many_at_once_take_nothing_from_each_other(place: Path) -> None:
    found: list[Path] = []

    def make() -> None:
        for _ in range(40):
            folder = PrivateFolder("kind")
            (folder.path / "key").write_text("mine")
            found.append(folder.path)
            assert (folder.path / "key").read_text() == "mine"
            folder.remove()

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 240
    assert names(place) == set()


def test_one_that_was_never_held_goes_in_time(place: Path) -> None:
    half = place / ".new-kind-1-x"
    half.mkdir()
    hostfiles.sweep("kind")
    assert half.exists()
    os.utime(half, (0, 0))
    hostfiles.sweep("kind")
    assert not half.exists()
