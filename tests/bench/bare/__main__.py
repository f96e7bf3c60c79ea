"""A minimal Pulumi program to compare with: machines with the files of the set-up, and commands, without configuration.

The stack file has the numbers of both. It is previewed only.
"""

from pathlib import Path

import pulumi
from pulumi.dynamic import CreateResult, Resource, ResourceProvider
from pulumi_command import remote

SETUP = Path(__file__).parents[3] / "scripts/node"


class MachineProvider(ResourceProvider):
    def create(self, props: dict[str, object]) -> CreateResult:
        return CreateResult("machine", props)


class Machine(Resource):
    boot_id: pulumi.Output[str]

    def __init__(self, name: str, files: dict[str, str]) -> None:
        super().__init__(MachineProvider(), name, {"files": files, "boot_id": None})


config = pulumi.Config()
files = {path.name: path.read_text() for path in sorted(SETUP.rglob("*")) if path.is_file() and path.suffix != ".pyc"}
machines = [Machine(f"machine-{number}", files) for number in range(config.require_int("machines"))]
connection = remote.ConnectionArgs(host="10.0.0.1", user="root", private_key=pulumi.Output.secret("none"))
for number in range(config.require_int("commands")):
    remote.Command(
        f"command-{number}", connection=connection, create="true", triggers=[machines[number % len(machines)].boot_id]
    )
