"""Nothing that a terminal acts on reaches it, and nothing that a person reads is lost."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.printable import document, one_line, printable

ANY = st.text(st.characters(codec=None, categories=None))


def acted_on(text: str) -> set[str]:
    """Characters that are no text: by Unicode's own categories, not by our list. Tags (U+E0000) show as nothing."""
    joiners = "\u00ad\u200c\u200d"  # a soft hyphen, and what Persian and emoji are written with
    return {
        char
        for char in text
        if unicodedata.category(char) in {"Cc", "Zl", "Zp", "Cs"}
        or (unicodedata.bidirectional(char) in {"LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
        or (unicodedata.category(char) == "Cf" and ord(char) in range(0x2000, 0x2070) and char not in joiners)
    }


@given(ANY)
def test_lines_and_tabs_alone_stay(text: str) -> None:
    assert acted_on(printable(text)) <= {"\n", "\t"}
    assert not acted_on(one_line(text))


@given(ANY)
def test_a_document_says_the_same(text: str) -> None:
    said = document({"name": text})
    assert acted_on(said) <= {"\n"}
    assert json.loads(said) == {"name": text}


@pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E, 0x2066, 0xD800])
def test_every_control_character_is_written_out(code: int) -> None:
    assert not acted_on(one_line(f"a{chr(code)}b"))
    assert one_line(f"a{chr(code)}b").isascii()


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_twice_is_once_and_a_line_end_of_another_system_is_a_line_end() -> None:
    assert printable("a\r\nb\rc\x1b[2J") == "a\nb\\x0dc\\x1b[2J" == printable(printable("a\r\nb\rc\x1b[2J"))
