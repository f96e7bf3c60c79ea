"""The one exception of the rehearsal's host side."""


class HostError(Exception):
    """Something on this host keeps a rehearsal from being made; its text is for the person who ran the command."""
