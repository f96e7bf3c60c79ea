"""Where a list of a YAML text and its parts are."""

import re
from dataclasses import dataclass
from functools import cached_property

import yaml

from cli.errors import CliError


@dataclass(frozen=True)
class ListPlaces:
    """A list in a text: the mapping that has it, its key and its value; no key if the mapping does not have it."""

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
            # What an alias stands for is before it, in another place.
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
        """Where the content of a node ends; a block's own mark is where the next thing begins."""
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
        """The end of the line before the one at `at`."""
        start = self.line_start(at)
        return start - len(self.newline) if self.text[:start].endswith(self.newline) else max(0, start - 1)

    def line_end(self, at: int) -> int:
        found = re.compile(r"\r?\n").search(self.text, at)
        return found.start() if found else len(self.text)

    def replaced(self, *changes: tuple[int, int, str]) -> str:
        """The text with parts replaced: (start, end, by what); two in one place come in the order given."""
        text = self.text
        for start, end, new in sorted(changes, key=lambda change: change[0])[::-1]:
            text = text[:start] + new + text[end:]
        return text

    def dash(self, number: int) -> int:
        """Where the dash of an item is."""
        before = self.items[number].start_mark.index
        return max(at for kind, at in self.tokens if kind is yaml.BlockEntryToken and at < before)

    @property
    def bracket(self) -> int:
        """Where the list's opening bracket is: an anchor may be before it."""
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


def refused(name: str, why: str) -> CliError:
    return CliError(f"{name} can't be edited here: {why}. Edit the file instead.")
