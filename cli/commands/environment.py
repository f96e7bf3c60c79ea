"""install-pulumi, version."""

import platform
import re

from cli import console
from cli.stack import project, pulumi_install, state_dir


def install_pulumi() -> None:
    """Install the Pulumi CLI that fits this project, for this user.

    Uses the SDK's own installer; the version is the one of the SDK in requirements.txt.
    """
    pulumi_install.install_pulumi()


def version() -> None:
    """Say which version this is, and of what it is made."""
    found = re.search(r'^version = "(.+)"', (project.ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    pulumi = pulumi_install.installed_pulumi()
    console.line(f"hpc {found[1] if found else 'unknown'}")
    console.line(f"Python {platform.python_version()}, Pulumi SDK {pulumi_install.pulumi_version()}")
    console.line(f"Pulumi CLI: {pulumi or 'none, the embedded engine is used'}")
    console.line("state: {} ({})".format(*state_dir.located()))
