"""SQL that carries records of jobs over a restore; tests/e2e/test_day_two.py runs it. Settings of the database."""

import re

import pytest
from accounting import backup, database
from system.host import SetupError

ROWS = "3,5"


def test_rows_of_current_jobs_are_picked():
    rows = backup.pick_rows("dev", "live", "fresh", [(7, 100), (8, 200)])
    assert "(a.id_job, a.time_submit) IN ((7, 100), (8, 200))" in rows
    without = backup.pick_rows("dev", "live", "fresh", [])
    assert "IN (" not in without
    assert "a.time_end = 0 OR b.time_end = 0" in without


def test_rows_move_in_every_table():
    statements = backup.free_row_numbers("dev", "live", "fresh", ROWS)
    moved = {match[1] for text in statements if (match := re.match(r"UPDATE fresh\.`dev_(\w+)`", text))}
    assert moved == set(backup.JOB_TABLES)


def test_only_records_of_unknown_jobs_are_closed():
    assert "NOT IN ((7, 100))" in backup.close_unknown("dev", "fresh", 500, [(7, 100)])
    assert "NOT IN" not in backup.close_unknown("dev", "fresh", 500, [])
    assert "GREATEST(time_start, 500)" in backup.close_unknown("dev", "fresh", 500, [])


def test_ids_are_translated_in_carried_rows_only():
    assert all(f"job_db_inx IN ({ROWS})" in text for text in backup.translate_ids("dev", "live", "fresh", ROWS))


def test_no_row_number_is_used_twice():
    assert backup.set_next_row("fresh.`t`", 12) == "ALTER TABLE fresh.`t` AUTO_INCREMENT = 12;"
    assert str(backup.MARGIN) in backup.set_next_row("fresh.`t`", 0)


def test_resources_keep_their_counts_with_other_ids():
    assert backup.translate_resources("1=2,4=1,1001=3,1002=3", {"1": "1", "4": "4", "1001": "1002"}) == "1=2,4=1,1002=3"
    assert backup.translate_resources("", {}) == ""


class TestNumbersOfJobs:
    def test_next_job_id_is_parsed(self):
        assert backup.next_job_id("MpiParams  = (null)\nNEXT_JOB_ID             = 42\n") == 42
        assert backup.next_job_id("") == 0

    def test_slurm_conf_is_restored(self):
        conf = "ClusterName=dev\nNodeName=n\n"
        changed = backup.with_first_job_id(conf, 39)
        assert changed.endswith("\nFirstJobId=39\n")
        assert backup.without_first_job_id(changed) == conf
        # Also after a run that was cut off.
        assert backup.with_first_job_id(changed, 40).count("FirstJobId") == 1
        assert backup.without_first_job_id(conf) == conf


def test_the_buffer_pool_fits_the_machine():
    for memory, pool in ((64, 4096), (16, 2048), (4, 512), (1, 512)):
        assert f"innodb_buffer_pool_size = {pool}M" in database.settings(memory << 30)


def test_a_password_with_other_characters_is_refused():
    with pytest.raises(SetupError, match="letters and digits"):
        database.statements("x'; DROP DATABASE slurm_acct_db; --")
