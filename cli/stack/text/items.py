"""One item of a list in a stack file, inserted into or removed from its text.

All else stays as it is: comments, order, quotes, blank lines, and whether a list is written in brackets or with dashes.
The result is parsed and compared with what is wanted, so a file that is written in an unusual way is refused and never
damaged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from cli.stack.text.places import ListPlaces, refused

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
    return _find(text, path).items[number].start_mark.line + 1


class _List(ListPlaces):
    """The edits of a list."""

    def appended(self, item: Item, after: str) -> str:
        if self.node is None:
            return self._as_new_key(item, after)
        return self._in_brackets(item) if self.sequence.flow_style else self._with_dash(item)

    def removed(self, number: int) -> Iterator[str]:
        """Texts without the item, the best first."""
        if self.sequence.flow_style:
            yield self._out_of_brackets(number)
        else:
            yield from self._without_dash(number)

    # With dashes

    def _as_new_key(self, item: Item, after: str) -> str:
        if self.parent.flow_style or not self.parent.value:
            raise refused(self.name, f"the mapping around it is written in braces and has no `{self.name}: []`")
        column = self.parent.value[0][0].start_mark.column
        before = next((value for key, value in self.parent.value if key.value == after), self.parent)
        at = self.line_end(self.end(before))
        lines = f"{self.newline}{' ' * column}{self.name}:{self.newline}"
        return self.replaced((at, at, lines + self._dashed(item, column + 2, in_braces=None)))

    def _with_dash(self, item: Item) -> str:
        last = self.items[-1]
        dash = self.dash(len(self.items) - 1)
        at = self.line_end(self.end(last))
        in_braces = last.flow_style if isinstance(last, yaml.CollectionNode) else None
        return self.replaced((at, at, self.newline + self._dashed(item, self.column(dash), in_braces=in_braces)))

    def _without_dash(self, number: int) -> Iterator[str]:
        dash, end = self.dash(number), self.line_end(self.end(self.items[number]))
        if self.text[self.line_start(dash) : dash].strip():
            raise refused(self.name, "its items do not begin on lines of their own")
        item = (self.before_line(dash), end, "")
        if len(self.items) > 1:
            yield self.replaced(item)
            return
        start = self.found_key.start_mark.index
        colon = self.text.index(":", self.found_key.end_mark.index) + 1
        above = self.text[self.line_start(max(0, self.line_start(start) - 1)) : self.line_start(start)]
        about = above.strip().startswith("#") or "#" in self.text[colon:dash]
        if not about and not self.text[self.line_start(start) : start].strip():
            yield self.replaced((self.before_line(start), end, ""))
        yield self.replaced((colon, colon, " []"), item)

    def _dashed(self, item: Item, column: int, *, in_braces: bool | None) -> str:
        """An item as a line with a dash, or as lines; None: as one line, if that is not too long."""
        head = f"{' ' * column}- "
        if in_braces or (in_braces is None and len(head + _flow(item)) <= _LONGEST):
            return head + _flow(item)
        lines = [line for key, value in item.items() for line in _lines(key, value)]
        return head + f"{self.newline}{' ' * (column + 2)}".join(lines)

    # In brackets

    def _in_brackets(self, item: Item) -> str:
        new, items = _flow(item), self.items
        if not items:
            start = self.bracket + 1
            if start == self.close and self.column(start) + len(new) + 1 > _LONGEST:
                # On a line of its own: the next ones will follow it there.
                column = self.found_key.start_mark.column
                line = f"{self.newline}{' ' * (column + 2)}{new},{self.newline}{' ' * column}"
                return self.replaced((start, start, line))
            return self.replaced((start, start, new))
        last, end = items[-1], self.end(items[-1])
        comma = self.comma_after(end, self.close)
        place = end if comma is None else comma + 1
        if not self.on_own_line(last):
            return self.replaced((place, place, f", {new}" if comma is None else f" {new},"))
        line = f"{self.newline}{' ' * last.start_mark.column}{new}"
        line_end = self.line_end(place)
        # A comment behind the last item stays on its line.
        at = place if self.close < line_end else line_end
        if comma is not None:
            return self.replaced((at, at, f"{line},"))
        return self.replaced((place, place, ","), (at, at, line))

    def _out_of_brackets(self, number: int) -> str:
        items, item = self.items, self.items[number]
        start, end = item.start_mark.index, self.end(item)
        comma = self.comma_after(end, items[number + 1].start_mark.index if number + 1 < len(items) else self.close)
        if comma is not None:
            end = comma + 1
        own = self.on_own_line(item)
        if len(items) == 1:
            inner = self.text[self.bracket + 1 : start] + self.text[end : self.close]
            if own and comma is not None and not inner.strip():
                return self.replaced((self.bracket + 1, self.close, ""))
            return self.replaced((start, end, ""))
        if own:
            rest = self.text[end : self.line_end(end)].strip()
            if not rest or rest.startswith("#"):
                end = self.line_end(end)
            # A bracket that follows may not come behind a comment.
            behind = rest and "#" in self.text[self.end(items[number - 1]) : start] if number else False
            removed = (start if behind and not rest.startswith("#") else self.before_line(start), end, "")
        elif number + 1 < len(items):
            while self.text[end] in " \t":
                end += 1
            return self.replaced((start, end, ""))
        else:
            removed = (start - len(self.text[:start]) + len(self.text[:start].rstrip(" \t")), end, "")
        if comma is not None:
            return self.replaced(removed)
        before = self.comma_after(self.end(items[number - 1]), start)
        return self.replaced(removed, *([(before, before + 1, "")] if before is not None else []))


def _find(text: str, path: Sequence[str]) -> _List:
    *above, name = path
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        raise refused(name, "the file is not valid YAML") from None
    for step in above:
        _, _, node = _entry(node, step, name)
        if node is None:
            raise refused(name, f"there is no {step}")
    return _List(text, name, *_entry(node, name, name))


def _entry(node: yaml.Node | None, key: str, name: str) -> tuple[yaml.MappingNode, yaml.Node | None, yaml.Node | None]:
    """A mapping, and the key and its value in it, if it has them."""
    if not isinstance(node, yaml.MappingNode):
        raise refused(name, "what is around it is not a mapping")
    for one, value in node.value:
        if one.value == key:
            if value.start_mark.index < one.end_mark.index:
                raise refused(name, "it is written by an alias (*)")
            return node, one, value
    return node, None, None


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
    raise refused(path[-1], "it is written in an unusual way")


def _with_list(document: Any, path: Sequence[str], change: Callable[[list[Any]], list[Any]]) -> Any:  # noqa: ANN401
    """The document with another list; one that is missing is empty, and equal to such a one."""
    first, *rest = path
    return {**document, first: _with_list(document[first], rest, change) if rest else change(document.get(first) or [])}
