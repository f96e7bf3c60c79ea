"""What a run that was killed left of its steps: pending operations in the state, and partly created resources.

The CLI keeps pending creations forever, also after a later run created the resource. So most of them are stale, and
the resources of the state decide.
"""

from engine import values
from engine.core.run import Run, StateChange, explain
from engine.providers.base import Context, Provider, Unfinished
from engine.state.resource import Resource
from engine.values import Props, plain


def drop_stale(run: Run) -> None:
    """Remove pending operations that do not fit the resources of the state. Call this before anything reads them."""
    state = run.state
    held = [r for r in state.olds if r.custom and r.id and not r.delete and not r.pending_replacement]
    for (urn, kind), note in list(state.pending.items()) if held else ():
        mine = next((r for r in held if r.urn == urn or urn in r.aliases), None)
        if kind == "creating":
            stale = not _replaces(run, note, mine) if mine else any(_alike(note, r) for r in held)
        else:
            # One that is gone, or another that took its place since.
            stale = mine is not None and (note.id, note.created) != (mine.id, mine.created)
        if stale:
            del state.pending[urn, kind]


def _alike(note: Resource, held: Resource) -> bool:
    """Whether both may be one thing, that has moved to another parent or to another name."""
    if note.type != held.type:
        return False
    return note.name == held.name or values.same(_own(note.inputs), _own(held.inputs))


def _replaces(run: Run, note: Resource, held: Resource) -> bool:
    """Whether the note is of a creation that was to replace what the state still holds, and made another thing beside
    it. Both engines give the new one the time when the old one was made, until it is there itself."""
    if not note.created or note.created != held.created or values.same(_own(note.inputs), _own(held.inputs)):
        return False
    provider, ctx = run.providers.of(held.type), run.context(held)
    try:
        diff = provider.diff(ctx, held.id, plain(held.inputs), plain(held.outputs), plain(note.inputs))
    except Exception:  # noqa: BLE001 - providers are other people's code
        return False
    return bool(diff.replaces) and not diff.delete_first


def resumed(run: Run, new: Resource) -> str:
    """The reason shown with a creation that resumes an interrupted one."""
    return "its creation was interrupted" if (new.urn, "creating") in run.state.pending else ""


def undo_unless_resumed(run: Run, new: Resource, inputs: Props | None) -> None:
    """Remove what an interrupted creation left, unless a creation with the same inputs takes it over. `inputs` None
    stands for no creation."""
    left = run.state.pending.get((new.urn, "creating"))
    if left is None:
        return
    if run.dry:
        # In a preview, this keeps it from being shown again at the end.
        del run.state.pending[new.urn, "creating"]
    elif inputs is None or not values.same(_own(left.inputs), _own(inputs)):
        undo(run, left)


def undo(run: Run, left: Resource) -> None:
    """Remove what an interrupted creation left. One that can't be finished has left nothing: that is the rule for
    providers (see `Provider`)."""

    held = frozenset(r.id for r in run.state.resources() if r.type == left.type and not r.delete)

    def work(provider: Provider, ctx: Context) -> StateChange:
        try:
            provider.abandon(ctx, plain(left.inputs), held)
        except Unfinished:
            raise
        except Exception as error:  # noqa: BLE001 - providers are other people's code
            ctx.log("warning", f"its interrupted creation could not be finished ({explain(error)}): forgotten")
        return lambda: None

    run.step("delete", "creating", left, work)


def _own(inputs: Props) -> Props:
    # A dynamic provider's code may change between runs without changing what it made.
    return {k: v for k, v in inputs.items() if k != "__provider"}
