"""Quotas of a project beside what a stack uses of them."""

from typing import Any

import pytest

from cluster.cloud_checks import CloudOutcome, CloudRow
from cluster.platforms.gcp.cloud_quotas import NETWORKS
from components.gcp import cloud_checks
from tests.clouds import A3, google
from tests.gcp.test_cloud_checks import a3, everything, healthy_for_everything, row, wrong
from tests.lab.google.apis import Answer, GoogleApis, on, quota_metric, quotas


class TestAmounts:
    """Quotas that Compute Engine answers, with what is used."""

    def ask(self, apis: GoogleApis, method: str, answer: Answer, part: str = "") -> list[CloudRow]:
        apis.rules[:0] = [on(method, answer, part), healthy_for_everything]
        return wrong(cloud_checks.check(everything()))

    def test_a_quota_that_is_too_small(self, apis: GoogleApis) -> None:
        # Controller and login machine beside the nodes.
        answer = 200, {"quotas": quotas(of_project=False, N2_CPUS=10, INSTANCES=5)}
        rows = self.ask(apis, "compute.regions.get", answer)
        assert {row.asked for row in rows if row.outcome is CloudOutcome.WRONG} >= {"quota INSTANCES"}
        seen = row(rows, "quota", "INSTANCES")
        assert seen.seen.endswith(" asked, 0 used of 5")
        assert "ask for more INSTANCES in us-central1: https://console.cloud.google.com/iam-admin/quotas" in seen.todo

    def test_spot_machines_take_the_quota_of_others_where_they_have_none(self, apis: GoogleApis) -> None:
        limits = {"PREEMPTIBLE_NVIDIA_T4_GPUS": 0, "NVIDIA_T4_GPUS": 0}
        rows = self.ask(apis, "compute.regions.get", (200, {"quotas": quotas(of_project=False, **limits)}))
        (seen,) = rows
        assert (seen.asked, seen.seen) == (
            "quota PREEMPTIBLE_NVIDIA_T4_GPUS",
            "1 asked, 0 used of 0 (NVIDIA_T4_GPUS)",
        )

    @pytest.mark.parametrize(("least", "outcome"), [(0, CloudOutcome.NOT_ASKED), (2, CloudOutcome.WRONG)])
    def test_a_quota_that_only_elastic_nodes_exceed_stops_nothing(
        self, apis: GoogleApis, least: int, outcome: CloudOutcome
    ) -> None:
        apis.rules.insert(0, on("compute.regions.get", (200, {"quotas": quotas(of_project=False, N2_CPUS=8)})))
        nodesets = {"cpu": {"machine_type": "n2-standard-8", "count": {"min": least, "max": 64}}}
        (seen,) = wrong(cloud_checks.check(google(nodesets=nodesets)))
        assert (seen.asked, seen.outcome) == ("quota N2_CPUS", outcome)
        assert seen.seen.startswith("512 asked, 0 used of 8")
        assert seen.seen.endswith(": not all nodes that are or were elastic can come") is (least == 0)

    @pytest.mark.parametrize(
        ("limit", "outcome", "seen"),
        [
            (32, CloudOutcome.OK, "32 asked, 0 used of 32"),
            # Up to two of the four static nodes exist already, as elastic ones, and count as used.
            (16, CloudOutcome.NOT_ASKED, "32 asked, 0 used of 16: not all nodes that are or were elastic can come"),
            (15, CloudOutcome.WRONG, "32 asked, 0 used of 15"),
        ],
    )
    def test_elastic_nodes_that_become_static_may_not_exist_yet(
        self, apis: GoogleApis, limit: int, outcome: CloudOutcome, seen: str
    ) -> None:
        apis.rules.insert(0, on("compute.regions.get", (200, {"quotas": quotas(of_project=False, N2_CPUS=limit)})))
        elastic, static = (
            google(nodesets={"cpu": {"machine_type": "n2-standard-8", "count": count}})
            for count in ({"min": 0, "max": 2}, 4)
        )
        found = row(cloud_checks.check(static, elastic), "quota", "N2_CPUS")
        assert (found.outcome, found.seen) == (outcome, seen)

    def test_the_builder_of_an_image_is_gone_before_machines_boot_from_it(self, apis: GoogleApis) -> None:
        cpus = {"controller": {"machine_type": "c2-standard-4"}, "login": {"machine_type": "c2-standard-4"}}
        nodesets = {"cpu": {"machine_type": "c2-standard-4", "count": 1}}
        running = google(**cpus, nodesets=nodesets)
        asked = {row.asked: row.seen.partition(" ")[0] for row in cloud_checks.check(running) if row.id == "quota"}
        assert (asked["quota C2_CPUS"], asked["quota INSTANCES"]) == ("12", "3")
        # Another image is baked beside the machines, which are there.
        for edit, expected in (
            ({"snapshot": "20260901T000000Z"}, {"C2_CPUS 8", "INSTANCES 1", "SSD_TOTAL_GB 200"}),
            ({}, set()),
        ):
            rows = cloud_checks.check(google(**cpus, nodesets=nodesets, image=edit), running)
            found = {f"{row.asked} {row.seen.partition(' ')[0]}" for row in rows if row.id == "quota"}
            assert found == {f"quota {text}" for text in expected}
        apis.rules.insert(0, on("compute.regions.get", (200, {"quotas": quotas(of_project=False, C2_CPUS=4)})))
        edited = google(**cpus, nodesets=nodesets, image={"snapshot": "20260901T000000Z"})
        assert row(cloud_checks.check(edited, running), "quota", "C2_CPUS").outcome is CloudOutcome.WRONG

    def test_firewall_rules_of_a_shared_network_count_in_its_project(self, apis: GoogleApis) -> None:
        (seen,) = self.ask(
            apis, "compute.projects.get", (200, {"quotas": quotas(of_project=True, FIREWALLS=2)}), "host"
        )
        # Those of all machines, of Identity-Aware Proxy, and of Managed Lustre; each GPU network has one.
        assert (seen.asked, seen.seen) == ("quota FIREWALLS of the network's project", "3 asked, 0 used of 2")
        assert seen.todo.endswith("?project=host-project")
        (own,) = [row.seen for row in cloud_checks.check(everything()) if row.asked == "quota FIREWALLS"]
        assert own == "8 asked, 0 used of 1,000,000"

    def test_addresses_are_of_the_region_and_not_those_of_the_project_which_are_global(self, apis: GoogleApis) -> None:
        everywhere = {metric: {"metric": metric, "limit": 1, "usage": 1} for metric in NETWORKS["public addresses"]}
        of_project = [*quotas(of_project=True), *everywhere.values()]
        assert self.ask(apis, "compute.projects.get", (200, {"quotas": of_project})) == []

    def test_a_quota_that_google_does_not_answer(self, apis: GoogleApis) -> None:
        rows = self.ask(apis, "compute.projects.get", (200, {"quotas": []}))
        assert {row.outcome for row in rows} == {CloudOutcome.NOT_ASKED}
        assert "Google's answer has no such quota" in rows[0].seen

    def test_what_runs_already_is_not_asked_for_again(self, apis: GoogleApis) -> None:
        apis.rules.insert(0, healthy_for_everything)
        rows = cloud_checks.check(everything(), everything())
        assert "quota" not in {row.id for row in rows}


