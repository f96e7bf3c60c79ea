"""Runs a command for as long as its parent lives: standard input ends when the parent does, however it ends.

    python3 process_guard.py COMMAND...

Started in a session of its own, and a program of its own, since nothing in a killed one could clean up after it.
"""

import os
import signal
import subprocess
import sys
import threading
import time

GRACE_SECONDS = 2.0


def main(command: list[str]) -> int:
    """Run it; its exit code."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    # Not before it has started, or it would have the same.
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    ending = threading.Event()

    def end() -> None:
        """End the command and all that it started, this program among it, once nobody holds our standard input."""
        sys.stdin.buffer.read()
        ending.set()
        os.killpg(0, signal.SIGTERM)
        limit = time.monotonic() + GRACE_SECONDS
        while process.poll() is None and time.monotonic() < limit:
            time.sleep(0.02)
        os.killpg(0, signal.SIGKILL)

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    code = process.wait()
    if ending.is_set():
        thread.join()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
