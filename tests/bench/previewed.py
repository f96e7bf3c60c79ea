"""Previews a stack on the embedded engine: PROJECT STACK STACK_FILE. Prints the number of its dynamic resources, which
are machines and what belongs to them, and of all others."""

import gc
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    gc.set_threshold(200_000)  # as in cli/__main__.py: a preview is measured as `./hpc` runs it
    from engine import Workspace
    from engine.events import Planned

    project, stack, file = sys.argv[1:]
    planned: list[object] = []
    workspace = Workspace(Path(project), backend=f"file://{os.environ['HPC_HOME']}")
    workspace.stack(stack, Path(file)).preview(planned.append).check()
    types = [event.type for event in planned if isinstance(event, Planned) and event.type != "pulumi:pulumi:Stack"]
    dynamic = sum(type_.startswith("pulumi-python:dynamic") for type_ in types)
    print(dynamic, len(types) - dynamic)
