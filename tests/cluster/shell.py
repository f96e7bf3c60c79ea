"""shellcheck, for tests of scripts that are rendered."""

import shutil
import sys
from pathlib import Path

from tests import programs


def shellcheck(*files: Path | str, options: tuple[str, ...] = (), cwd: Path | None = None) -> str:
    """Return the output of shellcheck about files; empty without findings."""
    checker = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or "shellcheck"
    command = [checker, *options, *map(str, files)]
    done = programs.run(command, cwd=cwd)
    return done.stdout + done.stderr
