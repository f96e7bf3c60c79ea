"""The one exception of calls to Nebius: its text is for the person who ran the command."""


class NebiusError(RuntimeError):
    """A call or an operation failed, or did not end in time; the text says what, why and what to do."""
