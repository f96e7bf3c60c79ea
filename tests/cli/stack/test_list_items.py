"""An item is inserted into a list of a stack file, or removed, and nothing else of the text changes."""

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.errors import CliError
from cli.stack.edits import line_of_item, with_item, without_item

PATH = ("config", "hpc:cluster", "users")
HEAD = "# Ours.\nconfig:\n  hpc:cluster:\n    name: dev # near\n"
CAROL = {"name": "carol", "uid": 2003}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl carol, the [first]: x #1"

COMMENT = st.sampled_from(["", " # here", "  # it's {a}, [b]"])
OWN_LINES = st.lists(st.sampled_from(["", "      # above", "    # out - dented", "  "]), max_size=2)
NAMES = st.lists(
    st.sampled_from(["alice", "'b, ob'", '"car-ol"', "d_e", "'#1'", "~", "'no'"]), min_size=1, max_size=4, unique=True
)
ITEM = st.fixed_dictionaries(
    {"name": st.sampled_from(["erin", "no", "x: y", "#", "- a", "{b}", "1", "null", "é"])},
    optional={
        "uid": st.integers(0, 2**32 - 2),
        "keys": st.lists(st.just(KEY), max_size=3),
        "sudo": st.booleans(),
        "qos": st.lists(st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")))),
    },
)


@st.composite
def in_brackets(draw) -> list[str]:
    names = draw(st.just([]) | NAMES)
    items = [f"{{name: {name}{draw(st.sampled_from(['', ', uid: 2001', ', keys: [a, b]']))}}}" for name in names]
    last = draw(st.sampled_from(["", ",", " ,"])) if items else ""
    if draw(st.booleans()):
        space = draw(st.sampled_from(["", " "]))
        return [f"    users: [{space}{', '.join(items)}{last}{space}]{draw(COMMENT)}"]
    lines = ["    users: [" + draw(COMMENT)]
    for number, item in enumerate(items):
        lines += draw(OWN_LINES)
        comma = "," if number + 1 < len(items) else last
        lines.append(f"      {item}{comma}{draw(COMMENT)}")
    lines += draw(OWN_LINES)
    if items and draw(st.booleans()) and "#" not in lines[-1]:
        return [*lines[:-1], lines[-1] + "]"]
    return [*lines, "    ]" + draw(COMMENT)]


@st.composite
def with_dashes(draw) -> list[str]:
    column = " " * draw(st.sampled_from([4, 6, 7]))
    lines = ["    users:" + draw(COMMENT)]
    for name in draw(NAMES):
        lines += draw(OWN_LINES)
        style = draw(st.integers(0, 3))
        if style == 0:
            lines.append(f"{column}- {{name: {name}, keys: [a]}}{draw(COMMENT)}")
        elif style == 1:
            lines += [f"{column}-   name: {name}{draw(COMMENT)}", f"{column}    uid: 2001{draw(COMMENT)}"]
        elif style == 2:
            lines += [f"{column}- name: {name}", f"{column}  keys:{draw(COMMENT)}", f"{column}  - a", f"{column}  - b"]
        else:
            lines += [f"{column}-{draw(COMMENT)}", f"{column}    {{name: {name}}}"]
    return lines


@st.composite
def stack_files(draw) -> str:
    lines = draw(st.just([]) | in_brackets() | with_dashes())
    lines += draw(OWN_LINES)
    lines += draw(st.sampled_from([[], ["    login: {count: 1}"], ["  # last", "encryptionsalt: v1"]]))
    end = draw(st.sampled_from(["\n", "", "\n\n# the end"]))
    text = HEAD + "\n".join(lines) + end if lines else HEAD
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def users(text: str) -> list[dict]:
    return yaml.safe_load(text)["config"]["hpc:cluster"].get("users") or []


def comments(text: str) -> list[str]:
    return re.findall(r"# ?[a-z]+.*", text.replace("\r", ""))


@given(stack_files(), ITEM)
def test_adding_and_removing_an_item_restores_the_bytes(text: str, item: dict) -> None:
    there = users(text)
    after = with_item(text, PATH, item)
    assert users(after) == [*there, item]
    assert [comment for comment in comments(after) if comment in comments(text)] == comments(text)
    assert ("\r\n" in after) == ("\r\n" in text)
    assert "\n" not in after.replace("\r\n", "") or "\r\n" not in text
    assert without_item(after, PATH, len(there)) == text


@given(stack_files(), st.data())
def test_any_item_can_be_removed(text: str, data: st.DataObject) -> None:
    there = users(text)
    while there:
        number = data.draw(st.integers(0, len(there) - 1))
        text = without_item(text, PATH, number)
        there = there[:number] + there[number + 1 :]
        assert users(text) == there


class TestStyle:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("    users: []\n", "    users: [{name: carol, uid: 2003}]\n"),
            ("    users: [{name: a}] # x\n", "    users: [{name: a}, {name: carol, uid: 2003}] # x\n"),
            (
                "    users:\n      - {name: a} # x\n\n    login: {}\n",
                "    users:\n      - {name: a} # x\n      - {name: carol, uid: 2003}\n\n    login: {}\n",
            ),
            (
                "    users:\n    - name: a\n      uid: 1\n    # end\n",
                "    users:\n    - name: a\n      uid: 1\n    - name: carol\n      uid: 2003\n    # end\n",
            ),
            (
                "    users: [\n      {name: a} # x\n    ]\n",
                "    users: [\n      {name: a}, # x\n      {name: carol, uid: 2003}\n    ]\n",
            ),
            ("", "    users:\n      - {name: carol, uid: 2003}\n"),
            ("    # login:\n", "    users:\n      - {name: carol, uid: 2003}\n    # login:\n"),
        ],
    )
    def test_a_new_item_has_the_style_of_the_others(self, before: str, after: str) -> None:
        assert with_item(HEAD + before, PATH, CAROL) == HEAD + after
        assert without_item(HEAD + after, PATH, after.count("name:") - 1) == HEAD + before

    def test_a_long_item_is_on_a_separate_line(self) -> None:
        after = with_item(HEAD + "    users: []\n", PATH, {**CAROL, "keys": [KEY]})
        lines = after.removeprefix(HEAD).splitlines()
        assert (lines[0], lines[2]) == ("    users: [", "    ]")
        assert with_item(after, PATH, CAROL).splitlines()[-2] == "      {name: carol, uid: 2003},"

    def test_a_new_list_is_inserted_after_the_named_key(self) -> None:
        text = HEAD + "    users: [{name: a}] # x\n    login: {}\n"
        path = (*PATH[:-1], "former_users")
        after = with_item(text, path, CAROL, after="users")
        assert after.index("users:") < after.index("former_users:") < after.index("login:")
        assert without_item(after, path, 0) == text

    def test_the_key_of_an_empty_list_stays_if_it_has_a_comment(self) -> None:
        text = HEAD + "    # People.\n    users:\n      - {name: a}\n    login: {}\n"
        assert without_item(text, PATH, 0) == HEAD + "    # People.\n    users: []\n    login: {}\n"

    def test_lines_are_counted_from_one(self) -> None:
        assert line_of_item(HEAD + "    users:\n      - {name: a}\n\n      - name: b\n", PATH, 1) == 8


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("config: {'hpc:cluster': {name: dev}}\n", "written in braces and has no `users: "),
        ("config:\n  hpc:cluster: '{}'\n", "is not a mapping"),
        (HEAD + "    users:\n", "not written as a list"),
        (HEAD.replace("dev", "&a [{name: a}]") + "    users: *a\n", "alias"),
        (HEAD.replace("dev", "&a {name: a}") + "    users: [*a]\n", "alias"),
        (HEAD.replace("dev", "&a {name: a}") + "    users:\n      - *a\n", "alias"),
        ("base: &b\n  users: [{name: a}]\nconfig:\n  hpc:cluster:\n    <<: *b\n    name: dev\n", "unusual way"),
        ("config:\n  hpc:cluster: &c\n    users: [{name: a}]\nother: *c\n", "unusual way"),
        ("a: [\n", "not valid YAML"),
        ("config: {}\n", "there is no hpc:cluster"),
    ],
)
def test_unusual_notations_are_refused(text: str, why: str) -> None:
    with pytest.raises(CliError, match=f"{re.escape(why)}.*Edit the file instead"):
        with_item(text, PATH, CAROL)


def test_an_item_with_an_anchor_in_use_is_not_removed() -> None:
    text = HEAD + "    users: [&a {name: a}, {name: b}]\n    other: *a\n"
    with pytest.raises(CliError, match="Edit the file instead"):
        without_item(text, PATH, 0)
    assert users(without_item(text, PATH, 1)) == [{"name": "a"}]
