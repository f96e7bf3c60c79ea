r"""Environment variables as lines that a shell evaluates.

Values of ordinary characters are quoted as POSIX has it. Others (control characters, text directions, bytes that are no
UTF-8) are written as $'\x1b', which bash, zsh and ksh read, since a terminal would act on them.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence

from cli.errors import CliError
from cluster.printable import one_line

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b"'\\")


def exports(variables: Mapping[str, str], hidden: frozenset[str] = frozenset()) -> Sequence[str]:
    """The `export` lines of variables; a comment for a hidden one."""
    return [
        f"# export {name}=[secret]" if name in hidden else f"export {name}={quote(name, value)}"
        for name, value in variables.items()
    ]


def quote(name: str, value: str) -> str:
    """The value of a variable as one word of a shell, which evaluates to exactly this value.

    Raises CliError: no variable can have this name or value.
    """
    if not _NAME.fullmatch(name) or "\0" in value:
        raise CliError(
            f"{name}={value!r}: not an environment variable: names have letters, digits and _, values no NUL"
        )
    if value == one_line(value):
        return shlex.quote(value)
    given = os.fsencode(value)
    return "$'" + "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in given) + "'"
