"""The CLI's own error."""


class CliError(Exception):
    """An error that the user can correct; the text says where, what was given, what is allowed and what to do."""
