"""Run the program of a folder beside the Pulumi CLI, as sdk/python/cmd/pulumi-language-python-exec does (v3.274.1)."""

import asyncio
import json
import logging
import os
import runpy
import sys
import traceback
from typing import Any

import pulumi
from pulumi.runtime import Settings, configure, get_config_env, get_config_secret_keys_env, run_in_stack, set_all_config

SHOWN = 32
"""Exit code of a program that has told the user why it fails; the same number there."""


def run(settings: dict[str, Any], folder: str) -> int:
    """Run it, and return the exit code."""
    set_all_config(get_config_env(), get_config_secret_keys_env())
    configure(Settings(**settings))
    os.chdir(folder)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    def main() -> None:
        runpy.run_path(folder, run_name="__main__")

    try:
        loop.run_until_complete(run_in_stack(main))
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
        return 1
    except Exception:  # noqa: BLE001 - a program may raise anything
        pulumi.log.error(f"Program failed with an unhandled exception:\n{traceback.format_exc()}")
        return SHOWN
    return 0


def main(settings: str, place: str) -> int:
    """Run the program of a folder, which is where it imports from. Returns its exit code."""
    sys.path[0], sys.argv = place, [place]
    return run(json.loads(settings), place)
