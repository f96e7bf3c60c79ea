"""Whatever a stack file holds, reading it ends soon, with a cluster or with errors in words that fit a screen."""

import copy
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.errors import CliError
from cli.stack import stack_config, stackfile
from cluster.config import ClusterConfig
from cluster.printable import one_line
from engine import yamlfile
from engine.errors import EngineError
from engine.project import Project
from engine.state.crypter import from_environment
from tests.cluster.stacks import places

ROOT = Path(__file__).parents[3]
STACKS = {path.name: path.read_text() for path in sorted(ROOT.glob("Pulumi.*.yaml"))}
TREES = {name: yaml.safe_load(text) for name, text in STACKS.items()}
SECONDS = 10
"""What reading may take on a busy machine; a file that hangs takes minutes, or all memory."""
LINES, CHARACTERS = 510, 100_000
"""A hundred errors, each explained in four lines."""
BILLIONS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]\n" for n in range(12)
)
CRAFTED = {
    "aliases that stand for a billion values": f"{BILLIONS}config: {{hpc:cluster: *a12}}",
    "merges that stand for a billion values": BILLIONS.replace("[", "[{k: ")
    .replace(", ", "}, {k: ")
    .replace("]", "}]"),
    "an anchor within itself": "config: &a {hpc:cluster: *a}",
    "a list within itself": "config: {hpc:cluster: &a [*a]}",
    "lists without end": "config: " + "[" * 200_000,
    "mappings without end": "config: " + "{a: " * 200_000,
    "blocks without end": "".join(f"{' ' * n}a:\n" for n in range(1000)),
    "keys of keys": "? " * 10_000 + "a",
    "tags without end": "%TAG !a! tag:x\n" * 100_000 + "--- a",
    "a float that is none": "config: {hpc:cluster: !!float abc}",
    "an int that is empty": "config: {hpc:cluster: !!int ''}",
    "a truth that is none": "config: {hpc:cluster: !!bool maybe}",
    "an object": "config: !!python/object/apply:os.system [true]",
    "a tag of one's own": "config: !mine {hpc:cluster: {}}",
    "a set": "config: !!set {hpc:cluster}",
    "a day that is none": "config: {hpc:cluster: {name: 2024-13-45}}",
    "a number of a million digits": f"config: {{hpc:cluster: {{count: {'9' * 1_000_000}}}}}",
    "a hexadecimal number of a million digits": f"config: {{hpc:cluster: {{count: 0x{'f' * 1_000_000}}}}}",
    "a key of a million characters": f"config:\n  hpc:cluster:\n    ? {'k' * 1_000_000}\n    : 1",
    "an escape sequence": "config: {hpc:cluster: {name: \x1b[2J}}",
    "an escape sequence as YAML writes it": r'config: {hpc:cluster: {"\e[2J\r\u2028": "\e]0;x\a\u202e", name: "\r\b"}}',
    "a key that is a list": "config: {? [a, b] : c}",
    "a key that is a number": "config: {1: a, 1.5: b, true: c, ~: d}",
    "no text": "\0\1\2",
    "half a character": "config: \udcff",
    "two documents": "--- {}\n--- {}",
    "a list": "- a",
    "a list of settings": "config: [a]",
    "a salt that is a number": "encryptionsalt: 5",
    "a secret that is a number": "config: {hpc:cluster: {secure: 5}}",
    "ten thousand wrong keys": "config:\n  hpc:cluster:\n" + "".join(f"    k{n}: 1\n" for n in range(10_000)),
    "a file of 5 MiB": "# " + "x" * 5 * 2**20,
}


