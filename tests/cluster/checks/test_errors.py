"""Bad input is refused in words: where it stands, what was given, what is allowed with an example, what to do."""

import pytest

from cluster.findings import Finding
from tests.cluster.checks import refused_google, refused_machines, refused_slurm, refused_users
from tests.cluster.stacks import cloud_findings, findings

LOCAL = refused_machines.CASES | refused_slurm.CASES | refused_users.CASES
TWO_ENDS = ("accounts in a circle", "QOS that preempt each other")
"""Circles have two ends to break them at."""


def check(found: dict[str, Finding], words: str) -> None:
    """The finding at its place has the words of the case."""
    where, given, allowed, todo = words.split(" | ")
    assert where in found
    finding = found[where]
    assert (given in finding.given, allowed in finding.allowed, todo in finding.todo) == (True, True, True), finding


@pytest.mark.parametrize("case", LOCAL)
def test_one_mistake_is_one_error_in_words(case: str) -> None:
    """A second finding would send its reader to look for a second mistake."""
    changes, words = LOCAL[case]
    found = findings(**changes)
    check(found, words)
    assert len(found) == (2 if case in TWO_ENDS else 1)


@pytest.mark.parametrize("case", refused_google.CASES)
def test_one_mistake_on_google_cloud_is_one_error_in_words(case: str) -> None:
    changes, words = refused_google.CASES[case]
    found = cloud_findings(changes)
    check(found, words)
    assert len(found) == 1
