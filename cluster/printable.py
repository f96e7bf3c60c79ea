"""Text that may be shown on a terminal, whoever wrote it.

Names of jobs, reasons, logs and stack files are written by others. A terminal acts on control characters in them: an
escape sequence changes what was printed before, a carriage return hides a line, a text direction turns one around.
"""

import json
import re

# C0 but tab and line feed, DEL, C1 (U+009B is an escape sequence's start), line and paragraph separators, marks and
# changes of text direction (Unicode, UAX #9), characters without a width, and halves of pairs, which UTF-8 lacks.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""`text` with every character that a terminal acts on written as \x1b or \u2028; tabs and line ends stay."""
    return _HIDDEN.sub(_escaped, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    r"""The text as one line: line ends and tabs are written as \n and \t."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def document(value: object, *, indent: int | None = 2) -> str:
    """`value` as readable JSON without what a terminal acts on; values that JSON does not have are written as text."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