def load(folder: Path, text: str) -> str:
    """Return what is said of a file, empty if it describes a cluster; by both readers, the commands' and the
    engine's."""
    file = folder / "Pulumi.x.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogateescape")
    began = time.process_time()
    try:
        assert isinstance(stack_config.parse(stackfile.read(folder, "x")), ClusterConfig)
        said = ""
    except CliError as error:
        said = str(error)
    try:
        Project(folder, "hpc", folder, {}).config(file, from_environment)
    except EngineError as error:
        assert_words(str(error))
    assert time.process_time() - began < SECONDS
    assert_words(said)
    return said


def assert_words(said: str) -> None:
    lines = said.split("\n")
    assert [one_line(line) for line in lines] == lines
    assert len(lines) <= LINES
    assert len(said) <= CHARACTERS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.mark.parametrize("crafted", CRAFTED)
def test_a_malicious_file_is_refused_with_a_message(folder: Path, crafted: str) -> None:
    assert load(folder, CRAFTED[crafted])


@pytest.mark.parametrize("stack", STACKS)
def test_the_projects_stack_files_read_as_with_pyyaml(folder: Path, stack: str) -> None:
    assert load(folder, STACKS[stack]) == ""
    read = stackfile.read(folder, "x").settings
    assert as_json(read) == as_json(TREES[stack]["config"])


def as_json(value: Any) -> Any:
    """As a program gets it: every key is text."""
    if isinstance(value, dict):
        return {str(key).lower() if isinstance(key, bool) else str(key): as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


def test_a_duplicate_key_is_refused_with_both_lines(folder: Path) -> None:
    text = STACKS["Pulumi.dev.yaml"].replace("    name: dev", "    name: other\n    name: dev")
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines, 1) if "name: other" in line)
    said = load(folder, text)
    assert f"line {first + 1}, column 5: the key 'name' is given again; it stands in line {first} already." in said
    assert "2 errors" in load(folder, "a: 1\na: 2\nb: {c: 1, 'c': 2}")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"), ("yes", "yes"), ("off", "off"), ("n", "n"), ("true", True), ("FALSE", False), ("tRue", "tRue"),
        ("~", None), ("Null", None), ("''", ""), ("12:30:00", "12:30:00"), ("-7", -7), ("+7", 7), ("1e3", 1000.0),
        (".5", 0.5), ("7.", 7.0), ("0x", "0x"), ("1_a", "1_a"),
        ("1.2.3", "1.2.3"), ("22.05", 22.05), ("'22.05'", "22.05"), ("2026-11", "2026-11"),
        ("'2026-11-22'", "2026-11-22"),
        ("20261215T000000Z", "20261215T000000Z"), ("10.0.0.0/8", "10.0.0.0/8"), ("=", "="), ("!!int 7", 7),
    ],
)  # fmt: skip
def test_values_are_read_as_the_pulumi_cli_reads_them(written: str, value: Any) -> None:
    """Of gopkg.in/yaml.v3, by which the CLI reads stack files: PyYAML has the rules of YAML 1.1."""
    found = yamlfile.parse(f"a: {written}\n")["a"]
    assert (found, type(found)) == (value, type(value))


# Texts of few characters: those that look like numbers are among them.
@given(st.text("0123456789eE.+-_xobn ~:", max_size=6) | st.text(max_size=20))
def test_a_text_that_is_written_is_read_again(text: str) -> None:
    for style in (True, False):
        assert yamlfile.parse(yamlfile.dump({"a": [text]}, default_flow_style=style)) == {"a": [text]}


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-22", "2026-1-2", "2026-11-22T10:00:00Z", "2026-11-22 10:00:00", "0o10", "010", "08", "0x1F", "0b11",
        "1_000", "1e400", "9" * 19, "-.inf", ".NaN", "!!int 010", "!!float 7", "<<",
    ],
)  # fmt: skip
def test_what_programs_read_differently_is_refused(written: str) -> None:
    """The CLI makes a time of a date; PyYAML reads 010 as it does, but 0o10 and 08 as texts."""
    with pytest.raises(yamlfile.YamlError, match=r"line 2, column 4: .*(Put it in quotes|constructor)"):
        yamlfile.parse(f"b: 1\na: {written}\n")


