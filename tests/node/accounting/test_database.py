"""Settings of the accounting database."""

import pytest
from accounting import database
from system.host import SetupError


def test_the_buffer_pool_fits_the_machine():
    for memory, pool in ((64, 4096), (16, 2048), (4, 512), (1, 512)):
        assert f"innodb_buffer_pool_size = {pool}M" in database.settings(memory << 30)


def test_a_password_with_other_characters_is_refused():
    with pytest.raises(SetupError, match="letters and digits"):
        database.statements("x'; DROP DATABASE slurm_acct_db; --")
