"""Start of the CLI: `.venv/bin/python cli ARGS`, as `./hpc` runs it from any directory."""

import gc
import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    # Nearly all that a command makes, imported packages before all, is held until its end: looking for garbage among it
    # at Python's own pace (700 objects) is a fifth of a preview.
    gc.set_threshold(200_000)
    # Python puts this folder first, where `display` and `commands` would pass for top-level modules; the packages are
    # the folders of the repository.
    root = Path(__file__).resolve().parent.parent
    sys.path[0] = str(root)
    # Kubeconfigs in states name this program by it (cluster/platforms/nebius/kubectl.py).
    os.environ["HPC_PROGRAM"] = str(root / "hpc")
    from cli.app import main

    try:
        main()
    finally:
        # The exit code is settled: an impatient Ctrl-C while the interpreter winds up must not change it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Nor is there anything to be had from a last look, which the interpreter takes as it ends.
        gc.freeze()