@pytest.mark.parametrize("key", ["1", "1.5", "true", "~", "2026-11-22", "[a]"])
def test_a_key_that_is_no_text_is_refused(folder: Path, key: str) -> None:
    assert "line 1, column 1: a key that is no text. Put it in quotes." in load(folder, f"{key}: a")


def test_keys_that_become_equal_count_as_duplicates(folder: Path) -> None:
    assert "line 2, column 1: the key 'on' is given again" in load(folder, "on: 1\n'on': 2")


def test_anchors_and_merges_are_read(folder: Path) -> None:
    text = "base: &base {count: 2, on: 1}\nconfig: {a: {<<: *base, count: 3}, b: [*base, *base], c: !!str 22.05}"
    file = folder / "Pulumi.x.yaml"
    file.write_text(text)
    base = {"count": 2, "on": 1}
    assert stackfile.read(folder, "x").settings == {"a": {**base, "count": 3}, "b": [base, base], "c": "22.05"}


HOSTILE: list[Any] = [
    None, True, "", "\x1b[2J", "a\u2028b", "١٢", "x" * 5000, 10**30, -1, 0, 1.5, float("inf"), float("nan"), [], {},
    [None], {"x": {"y": [1, 2]}}, "-----BEGIN OPENSSH PRIVATE KEY-----", "/etc/ssh", "0.0.0.0/0", "12:00:00", "ÄÖ",
]  # fmt: skip
PIECES = [
    "config:", "hpc:cluster:", "  ", "\n", "- ", "[", "]", "{", "}", ": ", ", ", "&a ", "*a", "<<: ", "!!float ", "!x ",
    "!!str ", "'", '"', "|\n", "# ", "? ", "\t", "platform: local", "name: dev", "1e400", "0x", "2024-99-99", "\\e",
    "~", "\u2028", "\ufeff", "%YAML 1.1\n", "---\n", "...\n", "=", "on", "nodesets", "partitions", "1:2:3", ".inf",
]  # fmt: skip
QUIET = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A stack of the project with some values and keys replaced, removed, or put elsewhere."""
    tree = copy.deepcopy(TREES[draw(st.sampled_from(sorted(TREES)))])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.sampled_from(list(places(tree))))
        within = tree
        for step in at[:-1]:
            within = within[step]
        value = draw(st.sampled_from(HOSTILE) | st.text(max_size=20) | st.integers() | st.just(within[at[-1]]))
        kind = draw(st.sampled_from(["value", "key", "gone", "more"]))
        if kind == "value" or (kind == "key" and isinstance(within, list)):
            within[at[-1]] = value
        elif kind == "gone":
            del within[at[-1]]
        elif kind == "key":
            within[draw(st.text(max_size=10))] = within.pop(at[-1])
        elif isinstance(within, list):
            within.append(value)
        else:
            within[draw(st.text(max_size=10) | st.integers())] = value
        if not list(places(tree)):
            break
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=draw(st.booleans()))


@QUIET
@given(text=mutated())
def test_a_mutated_stack_file_is_read_or_refused_with_a_message(folder: Path, text: str) -> None:
    load(folder, text)


@QUIET
@given(text=st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=40).map("".join) | st.text(max_size=200))
def test_any_text_is_refused_with_a_message(folder: Path, text: str) -> None:
    load(folder, text.encode("utf-8", "surrogateescape" if text.isascii() else "replace").decode())


@QUIET
@given(stack=st.sampled_from(sorted(STACKS)), data=st.data())
def test_a_damaged_text_is_read_or_refused_with_a_message(folder: Path, stack: str, data: st.DataObject) -> None:
    text = STACKS[stack]
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 30))
        text = text[:start] + data.draw(st.sampled_from(PIECES) | st.text(max_size=5)) + text[start + length :]
    load(folder, text.encode("utf-8", "replace").decode())
