"""The end of a preview: a line for each part, sums, unknown and old prices, and the difference of an edit."""

from datetime import date

from cluster.cost.estimate import estimate
from cluster.cost.text import preview, table, totals
from tests.clouds import EXASCALER, google
from tests.cluster import stacks

TODAY = date(2026, 11, 28)


def test_the_end_of_a_preview_is_as_reviewed(reviewed):
    names = ("classic", "a3mega", "a3mega-managed", "a4", "nebius")
    reviewed("cost/preview", {name: "\n".join(preview(estimate(stacks.config(name)), None, TODAY)) for name in names})


def test_the_difference_of_an_edit_is_part_by_part():
    before, after = estimate(google()), estimate(google(nodesets={"cpu": {"count": 5}}, storage={"lustre": EXASCALER}))
    lines = list(totals(after, before, TODAY))
    at = next(number for number, line in enumerate(lines) if line.startswith("this edit: +"))
    changed = lines[at + 1 : -1]
    assert "  license of EXAScaler, exascaler-license: 0.00 -> price unknown a month" in changed
    assert any(line.startswith("  nodeset cpu, n2-standard-2: ") for line in changed)
    assert not any(line.startswith("  controller") for line in changed)
    assert not any(line.startswith("this edit") for line in totals(after, after, TODAY))


def test_the_difference_of_an_edit_says_what_is_not_in_it():
    before = estimate(google())
    for after, line in (
        (google(storage={"lustre": EXASCALER}), "this edit: +8.72 an hour, +6,366 a month and what is unknown"),
        (
            google(pricing={"currency": "EUR", "exchange_rate": 0.5}),
            "this edit: prices were in USD, and are not compared",
        ),
    ):
        assert line in totals(estimate(after), before, TODAY)


def test_every_part_is_a_line():
    for name in stacks.EVERY:
        found = estimate(stacks.config(name))
        assert len(table(found)) == len(found.rows) + 1


def test_old_prices_are_named():
    lines = totals(estimate(google()), None, date(2028, 1, 1))
    (old,) = [line for line in lines if line.startswith("list prices of more than 180 days")]
    assert "pd-ssd" in old
    assert "2026-08-20" in old
