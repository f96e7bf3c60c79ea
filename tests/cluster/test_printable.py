"""Characters that a terminal interprets are escaped, and all others stay."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.printable import document, one_line, printable

ANY = st.text(st.characters(codec=None, categories=None))


def acted_on(text: str) -> set[str]:
    """Return the characters that a terminal interprets, by Unicode's categories and not by the program's list. Tags
    (U+E0000) are not shown."""
    joiners = "\u00ad\u200c\u200d"  # a soft hyphen, and what Persian and emoji are written with
    return {
        char
        for char in text
        if unicodedata.category(char) in {"Cc", "Zl", "Zp", "Cs"}
        or (unicodedata.bidirectional(char) in {"LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
        or (unicodedata.category(char) == "Cf" and ord(char) in range(0x2000, 0x2070) and char not in joiners)
    }


@given(ANY)
def test_only_line_ends_and_tabs_stay(text: str) -> None:
    assert acted_on(printable(text)) <= {"\n", "\t"}
    assert not acted_on(one_line(text))


@given(ANY)
def test_a_document_is_read_to_the_same_value(text: str) -> None:
    said = document({"name": text})
    assert acted_on(said) <= {"\n"}
    assert json.loads(said) == {"name": text}


@pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E, 0x2066, 0xD800])
def test_control_characters_are_escaped(code: int) -> None:
    assert not acted_on(one_line(f"a{chr(code)}b"))
    assert one_line(f"a{chr(code)}b").isascii()


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_text_without_control_characters_stays(text: str) -> None:
    assert printable(text) == text


def test_printable_is_idempotent_and_accepts_line_ends_of_windows() -> None:
    assert printable("a\r\nb\rc\x1b[2J") == "a\nb\\x0dc\\x1b[2J" == printable(printable("a\r\nb\rc\x1b[2J"))
