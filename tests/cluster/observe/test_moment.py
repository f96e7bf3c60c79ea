"""A time that users type is a time for GNU date, or an error that lists what is allowed."""

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.observe.moment import MomentError, date_expression, machine_time


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("90s", "90 seconds ago"),
        ("15m", "900 seconds ago"),
        ("2h", "7200 seconds ago"),
        ("7d", "604800 seconds ago"),
        ("2 hours ago", "7200 seconds ago"),
        ("now-2hours", "7200 seconds ago"),
        ("now-5", "5 seconds ago"),
        ("2026-11-21", "2026-11-21 00:00:00"),
        ("2026-11-21T05:30", "2026-11-21 05:30:00"),
        ("2026-11-21 05:30:10", "2026-11-21 05:30:10"),
        ("11/21/26", "2026-11-21 00:00:00"),
        ("05:30", "today 05:30:00"),
        ("today", "today 00:00"),
        ("Yesterday", "yesterday 00:00"),
        ("now+1day", "86400 seconds"),
    ],
)
def test_moments(typed: str, meant: str):
    assert date_expression(typed) == meant


@pytest.mark.parametrize("typed", ["", "soon", "2026-02-30", "25:00", "7", "-2h", "now-2h ago", "9999999999h", "$(id)"])
def test_other_texts_are_refused(typed: str):
    with pytest.raises(MomentError, match=r"is no point in time\. Allowed: a date"):
        date_expression(typed)


@given(st.one_of(st.text(max_size=30), st.from_regex(r"(now ?[-+] ?)?[0-9]{1,4} ?(s|min|hours?|d|weeks)?( ago)?")))
def test_an_expression_has_no_characters_for_a_shell(typed: str):
    try:
        found = date_expression(typed)
    except MomentError:
        return
    assert re.fullmatch(r"[a-z0-9 :-]+", found)


@pytest.mark.parametrize("typed", ["90s", "now+1day", "2026-11-21T05:30", "05:30", "noon", "yesterday", "11/21/2026"])
def test_date_accepts_expressions(typed: str):
    printed = subprocess.check_output(["sh", "-c", f"printf %s {machine_time(typed)}"], text=True)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", printed)
