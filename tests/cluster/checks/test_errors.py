"""Bad input is refused in words: where it stands, what was given, what is allowed with an example, what to do."""

from collections.abc import Callable, Mapping

from tests.cluster.checks import refused_google, refused_machines, refused_slurm, refused_users
from tests.cluster.stacks import cloud_findings, findings

LOCAL = refused_machines.CASES | refused_slurm.CASES | refused_users.CASES
TWO_ENDS = ("accounts in a circle", "QOS that preempt each other")
"""Circles have two ends to break them at."""
Reviewed = Callable[[str, Mapping[str, str]], None]


def test_one_mistake_is_one_error_in_words(reviewed: Reviewed) -> None:
    """A second finding would send its reader to look for a second mistake."""
    found = {case: findings(**changes) for case, changes in LOCAL.items()}
    assert [case for case, every in found.items() if len(every) != (2 if case in TWO_ENDS else 1)] == []
    reviewed("refused/local", {case: "\n".join(map(str, every.values())) for case, every in found.items()})


def test_one_mistake_on_google_cloud_is_one_error_in_words(reviewed: Reviewed) -> None:
    found = {case: cloud_findings(changes) for case, changes in refused_google.CASES.items()}
    assert [case for case, every in found.items() if len(every) != 1] == []
    reviewed("refused/google", {case: "\n".join(map(str, every.values())) for case, every in found.items()})
