"""Run a command, and end it when the parent process ends. Standard input ends with the parent, however that ends.

    python3 process_guard.py COMMAND...

It is a program of its own, started in a session of its own, since a killed parent can't clean up.
"""

import os
import signal
import subprocess
import sys
import threading
import time

GRACE_SECONDS = 2.0


def main(command: list[str]) -> int:
    """Run the command and return its exit code."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    # Set after the command was started, so that the command does not inherit it.
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    ending = threading.Event()

    def end() -> None:
        """End the whole process group, this program included, once standard input ends."""
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
