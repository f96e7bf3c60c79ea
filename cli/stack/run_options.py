"""What a command line asks of a run, besides which one it is and of which stack."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.errors import CliError
from cli.options import EngineName
from engine import Scope


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of preview, up, destroy and refresh. They mean the same on both engines."""

    engine: EngineName | None = None
    json: bool = False
    parallel: int | None = None
    config_file: Path | None = None
    yes: bool = False
    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    dependents: bool = False
    """What depends on targets belongs to them; on what is excluded likewise."""
    replace: tuple[str, ...] = ()
    refresh: bool = False
    """Look what is really there before anything else."""
    diff: bool = False
    expect_no_changes: bool = False
    message: str = ""
    unprotect: bool = False
    confirm: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of a JSON document."""

    def __post_init__(self) -> None:
        if self.targets and self.excludes:
            raise CliError("--target says what a run is about and --exclude what it is not: leave out one of them.")
        if self.dependents and not (self.targets or self.excludes):
            raise CliError(
                "dependents of what? --target-dependents goes with --target, --exclude-dependents with --exclude."
            )
        if self.confirm and not self.unprotect:
            raise CliError("--confirm NAME goes with --unprotect, which destroys what is protected.")

    @property
    def scope(self) -> Scope:
        """The resources that a run is about, for the embedded engine."""
        return Scope(targets=self.targets, excludes=self.excludes, replace=self.replace, dependents=self.dependents)

    def flags(self) -> list[str]:
        """The same for the Pulumi CLI, whose names these are. A shell never sees them."""
        found = [f"--target={urn}" for urn in self.targets] + [f"--exclude={urn}" for urn in self.excludes]
        found += [f"--replace={urn}" for urn in self.replace]
        if self.dependents:
            found.append("--target-dependents" if self.targets else "--exclude-dependents")
        found += ["--refresh"] if self.refresh else []
        found += ["--diff"] if self.diff else []
        found += ["--expect-no-changes"] if self.expect_no_changes else []
        found += [f"--message={self.message}"] if self.message else []
        found += ["--json"] if self.json else []
        found += ["--parallel", str(self.parallel)] if self.parallel else []
        return found
