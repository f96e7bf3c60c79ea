"""Locks and private folders end with their holder, and files are replaced as a whole."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts import hostfiles
from scripts.hostfiles import PrivateFolder, locked, remove_empty, write_atomically
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from scripts.hostfiles import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "a" / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with locked(path, wait=False) as free:
            assert not free
        holder.kill()
        holder.wait()
        with locked(path, wait=False) as free:
            assert free


def test_a_waiter_for_a_removed_lock_locks_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    entered, done = threading.Event(), threading.Event()

    def waiter() -> None:
        with locked(path):
            entered.set()
            done.wait(PATIENCE)

    with locked(path):
        thread = threading.Thread(target=waiter)
        thread.start()
        assert not entered.wait(0.1)
        path.unlink()
    assert entered.wait(PATIENCE)
    with locked(path, wait=False) as free:
        assert not free
    done.set()
    thread.join()


def test_a_file_is_replaced_atomically(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new" / "record", "1", mode=0o600)
    write_atomically(tmp_path / "new" / "record", "2", mode=0o600)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["record"]
    assert (tmp_path / "new" / "record").stat().st_mode & 0o777 == 0o600


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "record", "1\r\n")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_atomically(tmp_path / "record", "2", sync=True)
    assert [path.name for path in tmp_path.iterdir()] == ["record"]
    assert (tmp_path / "record").read_bytes() == b"1\r\n"


def test_threads_may_write_the_same_file(tmp_path: Path) -> None:
    """Machines that are made side by side note the same root."""
    with ThreadPoolExecutor(16) as pool:
        done = [pool.submit(write_atomically, tmp_path / "record", "x" * 10_000) for _ in range(400)]
    assert [future.exception() for future in done] == [None] * 400
    assert [path.name for path in tmp_path.iterdir()] == ["record"]


def test_only_empty_folders_are_removed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert not remove_empty(tmp_path / "a")
    assert remove_empty(tmp_path / "a" / "b")
    assert remove_empty(tmp_path / "a" / "b")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hostfiles, "PARENT", tmp_path)
    return tmp_path


def names(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


def test_a_private_folder_is_private_and_removed(place: Path) -> None:
    folder = PrivateFolder("kind")
    assert folder.path.name.startswith(f"kind-{os.getpid()}-")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "key").write_text("secret")
    folder.remove()
    assert names(place) == set()


def test_only_folders_of_ended_processes_are_removed(place: Path) -> None:
    code = "import sys; from pathlib import Path; from scripts import hostfiles; hostfiles.PARENT = Path(sys.argv[1])\n"
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


def test_a_process_id_does_not_keep_a_folder(place: Path) -> None:
    """That of a living process, and one that none has: both may be of another container's."""
    for number in (os.getppid(), 2**22 + 1):
        (place / f"kind-{number}-x").mkdir(mode=0o700)
    mine = PrivateFolder("kind")
    assert names(place) == {mine.path.name}, "nobody holds either"


def test_other_files_are_left_alone(place: Path) -> None:
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


def test_private_folders_in_many_threads(place: Path) -> None:
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


def test_a_new_folder_without_a_lock_is_removed_later(place: Path) -> None:
    half = place / ".new-kind-1-x"
    half.mkdir()
    hostfiles.sweep("kind")
    assert half.exists()
    os.utime(half, (0, 0))
    hostfiles.sweep("kind")
    assert not half.exists()
