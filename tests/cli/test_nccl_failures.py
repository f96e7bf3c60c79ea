"""`nccl run` when its job fails, or its log can't be saved."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Ended, Hpc
from tests.cli.test_nccl_commands import LOG, Site, site  # noqa: F401 - a fixture


class TestFailures:
    def run(self, hpc: Hpc, site: Site, *more: str) -> Ended:  # noqa: F811
        site.built()
        return hpc("nccl", "run", "a3mega", *more)

    def test_a_job_that_fails_leaves_its_log_here(self, hpc: Hpc, site: Site):  # noqa: F811
        site.states("FAILED", code="1:0")
        site.log("==> warm-up\nthe warm-up failed\n")
        ended = self.run(hpc, site)
        assert ended.code == 1
        assert "job 7 ended as FAILED (exit code 1:0) on n-[0-1]. Its log is nccl-a3mega-all_gather-7.log" in ended.err
        assert Path("nccl-a3mega-all_gather-7.log").exists()

    def test_wrong_results_are_reported_although_the_job_failed(self, hpc: Hpc, site: Site):  # noqa: F811
        """nccl-tests ends with exit code 1 then (src/common.cu)."""
        site.states("FAILED", code="1:0")
        site.log(LOG.replace("    N/A    347.0", "     12    347.0").replace("values : 0 OK", "values : 12 FAILED"))
        ended = self.run(hpc, site, "--check")
        assert ended.code == 1
        assert ended.err.rstrip().endswith(
            "error: job 7 ended as FAILED (exit code 1:0) on n-[0-1]. What it measured until then:"
        )
        assert "Result: fail" in ended.out
        assert "Wrong results: 12 wrong elements at 8 MiB" in ended.out

    def test_one_that_was_out_of_time_fails_with_the_rows_that_it_had(self, hpc: Hpc, site: Site):  # noqa: F811
        site.states("TIMEOUT", code="0:15")
        site.log(LOG.partition("  8589934592")[0])
        ended = self.run(hpc, site, "--json")
        assert ended.code == 1
        document = json.loads(ended.out)
        assert [one["size"] for one in document["runs"][0]["rows"]] == [8 << 20]
        assert "nccl-truncated" in [one["id"] for one in document["findings"]]
        assert "job 7 ended as TIMEOUT" in ended.err

    @pytest.mark.parametrize("name", ["none/x.log", "/proc/x/x.log"])
    def test_a_log_that_can_not_be_saved_submits_nothing(self, hpc: Hpc, site: Site, name: str):  # noqa: F811
        ended = self.run(hpc, site, "--output", name)
        assert ended.code == 1
        assert "is no folder that you can write to. Name another file with --output." in ended.err
        assert not site.submitted

    def test_one_that_never_ran_has_no_log(self, hpc: Hpc, site: Site):  # noqa: F811
        site.states("CANCELLED")
        ended = self.run(hpc, site)
        assert ended.err.endswith("ended as CANCELLED (exit code 0:0) on n-[0-1], without a log.\n")
        assert list(Path().iterdir()) == []
