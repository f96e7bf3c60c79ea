"""Who has to act before a node can take jobs again: one vocabulary for all platforms."""

from enum import Enum


class Actor(str, Enum):
    """Who has to act."""

    NOBODY = "nobody"
    USER = "user"
    OPERATOR = "operator program"
    SUPPORT = "cloud support"
    ADMIN = "administrator"
