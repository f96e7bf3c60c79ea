"""Previews a stack on the embedded engine and prints how many resources it has: PROJECT STACK STACK_FILE."""

import os
import sys
from pathlib import Path

from engine import Workspace

if __name__ == "__main__":
    project, stack, file = sys.argv[1:]
    backend = f"file://{os.environ['HPC_HOME']}"
    result = Workspace(Path(project), backend=backend).stack(stack, Path(file)).preview(lambda _event: None).check()
    print(sum(result.counts.values()))
