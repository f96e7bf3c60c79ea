"""Errors about a stack file: place, given value, allowed values with an example, and what to do. And their ids, by
which people and programs refer to a rule: none is renamed, and none stands for two rules."""

import ast
from collections import Counter
from functools import cache

from tests.cluster.stacks import ALICE, ROOT, cases, cloud_findings, findings

TWO_ENDS = ("accounts in a circle", "QOS that preempt each other")
"""Circles have two ends to break them at."""


def test_mistakes_in_limits_are_found_together() -> None:
    found = findings(
        users=[{**ALICE, "limits": {"grp_tres": {"gres/gpu": 8}}}],
        accounting={"accounts": [{"name": "a", "limits": {"grp_tres_hours": {"node": 9}}}], "enforce": ["limits"]},
    )
    assert [where.removeprefix("hpc:cluster.") for where in found] == [
        "users[0].limits.grp_tres.gres/gpu",
        "accounting.enforce",
        "accounting.accounts[0].limits.grp_tres_hours",
    ]


def test_one_mistake_is_one_error(reviewed) -> None:
    """With a second finding, a reader would search for a second mistake."""
    found = {case: findings(**changes) for case, changes in cases("local").items()}
    assert [case for case, every in found.items() if len(every) != (2 if case in TWO_ENDS else 1)] == []
    reviewed("refused/local", {case: "\n".join(map(str, every.values())) for case, every in found.items()})


def test_one_mistake_on_google_cloud_is_one_error(reviewed) -> None:
    found = {case: cloud_findings(changes) for case, changes in cases("google").items()}
    assert [case for case, every in found.items() if len(every) != 1] == []
    reviewed("refused/google", {case: "\n".join(map(str, every.values())) for case, every in found.items()})


SEVERAL = {"customize-protected": 3, "nccl-truncated": 2, "slurm-end-of-support": 2, "value-invalid": 2}
"""Ids in several places of the code."""


@cache
def _ids() -> list[str]:
    return [
        str(value.value)
        for file in sorted((ROOT / "cluster").rglob("*.py"))
        if "observe" not in file.parts
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        for value in _of_call(call, call.func.id)
        if isinstance(value, ast.Constant)
    ]


def _of_call(call: ast.Call, function: str) -> list[ast.expr]:
    """Return where a call has an id: `_Row` of NCCL's results and `taken` of Nebius's names first, Finding as `id`;
    functions of cluster/findings.py make findings for several rules."""
    if function in ("_Row", "taken"):
        return call.args[:1]
    return [keyword.value for keyword in call.keywords if keyword.arg == ("id" if function == "Finding" else "rule")]


def test_ids_of_findings_stay(golden) -> None:
    """A new rule adds its own."""
    golden("refused/ids.txt", "".join(f"{id_}\n" for id_ in sorted(set(_ids()))))


def test_each_id_belongs_to_one_rule() -> None:
    assert {id_: times for id_, times in Counter(_ids()).items() if times > 1} == SEVERAL
