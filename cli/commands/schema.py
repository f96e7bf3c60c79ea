"""schema."""

import json
from typing import Annotated

from typer import Option

from cli import console
from cli.errors import CliError
from cli.reference import commands_page
from cli.stack import project
from cluster.reference import json_schema, reference

PATH = "docs/schema/cluster.schema.json"
PAGES = "docs/reference/stack-file"
COMMANDS = "docs/reference/commands.md"


def schema(
    *,
    check: Annotated[bool, Option("--check", help=f"Fail if {PATH} and the generated pages are not current.")] = False,
    write: Annotated[bool, Option("--write", help=f"Bring {PATH} and the generated pages up to date.")] = False,
) -> None:
    """Print the JSON Schema of a stack file, which editors complete and check from."""
    text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    if not (check or write):
        print(text, end="")
        return
    pages = {COMMANDS: commands_page()} | {f"{PAGES}/{name}": page for name, page in reference().items()}
    for name, content in {PATH: text, **pages}.items():
        file = project.ROOT / name
        if file.exists() and file.read_text(encoding="utf-8") == content:
            console.note(f"{name} is current")
        elif write:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
            console.note(f"Wrote {name}")
        else:
            raise CliError(
                f"{name} is not what the models and commands say now. Bring it up to date with: ./hpc schema --write"
            )
