"""`./hpc cost`: the price of a stack, part by part."""

from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

from typer import Option

from cli import console, options
from cli.errors import CliError
from cli.operation.cloud_check import kept_prices
from cli.stack import impact_of_edit, project, pulumi_program, stackfile
from cli.stack.stack_config import parse
from cluster.config import ClusterConfig
from cluster.cost import text
from cluster.cost.estimate import estimate
from cluster.cost.text import RIGHT

DEPLOYED = "deployed"


def cost(
    stack: options.Stack,
    *,
    against: Annotated[
        str | None,
        Option("--against", metavar="FILE|deployed", help="Show the difference from that."),
    ] = None,
    json: options.Json = False,
    config_file: options.ConfigFile = None,
) -> None:
    """Show the price of a stack by its file: each part with its rate, date and source, always on and at most.

    List prices are rows of the catalog by region, and what `./hpc check cloud` has read since then. `pricing` in the
    stack file has your own rates, discounts and currency. A part without a known price says so, and is in no sum.
    `--against deployed` compares with the configuration that the cluster runs with.
    """
    file = project.require_file(stack, config_file)
    kept = kept_prices()
    after = estimate(parse(file), kept)
    before = estimate(_other(stack, against), kept) if against else None
    today = datetime.now(timezone.utc).date()
    if json:
        document = {"stack": stack, **after.document(), "old": [row.part.item for row in after.old(today)]}
        console.json(document | ({"before": before.document()} if before else {}))
        return
    if not after.rows:
        console.note(f"Stack {stack} costs nothing: its machines run on this host.")
        return
    console.table(text.table(after), right=RIGHT)
    console.lines(["", *text.totals(after, before, today), *text.sources(after)])


def _other(stack: str, against: str) -> ClusterConfig:
    """Return the configuration to compare with. Raises CliError: there is none."""
    if against != DEPLOYED:
        path = Path(against)
        if not path.is_file():
            raise CliError(f"--against {against}: no such file, and not the word {DEPLOYED}.")
        return parse(stackfile.read(project.ROOT, stack, path))
    config = impact_of_edit.running_config(stack, pulumi_program.installed_pulumi())
    if config is None:
        raise CliError(f"stack {stack} has not been brought up, or its state can't be read: leave out --against.")
    return config