class TestLimits:
    """Quotas that only Service Usage answers: their limits, without what is used."""

    GET, LIST = (f"serviceusage.services.consumerQuotaMetrics.{verb}" for verb in ("get", "list"))

    def test_no_family_has_room(self, apis: GoogleApis) -> None:
        apis.rules.insert(0, on(self.GET, (200, quota_metric("NVIDIA_H100_MEGA", 8))))
        seen = row(cloud_checks.check(a3()), "quota", "GPUs of ")
        text = "16 asked; limits in us-central1: NVIDIA_H100_MEGA 8"
        assert (seen.outcome, seen.seen) == (CloudOutcome.WRONG, text)
        assert seen.todo.startswith("ask for more in us-central1: https://console.cloud.google.com/iam-admin/quotas")
        elastic = google(nodesets={"gpu": {**A3, "count": {"min": 1, "max": 4}}})
        assert row(cloud_checks.check(elastic), "quota", "GPUs of ").outcome is CloudOutcome.NOT_ASKED

    @pytest.mark.parametrize(
        ("answer", "limits"),
        [
            (quota_metric("NVIDIA_H100_MEGA", 16), "NVIDIA_H100_MEGA 16"),
            (quota_metric("NVIDIA_H100_MEGA", -1), "NVIDIA_H100_MEGA -1"),
            # The limit of another region is not this one's, and that without a region is for all that have no other.
            (quota_metric("NVIDIA_H200", 16, "europe-west1"), "NVIDIA_H200 0"),
            ({}, "none answered"),
        ],
    )
    def test_a_limit_is_for_a_person_to_compare(self, apis: GoogleApis, answer: dict[str, Any], limits: str) -> None:
        apis.rules.insert(0, on(self.GET, (200, answer)))
        seen = row(cloud_checks.check(a3()), "quota", "GPUs of ")
        assert seen.seen == f"16 asked; limits in us-central1: {limits}"
        assert seen.outcome is (CloudOutcome.WRONG if limits.endswith(" 0") else CloudOutcome.NOT_ASKED)

    def test_spot_machines_have_a_quota_of_their_own(self, apis: GoogleApis) -> None:
        apis.rules.insert(0, on(self.GET, (200, quota_metric("NVIDIA_H100_MEGA", 0))))
        config = google(nodesets={"gpu": {**A3, "capacity": "spot"}})
        seen = row(cloud_checks.check(config), "quota", "GPUs of ")
        assert (seen.asked, seen.outcome) == ("quota of GPUs of a3-megagpu-8g (spot)", CloudOutcome.NOT_ASKED)
        (path,) = [asked.path for asked in apis.asked if asked.id == self.GET]
        assert path.endswith("preemptible_gpus_per_gpu_family")

    def test_capacity_of_a_file_system(self, apis: GoogleApis) -> None:
        apis.rules.insert(0, healthy_for_everything)
        seen = row(cloud_checks.check(everything()), "quota", "lustre")
        text = "36,000 asked; limits in us-central1: Capacity 1,000,000"
        assert (seen.outcome, seen.seen) == (CloudOutcome.NOT_ASKED, text)
        assert "lustre" not in " ".join(
            row.asked for row in cloud_checks.check(everything(), everything()) if row.id == "quota"
        )

    @pytest.mark.parametrize(("capacity", "asked"), [("on_demand", 1), ("spot", 0), ({"reservation": "held"}, 0)])
    def test_local_ssds_count_by_the_family_of_their_machines(
        self, apis: GoogleApis, capacity: str | dict[str, str], asked: int
    ) -> None:
        apis.rules.insert(0, healthy_for_everything)
        rows = cloud_checks.check(google(nodesets={"gpu": {**A3, "capacity": capacity}}))
        found = [(row.outcome, row.seen) for row in rows if row.asked == "quota of GB of local SSD of a3-megagpu-8g"]
        assert found == [(CloudOutcome.NOT_ASKED, "12,000 asked; limits in us-central1: A3 24,000")] * asked
