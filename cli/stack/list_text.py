"""One item of a list in a stack file, inserted into or removed from its text.

All else stays as it is: comments, order, quotes, blank lines, and whether a list is written in brackets or with dashes.
The result is parsed and compared with what is wanted, so a file that is written in an unusual way is refused and never
damaged.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from cli.errors import CliError

_LONGEST = 120
"""Columns of a line that is written in braces, where no item beside it says how items are written."""
Item = Mapping[str, Any]


def with_item(text: str, path: Sequence[str], item: Item, *, after: str = "") -> str:
    """The text with an item at the end of the list at `path`, in the style of the last one there. A mapping without the
    list gets it, after the key `after` if it has this one, else at its end. Raises CliError: it is written in a way in
    which nothing can be inserted."""
    found = _find(text, path)
    return _checked(text, [found.appended(item, after)], path, lambda items: [*items, dict(item)])


def without_item(text: str, path: Sequence[str], number: int) -> str:
    """The text without an item of the list at `path`; the first is 0. Without its only item, the key of a list goes as
    well, unless a comment is about it. Raises CliError: it can't be removed from the text."""
    found = _find(text, path)
    return _checked(text, found.removed(number), path, lambda items: [*items[:number], *items[number + 1 :]])


def line_of_item(text: str, path: Sequence[str], number: int) -> int:
    """The line where an item of the list at `path` begins, counted from 1."""
    return _find(text, path)._items[number].start_mark.line + 1  # noqa: SLF001 - of this module


