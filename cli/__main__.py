"""Start of the CLI: `.venv/bin/python cli ARGS`, as `./hpc` runs it from any directory."""

import gc
import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    # Nearly all objects of a command, above all imported packages, exist until its end. With Python's own threshold of
    # 700 objects, garbage collection takes a fifth of a preview.
    gc.set_threshold(200_000)
    # Python puts this folder first on its path, where `display` and `commands` would be top-level modules. The packages
    # are the folders of the repository.
    root = Path(__file__).resolve().parent.parent
    sys.path[0] = str(root)
    # Kubeconfigs in states run this program by that variable (cluster/platforms/nebius/kubectl.py).
    os.environ["HPC_PROGRAM"] = str(root / "hpc")
    from cli.app import main

    try:
        main()
    finally:
        # A further Ctrl-C while the interpreter ends must not change the exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # The garbage collection at the interpreter's end would free nothing that matters.
        gc.freeze()
