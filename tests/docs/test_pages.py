"""What the pages of docs and README.md say can be followed: links resolve, paths exist, commands parse."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from cli.app import app
from tests.docs.commands import PAGES, commands

ROOT = Path(__file__).parents[2]
FOLDERS = "bench|cli|cluster|components|docs|engine|scripts|tests"

PATH = re.compile(rf"(?<![\w./-])((?:{FOLDERS})/[\w.*/-]*\w|Pulumi\.[\w-]+\.yaml|requirements[\w-]*\.txt)(?![\w*])")
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
NOT_OURS = {
    "scripts/our-tools.sh",
    "scripts/gpu-check.sh",
    "scripts/NAME",
    "scripts/rxdm.staged",
    "scripts/rxdm.orig",
    "scripts/rxdm.json",
    "Pulumi.STACK.yaml",
    "Pulumi.staging.yaml",
    "Pulumi.prod.yaml",
}
"""Paths that a reader's own project or a machine has, not this one."""

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, by the rule that GitHub follows."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@each_page
def test_links_resolve(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@each_page
def test_paths_exist(page: Path) -> None:
    text = page.read_text()
    created = re.findall(r"^# (\S+): new$", text, re.MULTILINE)  # by the page's own examples
    missing = [
        path
        for path in dict.fromkeys(PATH.findall(text))
        if path not in {*NOT_OURS, *created} and "NAME" not in path and not any(ROOT.glob(path.rstrip("/")))
    ]
    if page.name != "assumptions.md":  # its tables name sources, in repositories of others
        assert not missing


def command_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Every `./hpc` command that a page shows, and whether it is complete: those of code blocks are; those in the text
    may leave out arguments."""
    for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            shown = line.strip().removeprefix("$ ")
            if language in ("console", "sh") and shown.startswith("./hpc "):
                yield shown, True
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`(\./hpc[^`]+)`", prose):
        yield " ".join(code.replace("\\|", "|").split()), False


def alternatives(line: str) -> Iterator[list[str]]:
    """A synopsis such as `./hpc preview|up STACK [--yes]` as the command lines it stands for, optional parts given."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="><;&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("><;&") or word == "|":
            break
        words.append(word)
    if "--" not in words:
        words = [word.strip("[]") for word in words if word.strip("[]") != "..."]
        words = [word.removesuffix("...") for word in words]
    choices = [[]]
    for word in words[1:]:
        among = word.split("|") if "|" in word and "--" not in choices[0] and not word.startswith("**") else [word]
        choices = [[*line, choice] for line in choices for choice in among]
    return iter(choices)


def parse(words: list[str]) -> None:
    """Parse a command line as `./hpc` does, without running it. Raises TyperException."""
    command = app
    parent, name = None, "./hpc"
    while isinstance(command, TyperGroup):
        parent = typer.Context(command, info_name=name, parent=parent)
        if not words:
            return  # the help of a group
        found = command.get_command(parent, words[0])
        if found is None:
            raise typer.TyperException(f"{name} has no command {words[0]}")
        name, command, words = words[0], found, words[1:]
    if words:
        command.make_context(name, list(words), parent=parent)


@each_page
def test_commands_parse(page: Path) -> None:
    wrong = []
    for line, complete in dict.fromkeys(command_lines(page.read_text())):
        for words in alternatives(line):
            try:
                parse(words)
            except typer.TyperException as error:
                if complete or not str(error).startswith("Missing parameter"):
                    wrong.append(f"{line}: {error}")
    assert not wrong


@pytest.mark.parametrize("line", ["./hpc upp dev", "./hpc up dev --no-such", "./hpc nodes|nods dev"])
def test_commands_that_do_not_exist_are_found(line: str) -> None:
    *_, last = alternatives(line)
    with pytest.raises(typer.TyperException):
        parse(last)


def test_no_page_is_long_and_readme_is_short() -> None:
    long = {str(page.relative_to(ROOT)): len(page.read_text().splitlines()) for page in PAGES}
    assert {name: lines for name, lines in long.items() if lines > 400} == {}
    assert long["README.md"] < 120


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text())}
    parts = {page for page in PAGES if page.parent.name in ("decisions", "stack-file") and page.name != "README.md"}
    assert {*PAGES} - named - parts == {ROOT / "README.md", index}


def test_commands_are_run_by_a_test_or_say_what_they_need() -> None:
    """Both are counted: more may run, fewer may need what is not here."""
    counts = Counter("needs" if command.kind == "needs" else "run" for command in commands())
    assert counts["run"] >= 71
    assert counts["needs"] <= 94


def test_tests_that_run_commands_have_these_commands() -> None:
    named = {(command.what, command.line) for command in commands() if command.kind == "run by"}
    assert named
    for file, line in named:
        words = [word for word in line.split() if word.isalpha()]
        assert any(word in (ROOT / file).read_text() for word in words[:2]), (file, line)


def test_what_commands_need_is_one_of_few_things() -> None:
    needs = {command.what for command in commands() if command.kind == "needs"}
    ours = {"this checkout", "artifacts of others", "a copy of this repository"}
    assert needs <= {"Google Cloud", "Nebius", "GPUs", "the Pulumi CLI", "an ssh_config", *ours}


def test_readme_has_the_layout_the_components_and_how_they_are_tested():
    """Who reviews the program begins there: each top folder with code, each platform's components, the mocks."""
    text = (ROOT / "README.md").read_text()
    table = text[text.index("## The program") : text.index("## Documentation")]
    assert "One stack for each environment" in table
    named = set(re.findall(r"`(\w+)`", table))
    for row in table.splitlines():
        folders = re.findall(r"`(components/\w+)`", row)
        code = "".join(file.read_text() for folder in folders for file in (ROOT / folder).rglob("*.py"))
        for name in re.findall(r"`([A-Z]\w+)`", row):
            assert re.search(rf'"hpc:\w+:{name}"', code), f"{name} is no type of a component of {folders}"
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"components"}
    assert {*packages, "scripts"} <= named
    platforms = {path.parent.name for path in (ROOT / "components").glob("*/__init__.py")}
    assert platforms == {*re.findall(r"`components/(\w+)`", table)}
    assert "tests/harness.py" in table
    assert "mocks" in table
