"""One setting of a stack file, written into its text: comments, blank lines and order stay as they are."""

from collections.abc import Mapping
from typing import Any

import yaml

from cli.errors import CliError


def with_setting(text: str, key: str, value: Mapping[str, str] | str) -> str:
    """The text of a stack file with a setting under `config:`, in its old place or as the first one. Raises CliError:
    it is written in a way in which nothing can be put in by itself."""
    shown = f"{_line(key)}: {_line(value)}"
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    config = _entry(root, "config")
    if config is None:
        head = "" if text.endswith("\n") or not text else "\n"
        return _checked(text, f"{text}{head}config:\n  {shown}\n", key, value)
    name, block = config
    if isinstance(block, yaml.ScalarNode) and not block.value:  # `config:` and nothing below
        at = name.end_mark.index + 1
        return _checked(text, f"{text[:at]}\n  {shown}{text[at:]}", key, value)
    if not isinstance(block, yaml.MappingNode) or block.flow_style:
        raise CliError("`config` does not have its settings on lines below it: edit the file instead.")
    old = _entry(block, key)
    if old is not None:
        end = old[1].end_mark.index
        while text[end - 1 : end].isspace():  # a mapping ends where the next thing begins
            end -= 1
        return _checked(text, text[: old[0].start_mark.index] + shown + text[end:], key, value)
    first = block.start_mark
    return _checked(text, f"{text[: first.index]}{shown}\n{' ' * first.column}{text[first.index :]}", key, value)


def _line(value: Mapping[str, str] | str) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _entry(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next(((name, value) for name, value in node.value if name.value == key), None)


def _checked(before: str, after: str, key: str, value: Mapping[str, str] | str) -> str:
    """The new text, if it says what the old one did, and this."""
    wanted: Any = yaml.safe_load(before) or {}
    wanted = {**wanted, "config": {**(wanted.get("config") or {}), key: value}}
    try:
        if yaml.safe_load(after) == wanted:
            return after
    except yaml.YAMLError:
        pass
    raise CliError(f"{key} can't be inserted: edit the file instead.")
