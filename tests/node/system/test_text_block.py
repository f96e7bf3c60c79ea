"""A block in a shared file has exactly the given lines, and all other lines are kept."""

from hypothesis import given
from hypothesis import strategies as st
from system.text_block import BEGIN, END, with_block

LINE = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=20).filter(
    lambda s: s not in {BEGIN, END, "# another: begin", "# another: end"}
)
LINES = st.lists(LINE, max_size=6)


@given(LINES, LINES, LINES)
def test_the_last_block_wins_and_other_lines_stay(others, first, second):
    text = "".join(line + "\n" for line in others)
    once = with_block(with_block(text, first), second)
    assert once == with_block(text, second)
    assert with_block(once, []) == text


@given(LINES, LINES)
def test_applying_it_twice_is_applying_it_once(others, ours):
    once = with_block("\n".join(others), ours)
    assert with_block(once, ours) == once


def test_a_block_between_lines_of_others_is_found():
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_block(text, ["new"]) == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


@given(LINES, LINES, LINES)
def test_two_blocks_leave_each_other_alone(others, ours, theirs):
    both = with_block(with_block("\n".join(others), ours), theirs, mark="another")
    assert with_block(with_block(both, ours), theirs, mark="another") == both
    assert with_block(with_block(both, theirs, mark="another"), ours) == both
