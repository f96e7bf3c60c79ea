"""Start of the CLI: `.venv/bin/python cli ARGS`, as `./hpc` runs it from any directory."""

import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this folder first, where `display` and `commands` would pass for top-level modules; the packages are
    # the folders of the repository.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from cli.app import main

    try:
        main()
    finally:
        # The exit code is settled: an impatient Ctrl-C while the interpreter winds up must not change it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
