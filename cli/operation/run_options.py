"""The options of preview, up, destroy and refresh, and the RunOptions that a run gets of them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter
from pathlib import Path
from typing import Any, Literal

from cli import options
from cli.errors import CliError
from cli.options import EngineName
from engine import Scope

Kind = Literal["preview", "up", "destroy", "refresh"]


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
    """True to include the resources that depend on targets, or on excluded resources."""
    replace: tuple[str, ...] = ()
    refresh: bool = False
    """True to refresh the state before the first step."""
    diff: bool = False
    expect_no_changes: bool = False
    no_check: bool = False
    """True if the cloud is not asked before the first step."""
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

    @classmethod
    def from_command_line(
        cls,
        *,
        target: list[str] | None = None,
        exclude: list[str] | None = None,
        target_dependents: bool = False,
        exclude_dependents: bool = False,
        replace: list[str] | None = None,
        **same: Any,  # noqa: ANN401
    ) -> "RunOptions":
        """Return the RunOptions for values of the options in cli/options.py."""
        return cls(
            targets=tuple(target or ()),
            excludes=tuple(exclude or ()),
            dependents=target_dependents or exclude_dependents,
            replace=tuple(replace or ()),
            **same,
        )

    @property
    def scope(self) -> Scope:
        """The resources that a run is about, for the embedded engine."""
        return Scope(targets=self.targets, excludes=self.excludes, replace=self.replace, dependents=self.dependents)

    def flags(self) -> list[str]:
        """Return the options as flags of the Pulumi CLI, which has the same names. No shell reads them."""
        flags = [f"--target={urn}" for urn in self.targets] + [f"--exclude={urn}" for urn in self.excludes]
        flags += [f"--replace={urn}" for urn in self.replace]
        if self.dependents:
            flags.append("--target-dependents" if self.targets else "--exclude-dependents")
        flags += ["--refresh"] if self.refresh else []
        flags += ["--diff"] if self.diff else []
        flags += ["--expect-no-changes"] if self.expect_no_changes else []
        flags += [f"--message={self.message}"] if self.message else []
        flags += ["--json"] if self.json else []
        flags += ["--parallel", str(self.parallel)] if self.parallel else []
        return flags


_DECLARED: dict[str, tuple[Any, Any]] = {
    "engine": (options.Engine, None),
    "json": (options.Json, False),
    "parallel": (options.Parallel, None),
    "config_file": (options.ConfigFile, None),
    "yes": (options.Yes, False),
    "unprotect": (options.Unprotect, False),
    "confirm": (options.Confirm, ""),
    "target": (options.Target, None),
    "target_dependents": (options.TargetDependents, False),
    "exclude": (options.Exclude, None),
    "exclude_dependents": (options.ExcludeDependents, False),
    "replace": (options.Replace, None),
    "refresh": (options.Refresh, False),
    "diff": (options.Diff, False),
    "expect_no_changes": (options.ExpectNoChanges, False),
    "no_check": (options.NoCheck, False),
    "message": (options.Message, ""),
}
"""Type and default of each option, in the order of the help."""


def run_options(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds all options of a run but these to a command. The command gets their values as one
    RunOptions, in its parameter `chosen`."""
    shared = {name: declared for name, declared in _DECLARED.items() if name not in without}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def command(**values: Any) -> None:  # noqa: ANN401 - by the signature below
            chosen = RunOptions.from_command_line(**{name: values.pop(name) for name in shared})
            function(**values, chosen=chosen)

        own = [parameter for parameter in inspect.signature(function).parameters.values() if parameter.name != "chosen"]
        more = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=type_)
            for name, (type_, default) in shared.items()
        ]
        signature = inspect.Signature([*own, *more])
        # typer reads both.
        setattr(command, "__signature__", signature)  # noqa: B010
        command.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        return command

    return decorate
