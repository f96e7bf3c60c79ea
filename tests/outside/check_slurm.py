"""`slurm=CHECKOUT`: Slurm's source, from a checkout of SchedMD/slurm with its tags, beside what the reconcile loop, the
rendered slurm.conf and an upgrade rely on in each release: the newest tag of each."""

import re
from datetime import date
from pathlib import Path

import pytest

from cluster.catalog.slurm_releases import ENDLESS_RESUME, POWER_SAVING, SUPPORT_ENDS, UPGRADES, VERSIONS
from cluster.monitoring.files import ENDPOINTS
from tests import programs
from tests.outside.recorder import Recorder

MANAGER, POWER, MANUAL = "src/slurmctld/node_mgr.c", "src/slurmctld/power_save.c", "doc/man/man5/slurm.conf.5"
SLURMD, JOBS, CONFIG = "src/slurmd/slurmd/slurmd.c", "src/slurmctld/job_mgr.c", "src/common/read_config.c"


class Source:
    """The files of each release."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        self.tags = {version: self._newest(version) for version in VERSIONS}

    def _git(self, *words: str) -> str:
        return programs.run(["git", "-C", self.checkout, *words], check=True).stdout

    def _newest(self, version: str) -> str:
        tags = self._git("tag", "--list", "--sort=version:refname", f"slurm-{version.replace('.', '-')}-*").split()
        return [tag for tag in tags if "rc" not in tag][-1]

    def text(self, version: str, path: str) -> str:
        """A file, with each run of blanks as one blank."""
        return " ".join(self._git("show", f"{self.tags[version]}:{path}").split())


@pytest.fixture(scope="module")
def source(artifact: Path) -> Source:
    return Source(artifact)


def between(text: str, begin: str, end: str) -> str:
    """What stands between two texts."""
    assert begin in text, begin
    return text.partition(begin)[2].partition(end)[0]


def test_words_of_each_release_are_in_its_manual(source: Source, outside: Recorder) -> None:
    words = {*POWER_SAVING.always, *POWER_SAVING.some}
    for version in VERSIONS:
        # The items of its lists.
        named = set(re.findall(r"\\fB(\w+)\\fR", source.text(version, MANUAL)))
        assert words & named == set(POWER_SAVING.names(version)), version
    # What the word asked for is so without it.
    addresses = {version: "cloud_reg_addrs" in source.text(version, MANAGER) for version in VERSIONS}
    assert [version for version, there in addresses.items() if there] == ["22.05"]
    outside.did(f"words of power saving in slurm.conf(5) of {', '.join(source.tags.values())}")
    outside.holds("slurm-power-saving-words")


def test_a_node_may_be_waited_for_without_an_end(source: Source, outside: Recorder) -> None:
    endless = {version: "node_ptr->resume_timeout != INFINITE16" in source.text(version, POWER) for version in VERSIONS}
    assert tuple(version for version, there in endless.items() if there) == ENDLESS_RESUME
    outside.holds("slurm-endless-resume")


def test_a_boot_is_one_after_the_request(source: Source, outside: Recorder) -> None:
    for version in VERSIONS:
        manager, power = source.text(version, MANAGER), source.text(version, POWER)
        waiting = between(manager, "extern bool waiting_for_node_boot(node_record_t *node_ptr) {", " return false;")
        assert "IS_NODE_POWERING_UP(node_ptr)" in waiting
        assert "(node_ptr->boot_time < node_ptr->boot_req_time)" in waiting
        registers = between(manager, "extern int validate_node_specs(", "node_features_g_count")
        assert "if (waiting_for_node_boot(node_ptr) ||" in registers
        assert "NODE_STATE_POWERING_UP; node_ptr->node_state |= NODE_STATE_NO_RESPOND;" in power
        assert "boot_req_time = now;" in power
        # A boot that slurmctld has asked for is not saved for itself.
        assert "schedule_node_save" not in power
        slurmd = source.text(version, SLURMD)
        given = between(slurmd, "case 'b':", "break;")
        assert "conf->boot_time" in given
        executed = "SLURMD_RECONF" in slurmd
        assert ("SLURMD_BOOT_TIME" in given) == executed, "a reconfigure keeps it where it starts slurmd again"
    outside.did(f"registrations of nodes that boot, {len(VERSIONS)} releases")
    outside.holds("slurm-boot-after-request")


def test_power_down_force_ends_a_boot_and_resume_a_power_down(source: Source, outside: Recorder) -> None:
    for version in VERSIONS:
        manager = source.text(version, MANAGER)
        force = between(manager, "/* Force power down */", "NODE_STATE_POWER_DRAIN")
        assert "kill_running_job_by_node_" in force
        assert "node_ptr->node_state &= (~NODE_STATE_POWERING_UP);" in force
        resume = between(manager, "if (state_val == NODE_RESUME) {", "IS_NODE_FUTURE")
        ends = between(resume, "if (IS_NODE_POWERING_DOWN(node_ptr)) {", "power_save_req_time = 0;")
        assert "(~NODE_STATE_POWERING_DOWN); node_ptr->node_state |= NODE_STATE_POWERED_DOWN;" in ends
        assert "if (IS_NODE_DOWN(node_ptr)) { state_val = NODE_STATE_IDLE; _require_node_reg(node_ptr);" in resume
    outside.did(f"POWER_DOWN_FORCE and RESUME, {len(VERSIONS)} releases")
    outside.holds("slurm-power-down-force-requeues")


def test_who_signs_a_reason(source: Source, outside: Recorder) -> None:
    for version in VERSIONS:
        manager, power = source.text(version, MANAGER), source.text(version, POWER)
        own = between(manager, "void set_node_down_ptr(node_record_t *node_ptr, char *reason) {", "last_node_update")
        sets = "extern void set_node_reason(node_record_t *node_ptr, char *message, time_t time) {"
        if version == "22.05":
            assert 'xfree(node_ptr->reason); set_node_down_ptr(node_ptr, "ResumeTimeout reached");' in power
        else:
            assert "set_node_reason(node_ptr, reason, now);" in own
            own = between(manager, sets, "extern")
            assert 'xstrfmtcat(node_ptr->reason, " : %s", message);' in own
            assert 'set_node_down_ptr(node_ptr, "ResumeTimeout reached");' in power
        assert "node_ptr->reason_uid = slurm_conf.slurm_user_id;" in own
        assert "node_ptr->reason_uid = auth_uid;" in manager
    outside.did(f"reasons, {len(VERSIONS)} releases")
    outside.holds("slurm-signs-its-own-reasons")


def test_what_a_killed_slurmctld_may_have_forgotten(source: Source, outside: Recorder) -> None:
    for version in VERSIONS:
        assert "#define SAVE_MAX_WAIT 5" in source.text(version, "src/slurmctld/state_save.c")
        written = between(source.text(version, JOBS), "extern int write_data_to_file(", "extern ")
        assert "write(fd, &data[pos], nwrite)" in written
        assert "fsync" not in written
    outside.did(f"what slurmctld saves, {len(VERSIONS)} releases")
    outside.holds("slurm-state-in-rounds", "slurm-files-not-synced")


def test_a_requeued_job_is_held_back_and_a_change_of_its_start_schedules_it(source: Source, outside: Recorder) -> None:
    for version in VERSIONS:
        ends = between(source.text(version, JOBS), "void batch_requeue_fini(job_record_t *job_ptr)", "submit_time")
        assert "if (job_ptr->details->begin_time <= now) {" in ends
        lifetime = "DEFAULT_EXPIRATION_WINDOW" if version == "22.05" else "cred_expiration()"
        assert lifetime in (ends if version < "25.11" else source.text(version, JOBS))
        assert ("EXPEDITED_REQUEUE) { begin_time = 0;" in ends) == (version >= "25.11")
        requests = source.text(version, "src/slurmctld/proc_req.c")
        update = between(requests, "_slurm_rpc_update_job(slurm_msg_t", "_slurm_rpc_create_reservation(slurm_msg_t")
        assert "queue_job_scheduler();" in update
        kept = "src/slurmd/slurmd/cred_context.c" if version >= "23.11" else "src/common/slurm_cred.c"
        assert "if (cred->ctime <= j->revoked) {" in source.text(version, kept)
    outside.did(f"requeued jobs, {len(VERSIONS)} releases")
    outside.holds("slurm-requeue-gap")


def test_when_a_batch_job_is_scheduled(source: Source, outside: Recorder) -> None:
    for version in VERSIONS:
        controller = source.text(version, "src/slurmctld/controller.c")
        assert "int batch_sched_delay = 3;" in controller
        assert "if (job_sched_cnt && (difftime(now, last_sched_time) >= batch_sched_delay)) {" in controller
    outside.did(f"batch_sched_delay, {len(VERSIONS)} releases")
    outside.holds("slurm-batch-delay")


def test_a_pass_of_the_scheduler_ends_after_two_seconds(source: Source, outside: Recorder) -> None:
    for version in VERSIONS:
        scheduler = source.text(version, "src/slurmctld/job_scheduler.c")
        assert "sched_timeout = MIN(sched_timeout, 2);" in scheduler
        assert "if ((time(NULL) - sched_start) >= sched_timeout) {" in scheduler
    outside.did(f"max_sched_time, {len(VERSIONS)} releases")
    outside.holds("slurm-scheduler-pass")


def test_names_of_cloud_nodes_are_resolved_again(source: Source, outside: Recorder) -> None:
    cached = {version: "if (!p->is_cloud)" in source.text(version, CONFIG) for version in VERSIONS}
    assert [version for version, there in cached.items() if not there] == ["22.05"]
    assert "if (!no_addr_cache)" in source.text("22.05", CONFIG)
    outside.did(f"addresses of cloud nodes, {len(VERSIONS)} releases")
    outside.holds("slurm-cloud-names-are-resolved-again")


def test_releases_take_over_from_those_of_the_table(source: Source, outside: Recorder) -> None:
    page = source.text(max(VERSIONS), "doc/html/upgrades.shtml").partition('id="compatibility_window"')[2]
    rows = re.findall(r"<td>(\d\d\.\d\d)</td> <td>(\w+ \d{4}) .*?</td> <td>(.*?)</td>", page)
    assert {release for release, _, _ in rows} >= set(SUPPORT_ENDS)
    for release, month, before in rows:
        if release in UPGRADES:
            assert UPGRADES[release] == tuple(before.split(", ")), release
            # The row of 26.05 says November 2028 and 18 months; the earlier one is in the catalog.
            assert release == "26.05" or f"{date.fromisoformat(SUPPORT_ENDS[release]):%B %Y}" == month
    outside.did(f"the table of upgrades.shtml, {len(rows)} rows")
    outside.holds("slurm-upgrade-window")


def test_metrics_of_slurmctld_itself(source: Source, outside: Recorder) -> None:
    for version in VERSIONS:
        own = version >= "25.11"
        assert ('{"MetricsType", S_P_STRING}' in source.text(version, CONFIG)) == own
        if own:
            http = source.text(version, "src/slurmctld/http.c")
            assert [page for page in ENDPOINTS if f'HTTP_REQUEST_GET, "/metrics/{page}"' not in http] == []
            hides = "slurm_conf.private_data" if version == "25.11" else "slurm_conf.metrics_auth"
            assert hides in between(http, "_check_metrics_authorized(http_con_t", "extern int")
    crash = "Fix slurmctld crash when querying the metrics endpoint after a partition is deleted"
    assert crash in between(source.text("25.11", "CHANGELOG/slurm-25.11.md"), "25.11.5", "## Changes in 25.11.4")
    page = " ".join(source.text(max(VERSIONS), "doc/html/metrics.shtml").split())
    assert "By default, metrics endpoints do not require authentication." in page
    outside.did("metrics of slurmctld, 25.11 and later")
    outside.holds("slurm-own-metrics")


def test_a_boot_time_is_a_difference_of_whole_seconds(source: Source, outside: Recorder) -> None:
    for version in VERSIONS:
        registers = source.text(version, JOBS if version >= "25.05" else MANAGER)
        assert "node_ptr->boot_time = now - reg_msg->up_time;" in registers
        assert "uint32_t up_time;" in source.text(version, "src/common/slurm_protocol_defs.h")
    outside.did(f"boot times, {len(VERSIONS)} releases")
    outside.holds("slurm-boot-time-rounded")


def test_nodes_are_asked_before_they_are_set_down(source: Source, outside: Recorder) -> None:
    for version in VERSIONS:
        pings = between(source.text(version, "src/slurmctld/ping_nodes.c"), "void ping_nodes", "set_node_down_ptr")
        assert "(last_ping_time == (time_t) 0)) { node_dead_time = (time_t) 0; } else {" in pings
        assert "node_dead_time = last_ping_time - last_ping_timeout;" in pings
        assert "(node_ptr->last_response <= node_dead_time)" in pings
        loop = source.text(version, "src/slurmctld/controller.c")
        assert "#define MIN_CHECKIN_TIME 3 " in loop
        assert "ping_interval = slurm_conf.slurmd_timeout / 3;" in loop
    outside.did(f"ping_nodes, {len(VERSIONS)} releases")
    outside.holds("slurm-nodes-outlive-a-controller")


def test_the_end_of_a_batch_job_waits_for_slurmctld(source: Source, outside: Recorder) -> None:
    for version in VERSIONS:
        text = source.text(version, "src/slurmd/slurmstepd/mgr.c")
        always = "Retry batch complete RPC, send to slurmctld indefinitely." in text
        assert always == (version >= "24.05")
        assert always or "#define MAX_RETRY 240 " in text
        assert "#define RETRY_DELAY 15 " in text
    outside.did(f"the end of batch jobs, {len(VERSIONS)} releases")
    outside.holds("slurm-batch-end-is-sent-again")


def test_backfill_limits_jobs_without_a_limit_to_a_year(source: Source, outside: Recorder) -> None:
    for version in VERSIONS:
        backfill = source.text(version, "src/plugins/sched/backfill/backfill.c")
        assert re.search(r"max_time == INFINITE\) part_time_limit = YEAR_MINUTES;", backfill)
        started = between(backfill, "} else if (orig_time_limit == NO_VAL) {", "limit_set.time = 1;")
        assert "job_ptr->time_limit = comp_time_limit;" in started
    outside.did(f"limits by the backfill scheduler, {len(VERSIONS)} releases")
    outside.holds("slurm-backfill-year")
