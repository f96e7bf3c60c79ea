"""Resources of each provider that the embedded engine has and that needs no machine, as wanted.json says."""

import json
from pathlib import Path

import pulumi
import pulumi_random as random
import pulumi_tls as tls
from living import Living  # pyrefly: ignore[missing-import]
from pulumi_command import local

wanted = json.loads(Path("wanted.json").read_text())
pet = random.RandomPet("pet", length=wanted["words"])
password = random.RandomPassword("password", length=20)
key = tls.PrivateKey("key", algorithm="ED25519")
note = local.Command(
    "note",
    create='cat >"$FILE"',
    delete='rm -f "$FILE"',
    stdin=password.result,
    environment={"FILE": wanted["file"]},
    triggers=[pet.id, password.result],
    opts=pulumi.ResourceOptions(delete_before_replace=True),
)
last = None
for name in wanted["names"]:
    options = pulumi.ResourceOptions(
        depends_on=[last] if last else [note], delete_before_replace=True, protect=name in wanted.get("protected", [])
    )
    last = Living(name, options, value=pet.id, generation=wanted.get("generation", 0))
pulumi.export("pet", pet.id)
pulumi.export("password", password.result)
