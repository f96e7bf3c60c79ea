"""The page of the reconcile loop shows the rules of its program."""

from reconcile import decision

from tests.architecture.test_sources import ROOT

PAGE = ROOT / "docs" / "reference" / "reconcile.md"
BEGIN, END = "<!-- rules -->\n", "<!-- end of rules -->"


def rendered() -> str:
    rows = [(f"`{rule}`{'*' if decision.BY_ID[rule].counts else ''}", *rest) for rule, *rest in decision.table()]
    lines = [f"| {' | '.join(row)} |" for row in (decision.COLUMNS, ["---"] * len(decision.COLUMNS), *rows)]
    return "\n" + "\n".join(lines) + "\n\n"


def test_the_page_has_the_table_of_the_program(update_golden):
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    wanted = head + BEGIN + rendered() + END + rest.partition(END)[2]
    if update_golden:
        PAGE.write_text(wanted)
    assert text == wanted or update_golden, "run: pytest --update-golden tests/docs/test_reconcile.py"


def test_rules_can_be_read():
    assert [row for row in decision.table() if not all(row) or "|" in "".join(row)] == []
