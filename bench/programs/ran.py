"""Runs a stack on the embedded engine: PROJECT STACK STACK_FILE KIND.

Prints the seconds of processor time that it took, the most memory of the process in MB, and its most threads.
"""

import gc
import os
import resource
import sys
import threading
import time
from pathlib import Path

from engine import Workspace

if __name__ == "__main__":
    project, stack, file, kind = sys.argv[1:]
    most = 0
    gc.set_threshold(200_000)  # as `./hpc` does

    def watch() -> None:
        """Note how many threads there are."""
        global most  # noqa: PLW0603
        while True:
            most = max(most, threading.active_count())
            time.sleep(0.02)

    threading.Thread(target=watch, daemon=True).start()
    workspace = Workspace(Path(project), backend=f"file://{os.environ['HPC_HOME']}")
    getattr(workspace.stack(stack, Path(file)), kind)(lambda _event: None).check()
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"{used.ru_utime + used.ru_stime:.2f}", used.ru_maxrss // 1024, most)
