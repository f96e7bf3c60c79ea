"""shellcheck, for tests of scripts that are rendered."""

import shutil
import subprocess
import sys
from pathlib import Path


def shellcheck(*files: Path | str, options: tuple[str, ...] = (), cwd: Path | None = None) -> str:
    """Return the output of shellcheck about files; empty without findings."""
    checker = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or "shellcheck"
    command = [checker, *options, *map(str, files)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
