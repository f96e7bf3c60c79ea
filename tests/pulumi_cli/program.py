"""The Pulumi CLI that tests run: one on PATH with its own plugins, else one that is built from its pinned Go module
once, with plugins of ours."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests import go_programs
from tests.pulumi_cli import language_host
from tests.pulumi_cli.forks import Forks

ROOT = Path(__file__).parents[2]
MODULE = Path(__file__).with_name("module")
VERSION = "3.274.1"
_SERIES = (3, 0), (4, 0)
_PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
_VARIABLES = {"github.com/pulumi/pulumi/sdk/v3/go/common/version.Version": f"v{VERSION}"}
SERVED = ("command", "random", "tls")
"""Packages whose plugins serve the embedded engine's providers."""
PREVIEWED = ("gcp", "kubernetes")
"""Packages that are only previewed: what their plugins keep and compare, they do without a schema."""


def built(report: Callable[[str], None] = lambda _text: None) -> Path:
    """Return the CLI that is built from MODULE: 400 seconds of a processor once, 120 MB in the cache.

    Raises HostError.
    """
    return go_programs.build(
        "pulumi", MODULE, report, package=_PACKAGE, variables=_VARIABLES, about=f"pulumi {VERSION}, about 7 minutes"
    )


def on_path() -> Path | None:
    """Return the CLI on PATH, if it is of the SDK's series."""
    path = shutil.which("pulumi")
    return Path(path) if path and _SERIES[0] <= go_programs.printed(path, ("version",)) < _SERIES[1] else None


def write_plugins(folder: Path, forks: Forks, packages: Iterable[str], *, language: bool) -> None:
    """Write plugins of ours into a folder: of packages, and what runs Python programs."""
    for name in packages:
        forks.write(folder / f"pulumi-resource-{name}", "provider", name)
    if language:
        forks.write(folder / "pulumi-language-python", "language")
        forks.write(folder / language_host.PROGRAM, "program")
        forks.write(folder / "pulumi-resource-pulumi-python", "dynamic")


@dataclass(frozen=True)
class Cli:
    """The CLI with its plugins, and a home of its own."""

    path: Path
    real: bool
    """Whether its plugins of SERVED are real ones."""
    env: dict[str, str]
    """Variables for it, and for `./hpc` to find it."""
    forks: Forks

    @classmethod
    def create(cls, folder: Path, found: Path | None = None) -> "Cli":
        """Prepare it in a folder. `found` is a CLI with its own plugins; the default is the one on PATH, if any."""
        real = found or on_path()
        path, bin_ = real or built(), folder / "bin"
        bin_.mkdir()
        (bin_ / "pulumi").symlink_to(path)
        forks = Forks(folder)
        write_plugins(bin_, forks, PREVIEWED if real else (*SERVED, *PREVIEWED), language=not real)
        here = [str(bin_), *([str(real.resolve().parent)] if real else []), os.environ.get("PATH", os.defpath)]
        env = {
            "PATH": os.pathsep.join(here),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "" if real else "true",
        }
        if not real:
            env["PULUMI_HOME"] = str(folder / "home")
        return cls(bin_ / "pulumi", real is not None, env, forks)

    def close(self) -> None:
        """End the process that plugins are forked off."""
        self.forks.close()

    def run(
        self, *words: str, cwd: Path, env: dict[str, str], check: bool = True, timeout: float = 1800
    ) -> "subprocess.CompletedProcess[str]":
        """Run it without a terminal."""
        command = [str(self.path), *words, "--non-interactive"]
        done = subprocess.run(
            command, cwd=cwd, env={**env, **self.env}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=timeout,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"pulumi {' '.join(words)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done
