"""Previews a stack on the embedded engine: PROJECT STACK STACK_FILE.

Prints how many dynamic resources it has, which are machines and what belongs to them, and how many others.
"""

import gc
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    gc.set_threshold(200_000)  # as in cli/__main__.py: a preview is measured as `./hpc` runs it
    from engine import Workspace
    from engine.events import Event, Planned

    project, stack, file = sys.argv[1:]
    types: list[str] = []

    def count(event: Event) -> None:
        """Note the type of every resource but the stack itself."""
        if isinstance(event, Planned) and event.type != "pulumi:pulumi:Stack":
            types.append(event.type)

    backend = f"file://{os.environ['HPC_HOME']}"
    Workspace(Path(project), backend=backend).stack(stack, Path(file)).preview(count).check()
    dynamic = sum(type_.startswith("pulumi-python:dynamic") for type_ in types)
    print(dynamic, len(types) - dynamic)
