"""Builds the base image that `./hpc up STACK` needs, while cli/bootstrap.py installs what `up` itself needs.

It runs on the system's Python, before anything is installed. What it does not build, `up` builds; one that is being
built, `up` waits for.
"""

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from components.local.host.images import ensure_image
from components.local.host.paths import HostError, images_root
from components.local.host.process import require_host

ROOT = Path(__file__).parents[3]


def base_image(arguments: Sequence[str], root: Path = ROOT) -> str:
    """Return the base image of the stack in `up STACK`, or nothing: another command, or no stack on this host.

    There is no reader of stack files yet. An image with more than a name is left to `up`.
    """
    file = root / f"Pulumi.{arguments[1]}.yaml" if arguments[1:] and arguments[0] == "up" else None
    text = file.read_text(encoding="utf-8") if file and file.is_file() else ""
    image = re.search(r"^ +image: \{base: ([a-z0-9-]+)\}$", text, re.MULTILINE)
    return image[1] if image and re.search(r"^ +platform: local$", text, re.MULTILINE) else ""


if __name__ == "__main__":
    with suppress(HostError, KeyboardInterrupt):
        if base := base_image(sys.argv[1:]):
            require_host()
            ensure_image(base, images_root(), lambda _text: None)
