"""The page of the reconcile loop shows the rules of its program."""

from reconcile import decision


def test_the_page_has_the_table_of_the_program(table_in_page):
    rows = [(f"`{rule}`{'*' if decision.BY_ID[rule].counts else ''}", *rest) for rule, *rest in decision.table()]
    table_in_page("reference/reconcile.md", "rules", [decision.COLUMNS, *rows])


def test_rules_can_be_read():
    assert [row for row in decision.table() if not all(row) or "|" in "".join(row)] == []
