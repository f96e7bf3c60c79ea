"""The one exception of the rehearsal's host side."""


class HostError(Exception):
    """This host can't run a rehearsal; the message is for the user."""
