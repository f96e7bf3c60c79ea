"""Bad input for Nebius is refused in words, once: where it stands, what was given, what is allowed, what to do."""

import pytest

from cluster.findings import Level
from cluster.load import find_warnings
from tests.cluster.nebius.clusters import findings, nebius
from tests.cluster.stacks import cases, config


def test_it_is_refused_once_with_what_to_do(reviewed) -> None:
    found = {case: findings(**changes) for case, changes in cases("nebius").items()}
    assert [case for case, every in found.items() if len(every) != 1] == []
    reviewed("refused/nebius", {case: "\n".join(map(str, every.values())) for case, every in found.items()})


@pytest.mark.parametrize("case", cases("nebius-accepted"))
def test_it_is_accepted(case: str) -> None:
    assert nebius(**cases("nebius-accepted")[case]).platform == "nebius"


def test_the_stack_that_is_here_to_start_from_has_no_warning_but_of_soperators_own_slurm() -> None:
    found = [warning.id for warning in find_warnings(config("nebius")) if warning.level is not Level.INFO]
    assert found == ["vulnerable"]


def test_it_is_warned_of(reviewed) -> None:
    found = {case: find_warnings(nebius(**changes)) for case, changes in cases("nebius-warned").items()}
    reviewed("refused/nebius-warned", {case: "\n".join(map(str, every)) for case, every in found.items()})
