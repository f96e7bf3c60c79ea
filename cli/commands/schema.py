"""schema."""

import json
from typing import Annotated

from typer import Option

from cli import console, project
from cli.errors import CliError

PATH = "docs/schema/cluster.schema.json"


def schema(
    *,
    check: Annotated[bool, Option("--check", help=f"Fail if {PATH} is not current.")] = False,
    write: Annotated[bool, Option("--write", help=f"Bring {PATH} up to date.")] = False,
) -> None:
    """Print the JSON Schema of a stack file, which editors complete and check from."""
    from cluster.config import json_schema

    text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    file = project.ROOT / PATH
    current = file.exists() and file.read_text(encoding="utf-8") == text
    if write and not current:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        console.note(f"Wrote {PATH}")
    elif write or (check and current):
        console.note(f"{PATH} is current")
    elif check:
        raise CliError(f"{PATH} is not what cluster/config says now. Bring it up to date with: ./hpc schema --write")
    else:
        print(text, end="")