@dataclass(frozen=True)
class _List:
    """A list in a text: the mapping that has it, its key and its value; no key if the mapping does not have it."""

    text: str
    name: str
    parent: yaml.MappingNode
    key: yaml.Node | None
    node: yaml.Node | None

    def appended(self, item: Item, after: str) -> str:
        if self.node is None:
            return self._as_new_key(item, after)
        return self._in_brackets(item) if self._sequence.flow_style else self._with_dash(item)

    def removed(self, number: int) -> Iterator[str]:
        """Texts without the item, the best first."""
        if self._sequence.flow_style:
            yield self._out_of_brackets(number)
        else:
            yield from self._without_dash(number)

    # With dashes

    def _as_new_key(self, item: Item, after: str) -> str:
        if self.parent.flow_style or not self.parent.value:
            raise _refused(self.name, f"the mapping around it is written in braces and has no `{self.name}: []`")
        column = self.parent.value[0][0].start_mark.column
        before = next((value for key, value in self.parent.value if key.value == after), self.parent)
        at = self._line_end(self._end(before))
        lines = f"{self._newline}{' ' * column}{self.name}:{self._newline}"
        return self._replaced((at, at, lines + self._dashed(item, column + 2, in_braces=None)))

    def _with_dash(self, item: Item) -> str:
        last = self._items[-1]
        dash = self._dash(len(self._items) - 1)
        at = self._line_end(self._end(last))
        in_braces = last.flow_style if isinstance(last, yaml.CollectionNode) else None
        return self._replaced((at, at, self._newline + self._dashed(item, self._column(dash), in_braces=in_braces)))

    def _without_dash(self, number: int) -> Iterator[str]:
        dash, end = self._dash(number), self._line_end(self._end(self._items[number]))
        if self.text[self._line(dash) : dash].strip():
            raise _refused(self.name, "its items do not begin on lines of their own")
        item = (self._before_line(dash), end, "")
        if len(self._items) > 1:
            yield self._replaced(item)
            return
        start = self._name.start_mark.index
        colon = self.text.index(":", self._name.end_mark.index) + 1
        above = self.text[self._line(max(0, self._line(start) - 1)) : self._line(start)]
        about = above.strip().startswith("#") or "#" in self.text[colon:dash]
        if not about and not self.text[self._line(start) : start].strip():
            yield self._replaced((self._before_line(start), end, ""))
        yield self._replaced((colon, colon, " []"), item)

    def _dashed(self, item: Item, column: int, *, in_braces: bool | None) -> str:
        """An item as a line with a dash, or as lines; None: as one line, if that is not too long."""
        head = f"{' ' * column}- "
        if in_braces or (in_braces is None and len(head + _flow(item)) <= _LONGEST):
            return head + _flow(item)
        lines = [line for key, value in item.items() for line in _lines(key, value)]
        return head + f"{self._newline}{' ' * (column + 2)}".join(lines)

    def _dash(self, number: int) -> int:
        """Where the dash of an item is."""
        before = self._items[number].start_mark.index
        return max(at for kind, at in self._tokens if kind is yaml.BlockEntryToken and at < before)

    # In brackets

    def _in_brackets(self, item: Item) -> str:
        new, items = _flow(item), self._items
        if not items:
            start = self._bracket + 1
            if start == self._close and self._column(start) + len(new) + 1 > _LONGEST:
                # On a line of its own: the next ones will follow it there.
                column = self._name.start_mark.column
                line = f"{self._newline}{' ' * (column + 2)}{new},{self._newline}{' ' * column}"
                return self._replaced((start, start, line))
            return self._replaced((start, start, new))
        last, end = items[-1], self._end(items[-1])
        comma = self._comma_after(end, self._close)
        place = end if comma is None else comma + 1
        if not self._on_own_line(last):
            return self._replaced((place, place, f", {new}" if comma is None else f" {new},"))
        line = f"{self._newline}{' ' * last.start_mark.column}{new}"
        line_end = self._line_end(place)
        # A comment behind the last item stays on its line.
        at = place if self._close < line_end else line_end
        if comma is not None:
            return self._replaced((at, at, f"{line},"))
        return self._replaced((place, place, ","), (at, at, line))

    def _out_of_brackets(self, number: int) -> str:
        items, item = self._items, self._items[number]
        start, end = item.start_mark.index, self._end(item)
        comma = self._comma_after(end, items[number + 1].start_mark.index if number + 1 < len(items) else self._close)
        if comma is not None:
            end = comma + 1
        own = self._on_own_line(item)
        if len(items) == 1:
            inner = self.text[self._bracket + 1 : start] + self.text[end : self._close]
            if own and comma is not None and not inner.strip():
                return self._replaced((self._bracket + 1, self._close, ""))
            return self._replaced((start, end, ""))
        if own:
            rest = self.text[end : self._line_end(end)].strip()
            if not rest or rest.startswith("#"):
                end = self._line_end(end)
            # A bracket that follows may not come behind a comment.
            behind = rest and "#" in self.text[self._end(items[number - 1]) : start] if number else False
            removed = (start if behind and not rest.startswith("#") else self._before_line(start), end, "")
        elif number + 1 < len(items):
            while self.text[end] in " \t":
                end += 1
            return self._replaced((start, end, ""))
        else:
            removed = (start - len(self.text[:start]) + len(self.text[:start].rstrip(" \t")), end, "")
        if comma is not None:
            return self._replaced(removed)
        before = self._comma_after(self._end(items[number - 1]), start)
        return self._replaced(removed, *([(before, before + 1, "")] if before is not None else []))

    @property
    def _bracket(self) -> int:
        """Where the list's opening bracket is: an anchor may be before it."""
        first = self._sequence.start_mark.index
        return next(at for kind, at in self._tokens if kind is yaml.FlowSequenceStartToken and at >= first)

    @property
    def _close(self) -> int:
        return self._sequence.end_mark.index - 1

    def _comma_after(self, start: int, end: int) -> int | None:
        return next((at for kind, at in self._tokens if kind is yaml.FlowEntryToken and start <= at < end), None)

    def _on_own_line(self, node: yaml.Node) -> bool:
        start = node.start_mark.index
        return not self.text[self._line(start) : start].strip()

    # Places in the text

    @property
    def _sequence(self) -> yaml.SequenceNode:
        if not isinstance(self.node, yaml.SequenceNode):
            raise _refused(self.name, "it is not written as a list")
        return self.node

    @property
    def _name(self) -> yaml.Node:
        if self.key is None:
            raise _refused(self.name, "it is not there")
        return self.key

    @property
    def _items(self) -> list[yaml.Node]:
        before = self._name.end_mark.index
        for item in self._sequence.value:
            # What an alias stands for is before it, in another place.
            if item.start_mark.index < before:
                raise _refused(self.name, "it has an alias (*)")
            before = item.start_mark.index
        return self._sequence.value

    @property
    def _tokens(self) -> list[tuple[type[yaml.Token], int]]:
        return [(type(token), token.start_mark.index) for token in yaml.scan(self.text, Loader=yaml.SafeLoader)]

    @property
    def _newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    def _end(self, node: yaml.Node) -> int:
        """Where the content of a node ends; a block's own mark is where the next thing begins."""
        while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            key, value = last if isinstance(last, tuple) else (node, last)
            if value.start_mark.index < key.start_mark.index:
                raise _refused(self.name, "it has an alias (*)")
            node = value
        return len(self.text[: node.end_mark.index].rstrip())

    def _line(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def _column(self, at: int) -> int:
        return at - self._line(at)

    def _before_line(self, at: int) -> int:
        """The end of the line before the one at `at`."""
        start = self._line(at)
        return start - len(self._newline) if self.text[:start].endswith(self._newline) else max(0, start - 1)

    def _line_end(self, at: int) -> int:
        found = re.compile(r"\r?\n").search(self.text, at)
        return found.start() if found else len(self.text)

    def _replaced(self, *changes: tuple[int, int, str]) -> str:
        """The text with parts replaced: (start, end, by what); two in one place come in the order given."""
        text = self.text
        for start, end, new in sorted(changes, key=lambda change: change[0])[::-1]:
            text = text[:start] + new + text[end:]
        return text


def _find(text: str, path: Sequence[str]) -> _List:
    name = path[-1]
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        raise _refused(name, "the file is not valid YAML") from None
    key = None
    for step in path:
        if not isinstance(node, yaml.MappingNode):
            raise _refused(name, "what is around it is not a mapping")
        parent = node
        key, node = next(((one, value) for one, value in node.value if one.value == step), (None, None))
        if key is not None and node.start_mark.index < key.end_mark.index:
            raise _refused(name, "it is written by an alias (*)")
        if key is None and step != name:
            raise _refused(name, f"there is no {step}")
    return _List(text, name, parent, key, node)


def _lines(key: str, value: Any) -> list[str]:  # noqa: ANN401 - any value of YAML
    line = f"{key}: {_flow(value)}"
    if not isinstance(value, list | tuple) or len(line) <= _LONGEST // 2:
        return [line]
    return [f"{key}:", *(f"  - {_flow(one)}" for one in value)]


def _flow(value: Any) -> str:  # noqa: ANN401 - any value of YAML
    plain = dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, width=10**9, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _checked(
    before: str, texts: Sequence[str] | Iterator[str], path: Sequence[str], change: Callable[[list[Any]], list[Any]]
) -> str:
    """The first of the texts that says what the old one did, but for this change of the list."""
    wanted = _with_list(yaml.safe_load(before), path, change)
    for text in texts:
        try:
            found = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
        if _with_list(found, path, lambda items: items) == wanted:
            return text
    raise _refused(path[-1], "it is written in an unusual way")


def _with_list(document: Any, path: Sequence[str], change: Callable[[list[Any]], list[Any]]) -> Any:  # noqa: ANN401
    """The document with another list; one that is missing is empty, and equal to such a one."""
    first, *rest = path
    return {**document, first: _with_list(document[first], rest, change) if rest else change(document.get(first) or [])}


def _refused(name: str, why: str) -> CliError:
    return CliError(f"{name} can't be edited here: {why}. Edit the file instead.")
