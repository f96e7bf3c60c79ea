"""Edits the text of stack files. Comments, order, quotes, blank lines and style are kept.

The result of an edit is parsed and compared with the expected document, so an unusually written file is refused and
never damaged. ruamel.yaml does not keep the style: it rewrites lists in brackets over several lines, comments in them,
aligned columns, mixed indents, and line ends."""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from cli.errors import CliError
from cli.stack import state_dir
from scripts.hostfiles import locked, write_atomically


@contextmanager
def alone(path: Path) -> Generator[None]:
    """Keep two edits of a file by this user from overlapping; waits for another one. The caller asks the user before or
    after it. The lock is in the state dir: whoever can read the file's own folder could lock that for ever."""
    state_dir.directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
    with locked(state_dir.directory() / "edits" / f"{name}.lock"):
        yield


def read(path: Path) -> str:
    """Return the text with its line ends. Raises CliError: it can't be read, or is no text."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise CliError(f"{path}: can't be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CliError(f"{path}: not text in UTF-8.") from None


def write(path: Path, text: str) -> None:
    """Replace the text atomically and keep the file's mode and owner; of a link, its target is replaced. Raises
    CliError: it can't be written, and has not changed."""
    target = path.resolve()
    try:
        old = target.stat()
        # A rehearsal needs root, and the file may be somebody's.
        owner = (old.st_uid, old.st_gid) if os.geteuid() == 0 else None
        write_atomically(target, text, mode=stat.S_IMODE(old.st_mode), owner=owner)
    except OSError as error:
        raise CliError(f"{path}: can't be written: {error.strerror}. Nothing was changed.") from None


def refused(name: str, why: str) -> CliError:
    return CliError(f"{name} can't be edited here: {why}. Edit the file instead.")


_LONGEST = 120
"""Longest line in braces that is written, unless another item shows how items are written."""
Item = Mapping[str, Any]


def with_item(text: str, path: Sequence[str], item: Item, *, after: str = "") -> str:
    """Return the text with an item appended to the list at `path`, in the style of the last item. A mapping without the
    list gets it, behind the key `after` if it has that, else at its end. Raises CliError: nothing can be inserted into
    the text."""
    target = _find(text, path)
    return _checked(text, [target.appended(item, after)], path, lambda items: [*items, dict(item)])


def without_item(text: str, path: Sequence[str], number: int) -> str:
    """Return the text without an item of the list at `path`; the first is 0. With its only item the list's key is
    removed too, unless it has a comment. Raises CliError: the item can't be removed from the text."""
    target = _find(text, path)
    return _checked(text, target.removed(number), path, lambda items: [*items[:number], *items[number + 1 :]])


def line_of_item(text: str, path: Sequence[str], number: int) -> int:
    """Return the line in which an item of the list at `path` begins, counted from 1."""
    return _find(text, path).items[number].start_mark.line + 1


@dataclass(frozen=True)
class _List:
    """A list in a text: the mapping around it, its key and its value. Key and value are None if it does not exist."""

    text: str
    name: str
    parent: yaml.MappingNode
    key: yaml.Node | None
    node: yaml.Node | None

    @property
    def sequence(self) -> yaml.SequenceNode:
        if not isinstance(self.node, yaml.SequenceNode):
            raise refused(self.name, "it is not written as a list")
        return self.node

    @property
    def found_key(self) -> yaml.Node:
        if self.key is None:
            raise refused(self.name, "it is not there")
        return self.key

    @property
    def items(self) -> list[yaml.Node]:
        before = self.found_key.end_mark.index
        for item in self.sequence.value:
            # The node of an alias is the one it stands for, in another place before it.
            if item.start_mark.index < before:
                raise refused(self.name, "it has an alias (*)")
            before = item.start_mark.index
        return self.sequence.value

    @cached_property
    def tokens(self) -> list[tuple[type[yaml.Token], int]]:
        return [(type(token), token.start_mark.index) for token in yaml.scan(self.text, Loader=yaml.SafeLoader)]

    @property
    def newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    def end(self, node: yaml.Node) -> int:
        """Return the end of a node's content; the end mark of a block is at the beginning of the next node."""
        while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            key, value = last if isinstance(last, tuple) else (node, last)
            if value.start_mark.index < key.start_mark.index:
                raise refused(self.name, "it has an alias (*)")
            node = value
        return len(self.text[: node.end_mark.index].rstrip())

    def line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def column(self, at: int) -> int:
        return at - self.line_start(at)

    def before_line(self, at: int) -> int:
        """Return the end of the line before the one at `at`."""
        start = self.line_start(at)
        return start - len(self.newline) if self.text[:start].endswith(self.newline) else max(0, start - 1)

    def line_end(self, at: int) -> int:
        found = re.compile(r"\r?\n").search(self.text, at)
        return found.start() if found else len(self.text)

    def replaced(self, *changes: tuple[int, int, str]) -> str:
        """Return the text with parts replaced: (start, end, replacement). Two in one place stay in their order."""
        text = self.text
        for start, end, new in sorted(changes, key=lambda change: change[0])[::-1]:
            text = text[:start] + new + text[end:]
        return text

    def dash(self, number: int) -> int:
        before = self.items[number].start_mark.index
        return max(at for kind, at in self.tokens if kind is yaml.BlockEntryToken and at < before)

    @property
    def bracket(self) -> int:
        """The position of the list's opening bracket, which may come after an anchor."""
        first = self.sequence.start_mark.index
        return next(at for kind, at in self.tokens if kind is yaml.FlowSequenceStartToken and at >= first)

    @property
    def close(self) -> int:
        return self.sequence.end_mark.index - 1

    def comma_after(self, start: int, end: int) -> int | None:
        return next((at for kind, at in self.tokens if kind is yaml.FlowEntryToken and start <= at < end), None)

    def on_own_line(self, node: yaml.Node) -> bool:
        start = node.start_mark.index
        return not self.text[self.line_start(start) : start].strip()

    def appended(self, item: Item, after: str) -> str:
        if self.node is None:
            return self._as_new_key(item, after)
        return self._in_brackets(item) if self.sequence.flow_style else self._with_dash(item)

    def removed(self, number: int) -> Iterator[str]:
        """Yield texts without the item, the best one first."""
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
        """Return an item with a dash, on one line or on several. With `in_braces` None, on one line if it fits."""
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
                # The item gets a line of its own, and so will the next ones.
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
    """Return a mapping, and the key's node and value in it, None if it does not have the key."""
    if not isinstance(node, yaml.MappingNode):
        raise refused(name, "what is around it is not a mapping")
    key_node, value = _pair(node, key) or (None, None)
    if key_node and value and value.start_mark.index < key_node.end_mark.index:
        raise refused(name, "it is written by an alias (*)")
    return node, key_node, value


