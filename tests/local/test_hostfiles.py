"""Two runs never hold one lock, a killed holder leaves none, and the file may go with what it guards."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hostfiles import locked, remove_empty, write_atomically

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from hostfiles import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
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


def test_who_waited_for_a_removed_lock_gets_one_that_others_see(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    entered, done = threading.Event(), threading.Event()

    def waiter() -> None:
        with locked(path):
            entered.set()
            done.wait(60)

    with locked(path):
        thread = threading.Thread(target=waiter)
        thread.start()
        assert not entered.wait(0.1)
        path.unlink()
    assert entered.wait(60)
    with locked(path, wait=False) as free:
        assert not free
    done.set()
    thread.join()


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new" / "record", "1", mode=0o600)
    write_atomically(tmp_path / "new" / "record", "2", mode=0o600)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["record"]
    assert (tmp_path / "new" / "record").stat().st_mode & 0o777 == 0o600


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
