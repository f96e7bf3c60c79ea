"""install-pulumi, version."""

import platform
import re

from cli import console
from cli.stack import engines, project, state_dir


def install_pulumi() -> None:
    """Install the Pulumi CLI that fits this project, for this user.

    Uses the SDK's own installer; the version is the one of the SDK in requirements.txt.
    """
    engines.install_pulumi()


def version() -> None:
    """Say which version this is, and of what it is made."""
    found = re.search(r'^version = "(.+)"', (project.ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    pulumi = engines.installed_pulumi()
    console.line(f"hpc {found[1] if found else 'unknown'}")
    console.line(f"Python {platform.python_version()}, Pulumi SDK {engines.pulumi_version()}")
    console.line(f"Pulumi CLI: {pulumi or 'none, the embedded engine is used'}")
    console.line("state: {} ({})".format(*state_dir.located()))