def _pair(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next(((name, value) for name, value in pairs if name.value == key), None)


def _lines(key: str, value: Any) -> list[str]:  # noqa: ANN401 - any value of YAML
    line = f"{key}: {_flow(value)}"
    if not isinstance(value, list | tuple) or len(line) <= _LONGEST // 2:
        return [line]
    return [f"{key}:", *(f"  - {_flow(item)}" for item in value)]


def _flow(value: Any) -> str:  # noqa: ANN401 - any value of YAML
    from engine import yamlfile

    plain = dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
    text = yamlfile.dump(plain, default_flow_style=True, width=10**9, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _checked(before: str, texts: Iterable[str], path: Sequence[str], change: Callable[[list[Any]], list[Any]]) -> str:
    """Return the first of the texts whose document is the old one with this change of the list."""
    expected = _with_list(_parse(before), path, change)
    for text in texts:
        if _parses_to(text, expected, lambda document: _with_list(document, path, lambda items: items)):
            return text
    raise refused(path[-1], "it is written in an unusual way")


def _parses_to(text: str, expected: Any, read: Callable[[Any], Any]) -> bool:  # noqa: ANN401
    from engine import EngineError

    try:
        return read(_parse(text)) == expected
    except EngineError:
        return False


def _parse(text: str) -> Any:  # noqa: ANN401 - any value of YAML
    """Return the value of a stack file's text, by the reader of all stack files."""
    from engine import yamlfile

    return yamlfile.parse(text)


def _with_list(document: Any, path: Sequence[str], change: Callable[[list[Any]], list[Any]]) -> Any:  # noqa: ANN401
    """Return the document with a change of the list at `path`. A missing list counts as an empty one."""
    first, *rest = path
    return {**document, first: _with_list(document[first], rest, change) if rest else change(document.get(first) or [])}


def with_setting(text: str, key: str, value: Mapping[str, str] | str) -> str:
    """Return the text of a stack file with a setting under `config:`, in its old place or as the first one. Raises
    CliError: the setting can't be inserted into the text."""
    shown = f"{_flow(key)}: {_flow(value)}"
    config = _pair(yaml.compose(text, Loader=yaml.SafeLoader), "config")
    if config is None:
        head = "" if text.endswith("\n") or not text else "\n"
        after = f"{text}{head}config:\n  {shown}\n"
    elif isinstance(config[1], yaml.ScalarNode) and not config[1].value:  # `config:` and nothing below
        at = config[0].end_mark.index + 1
        after = f"{text[:at]}\n  {shown}{text[at:]}"
    elif not isinstance(config[1], yaml.MappingNode) or config[1].flow_style:
        raise CliError("`config` does not have its settings on lines below it: edit the file instead.")
    elif old := _pair(config[1], key):
        # The end mark of a mapping is at the beginning of the next node.
        end = len(text[: old[1].end_mark.index].rstrip())
        after = text[: old[0].start_mark.index] + shown + text[end:]
    else:
        first = config[1].start_mark
        after = f"{text[: first.index]}{shown}\n{' ' * first.column}{text[first.index :]}"
    document = _parse(text) or {}
    expected = {**document, "config": {**(document.get("config") or {}), key: value}}
    if not _parses_to(after, expected, lambda document: document):
        raise CliError(f"{key} can't be inserted: edit the file instead.")
    return after
