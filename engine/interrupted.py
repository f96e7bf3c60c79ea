"""What a run that was killed while creating a resource left of it."""

from __future__ import annotations

from engine import values
from engine.providers.base import Context, Provider
from engine.resource import Resource
from engine.run import Run, Settle, explain
from engine.values import Props, plain


def resumed(run: Run, new: Resource) -> str:
    """The reason to tell with a creation that goes on where another was interrupted."""
    return "its creation was interrupted" if (new.urn, "creating") in run.state.pending else ""


def undo_unless_resumed(run: Run, new: Resource, inputs: Props | None) -> None:
    """See to what an interrupted creation left. Creating it again with the same inputs takes it over, so nothing is to
    be done then; otherwise (other inputs, or None for no creation at all) it must go first."""
    left = run.state.pending.get((new.urn, "creating"))
    if left is None or run.dry or (inputs is not None and values.same(_own(left.inputs), _own(inputs))):
        return
    undo(run, left)


def undo(run: Run, left: Resource) -> None:
    """Remove what an interrupted creation left. One that can't be finished has left nothing: that is the rule for
    providers (see `Provider`)."""

    def work(provider: Provider, ctx: Context) -> Settle:
        try:
            provider.abandon(ctx, plain(left.inputs))
        except Exception as error:  # noqa: BLE001 - providers are other people's code
            ctx.log("warning", f"its interrupted creation could not be finished ({explain(error)}): forgotten")
        return lambda: None

    run.step("delete", "creating", left, work)


def _own(inputs: Props) -> Props:
    # A dynamic provider's code may change between runs without changing what it made.
    return {k: v for k, v in inputs.items() if k != "__provider"}
