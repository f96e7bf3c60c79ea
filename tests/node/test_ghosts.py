"""A job is taken for dead exactly when a machine of its own has booted since it began."""

from jobs.lost_jobs import Job, lost

BEFORE, BOOT, AFTER = "2026-01-02T03:04:05", "2026-01-02T03:04:06", "2026-01-02T03:04:07"


def test_a_job_from_before_a_boot_of_any_of_its_nodes_is_one():
    job = Job("7", BEFORE, ("n0", "n1"))
    assert lost([job], {"n0": BEFORE, "n1": BOOT}) == [job]


def test_a_job_that_began_with_the_boot_or_later_lives():
    jobs = [Job("7", BOOT, ("n0",)), Job("8", AFTER, ("n0",))]
    assert lost(jobs, {"n0": BOOT}) == []


def test_a_boot_elsewhere_or_an_unknown_one_means_nothing():
    assert lost([Job("7", BEFORE, ("n0",))], {"n1": BOOT}) == []
