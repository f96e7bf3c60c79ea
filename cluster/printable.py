"""Text of others, made safe for a terminal.

Names of jobs, reasons, logs and stack files are written by others. A terminal interprets control characters in them: an
escape sequence changes what was printed before, a carriage return hides a line, a text direction reverses one.
"""

import json
import re

# C0 except tab and line feed, DEL, C1 (U+009B starts an escape sequence), line and paragraph separators, marks and
# changes of text direction (Unicode, UAX #9), characters without width, and surrogates, which UTF-8 does not have.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Return the text with codes, such as \x1b, for characters that a terminal interprets; tabs and line ends stay."""
    return _HIDDEN.sub(_escaped, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    r"""Return the text as one line, with line ends and tabs as \n and \t."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def counted(number: int, thing: str) -> str:
    """Return `1 node`, `2 nodes`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def document(value: object, *, indent: int | None = 2) -> str:
    """Return a value as readable JSON that is safe for a terminal. Types that JSON does not have become text."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
