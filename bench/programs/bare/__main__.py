"""Registers as many resources as the stack says (the stack itself counts): commands that are never run."""

import pulumi
from pulumi_command import local

for number in range(pulumi.Config().require_int("resources") - 1):
    local.Command(f"command-{number}", create="true")
