"""Questions to Google Cloud before `up`: none hides another, none changes anything, and no answer is not a failure."""

from typing import Any

import pytest

from cluster.cloud_checks import CloudOutcome, CloudRow
from cluster.config import ClusterConfig
from cluster.platforms.gcp.cloud_checks import PROBES, AskedStack, checks
from cluster.platforms.gcp.permissions import roles
from components.gcp import cloud_checks
from tests.clouds import A3, EXASCALER, MANAGED, google
from tests.cluster import stacks
from tests.docs.test_assumptions import rows as assumptions
from tests.lab.google.apis import (
    ACCOUNT,
    CONTROLLER,
    IMAGE,
    POLICY,
    ROUTE,
    Answer,
    Asked,
    GoogleApis,
    Rule,
    on,
    refusal,
    reservation,
)

TYPES = "compute.machineTypes.get"
BILLING = "cloudbilling.projects.getBillingInfo"
PERMISSIONS = "cloudresourcemanager.projects.testIamPermissions"
SERVICES = "serviceusage.services.batchGet"


def row(rows: list[CloudRow], check: str, part: str = "") -> CloudRow:
    """The one row of a check whose question contains `part`."""
    (found,) = [row for row in rows if row.id == check and part in row.asked]
    return found


def wrong(rows: list[CloudRow]) -> list[CloudRow]:
    """The rows that are not green, without those that never are: limits of quotas, and accounts before they exist."""
    others = [row for row in rows if not row.asked.startswith("service accounts of ")]
    return [row for row in others if row.outcome is not CloudOutcome.OK and "; limits in " not in row.seen]


UNCLEAR = ("quota of GPUs of ", "quota of GB of ", "quota of GiB of ", "terms of ")
"""Questions that are for a person to compare."""


STATE = "gs://our-state"
WRONG, USE = CloudOutcome.WRONG, "you lack compute.images.useReadOnly"
IN_FORCE = 200, {"spec": {"rules": [{"enforce": True}]}}
GOOGLE_STACKS = [name for name in stacks.STACKS if stacks.config(name).platform == "gcp"]
SHARED = {
    "network": "projects/host-project/global/networks/shared",
    "subnetwork": "projects/host-project/regions/us-central1/subnetworks/nodes",
}


def project_of(config: ClusterConfig) -> Rule:
    """The reservations and the subnetwork of a stack's own project."""
    kinds = {
        way.reservation.name.partition("/reservationBlocks/")[0].rpartition("/")[2]: section.machine_type
        for section in config.nodesets.values()
        for way in section.ways
        if way.reservation
    }

    def answer(asked: Asked) -> Answer | None:
        if asked.id == "compute.reservations.get":
            return reservation(kinds[asked.path.rpartition("/")[2]] or "", shareSettings={"shareType": "ORGANIZATION"})
        if asked.id == "compute.subnetworks.get":
            return 200, {"ipCidrRange": str(config.network.cidr)}
        return None

    return answer


@pytest.mark.parametrize("name", GOOGLE_STACKS)
def test_a_project_with_everything_has_no_red_row(apis: GoogleApis, name: str) -> None:
    apis.rules.insert(0, project_of(stacks.config(name)))
    rows = cloud_checks.check(stacks.config(name))
    # Which limit counts is not said of GPUs of newer families and of file systems, nor are terms of the Marketplace.
    assert [row for row in wrong(rows) if not row.asked.startswith(UNCLEAR)] == []
    assert not [row for row in rows if row.outcome is CloudOutcome.WRONG]
    assert {row.id for row in rows} >= {"services", "billing", "permissions", "quota", "machine-type", "disk-type"}


def everything() -> ClusterConfig:
    """A stack that asks each question: T4, reservations, a network of another project, Managed Lustre, a budget."""
    nodesets = {
        "t4": {"machine_type": "n1-standard-1", "count": 1, "gpus": {"type": "t4", "count": 1}, "capacity": "spot"},
        "cpu": {"machine_type": "n2-standard-8", "count": 3, "capacity": {"reservation": "held"}},
        "gpu": {
            **A3,
            "capacity": {"reservation": "projects/owner-project/reservations/held-gpu/reservationBlocks/block-1"},
        },
    }
    ranges = {"cidr": "10.0.0.0/20", "gpu_cidr": "10.64.0.0/17", "services_cidr": "10.128.0.0/20"}
    network = {"existing": SHARED, **ranges}
    budget = {"month": 1e6, "billing_account": ACCOUNT}
    return google(nodesets=nodesets, network=network, storage={"lustre": MANAGED}, budget=budget)


def exascaler() -> ClusterConfig:
    """A stack with EXAScaler."""
    return google(storage={"lustre": EXASCALER})


def a3() -> ClusterConfig:
    """A stack with GPUs that come from no reservation."""
    return google(nodesets={"gpu": A3})


def replicated() -> ClusterConfig:
    """A stack whose state disk is in two zones."""
    disk = {"type": "pd-ssd", "replica_zone": "us-central1-b"}
    return google(controller={"machine_type": "n2-standard-4", "state_disk": disk})


def elsewhere() -> ClusterConfig:
    """A stack whose controller creates machines in a subnetwork of another project, from an image of a third."""
    nodesets = {"cpu": {"count": {"min": 0, "max": 4}}}
    image = {"name": "projects/image-project/global/images/baked"}
    return google(nodesets=nodesets, image=image, network={"existing": SHARED, "cidr": "10.0.0.0/20"})


def asking(method: str) -> ClusterConfig:
    """A stack that asks by this method."""
    configs = {
        "compute.images.getFromFamily": exascaler,
        "compute.images.getIamPolicy": elsewhere,
        "compute.regionDisks.list": replicated,
        "compute.subnetworks.getIamPolicy": elsewhere,
        "serviceusage.services.consumerQuotaMetrics.get": a3,
    }
    return configs.get(method, everything)()


def healthy_for_everything(asked: Asked) -> Answer | None:
    if asked.id == "compute.reservations.get":
        share = {"shareType": "SPECIFIC_PROJECTS", "projectMap": {"my-project": {"projectId": "my-project"}}}
        machine_type = "a3-megagpu-8g" if asked.path.endswith("-gpu") else "n2-standard-8"
        return reservation(machine_type, count=3, shareSettings=share)
    return None


class TestPlaces:
    """Quotas, zone, reservation, image, network, policies."""

    def ask(self, apis: GoogleApis, method: str, answer: Answer, part: str = "") -> list[CloudRow]:
        apis.rules[:0] = [on(method, answer, part), healthy_for_everything]
        return wrong(cloud_checks.check(everything(), state=STATE))

    @pytest.mark.parametrize(
        ("method", "answer", "check", "seen"),
        [
            ("compute.acceleratorTypes.get", refusal(404, ""), "accelerator", "us-central1-a has no nvidia-tesla-t4"),
            ("compute.diskTypes.get", refusal(404, ""), "disk-type", "us-central1-a has no pd-balanced"),
            (
                "compute.reservations.get",
                refusal(404, ""),
                "reservation",
                "there is none of this name in us-central1-a",
            ),
            (
                "compute.reservations.get",
                reservation("n2-standard-8", count=3, used=1),
                "reservation",
                "2 of 3 n2-standard-8 are free; 3 machines are needed",
            ),
            (
                "compute.reservations.get",
                reservation("n2-standard-4", specificReservationRequired=False, deleteAtTime="2026-12-01T00:00:00Z"),
                "reservation",
                "1000 of 1000 n2-standard-4 are free, deleted at 2026-12-01T00:00:00Z; it is not specific; it is of n2",
            ),
            ("compute.images.get", refusal(404, ""), "image", "ubuntu-os-cloud has no image ubuntu-"),
            (
                "compute.images.get",
                (200, {**IMAGE, "deprecated": {"state": "OBSOLETE"}}),
                "image",
                "READY, created 2026-09-06, OBSOLETE",
            ),
            (
                "compute.reservations.get",
                reservation("a3-megagpu-8g", shareSettings={"shareType": "LOCAL"}),
                "reservation",
                "1000 of 1000 a3-megagpu-8g are free; it is of a3-megagpu-8g, not n2-standard-8",
            ),
            ("compute.reservationBlocks.get", refusal(404, ""), "reservation", "there is none of this name"),
            (
                "compute.reservationBlocks.get",
                (200, {"resource": {"status": "READY", "count": 18, "inUseCount": 17}}),
                "reservation",
                "1 of 18 machines are free; 2 machines are needed",
            ),
            (
                "compute.globalAddresses.list",
                (
                    200,
                    {"items": [{"address": "10.200.0.0", "prefixLength": 16, "network": "a/global/networks/shared"}]},
                ),
                "network",
                "allocated: 10.200.0.0/16; network.services_cidr is 10.128.0.0/20",
            ),
            (
                "compute.globalAddresses.list",
                (200, {}),
                "network",
                "allocated: none; network.services_cidr is 10.128.0.0",
            ),
            ("compute.networks.get", refusal(404, ""), "network", "there is none"),
            ("compute.networks.get", (200, {"mtu": 1460}), "network", "it has no private service access"),
            ("compute.subnetworks.get", refusal(404, ""), "network", "there is none"),
            (
                "compute.subnetworks.get",
                (200, {"ipCidrRange": "10.8.0.0/20"}),
                "network",
                "range 10.8.0.0/20, and network.cidr is 10.0.0.0/20",
            ),
            (
                "file.projects.locations.get",
                refusal(404, ""),
                "file-system",
                "us-central1-a has no lustre.googleapis.com",
            ),
            ("storage.buckets.get", refusal(404, ""), "state", "there is none"),
            (
                "orgpolicy.projects.policies.getEffectivePolicy",
                IN_FORCE,
                "policy",
                "in force",
            ),
            (
                "orgpolicy.projects.policies.getEffectivePolicy",
                (200, {"spec": {"rules": [{"denyAll": True}]}}),
                "policy",
                "in force",
            ),
        ],
    )
    def test_what_is_not_as_the_stack_needs_it(
        self, apis: GoogleApis, method: str, answer: Answer, check: str, seen: str
    ) -> None:
        rows = self.ask(apis, method, answer)
        assert {(row.id, row.outcome) for row in rows} == {(check, CloudOutcome.WRONG)}
        assert rows[0].seen.startswith(seen)
        assert all(row.todo for row in rows)

    @pytest.mark.parametrize(
        ("share", "is_shared"),
        [
            ({"shareType": "LOCAL"}, False),
            ({"shareType": "SPECIFIC_PROJECTS", "projectMap": {"other": {"projectId": "other"}}}, False),
            ({"shareType": "SPECIFIC_PROJECTS", "projectMap": {"my-project": {}}}, True),
            # The number of a project does not say whose it is.
            ({"shareType": "SPECIFIC_PROJECTS", "projectMap": {"12345": {"projectId": "12345"}}}, True),
            ({"shareType": "ORGANIZATION"}, True),
        ],
    )
    def test_a_reservation_of_another_project_has_to_be_shared(
        self, apis: GoogleApis, share: dict[str, Any], is_shared: bool
    ) -> None:
        rows = self.ask(apis, "compute.reservations.get", reservation("a3-megagpu-8g", shareSettings=share), "held-gpu")
        assert [row.seen.partition("; ")[2] for row in rows] == (
            [] if is_shared else ["it is not shared with my-project"]
        )

    def test_a_reservation_that_has_ended_does_not_stop_an_edit_of_other_things(self, apis: GoogleApis) -> None:
        apis.rules[:0] = [
            on("compute.reservations.get", refusal(404, "")),
            on("compute.reservationBlocks.get", refusal(404, "")),
        ]
        rows = cloud_checks.check(everything(), everything())
        assert [row.outcome for row in rows if row.id == "reservation"] == [CloudOutcome.NOT_ASKED] * 3

    def test_a_reservation_has_to_have_the_static_nodes_free(self, apis: GoogleApis) -> None:
        apis.rules.insert(0, on("compute.reservations.get", reservation("a3-megagpu-8g", count=4, used=2)))
        elastic = {**A3, "count": {"min": 2, "max": 4}, "capacity": {"reservation": "held"}}
        assert wrong(cloud_checks.check(google(nodesets={"gpu": elastic}))) == []

    @pytest.mark.parametrize(("most", "outcome"), [(4, CloudOutcome.NOT_ASKED), (1, CloudOutcome.WRONG)])
    def test_elastic_nodes_that_become_static_may_have_their_machines(
        self, apis: GoogleApis, most: int, outcome: CloudOutcome
    ) -> None:
        apis.rules.insert(0, on("compute.reservations.get", reservation("a3-megagpu-8g", count=4, used=4)))
        elastic, static = (
            google(nodesets={"gpu": {**A3, "count": count, "capacity": {"reservation": "held"}}})
            for count in ({"min": 0, "max": most}, 4)
        )
        assert row(cloud_checks.check(static, elastic), "reservation").outcome is outcome

    def test_the_state_is_kept_without_versions_too(self, apis: GoogleApis) -> None:
        (seen,) = self.ask(apis, "storage.buckets.get", (200, {"location": "US"}))
        assert (seen.outcome, seen.seen) == (CloudOutcome.NOT_ASKED, "it keeps no old versions of the state")

    def test_the_other_zone_of_the_state_disk_needs_its_type_alone(self, apis: GoogleApis) -> None:
        rows = cloud_checks.check(replicated())
        other = [row.asked for row in rows if row.asked.endswith("us-central1-b")]
        assert other == ["disk type pd-ssd in us-central1-b"]

    def test_ranges_of_other_services_are_for_a_person_to_compare(self, apis: GoogleApis) -> None:
        own, other = (
            {"address": address, "prefixLength": 24, "network": "a/global/networks/shared"}
            for address in ("10.128.0.0", "10.200.0.0")
        )
        (seen,) = self.ask(apis, "compute.globalAddresses.list", (200, {"items": [own, other]}))
        assert seen.outcome is CloudOutcome.NOT_ASKED
        assert seen.seen.startswith("allocated: 10.128.0.0/24")

    @pytest.mark.parametrize(
        ("method", "answer", "seen"),
        [
            (
                "compute.routes.list",
                {"items": [ROUTE, {"name": "theirs", "destRange": "10.64.16.0/24"}]},
                "ranges of the nodes' other networks overlap 10.64.16.0/24 (theirs)",
            ),
            ("compute.routes.list", {"items": []}, "no default route"),
            ("compute.routers.list", {"items": [{"name": "no-nat"}]}, "no Cloud NAT, and no default route to anything"),
        ],
    )
    def test_a_network_without_a_visible_way_out_is_for_a_person_to_compare(
        self, apis: GoogleApis, method: str, answer: dict[str, Any], seen: str
    ) -> None:
        (row,) = self.ask(apis, method, (200, answer))
        assert (row.outcome, row.asked) == (CloudOutcome.NOT_ASKED, "routes of shared in host-project")
        assert row.seen.startswith(seen)
        page = "https://console.cloud.google.com/net-services/nat/list?project=host-project"
        assert row.todo.endswith(page) is seen.startswith("no ")

    def test_a_route_to_an_appliance_is_a_way_out(self, apis: GoogleApis) -> None:
        route = {"name": "out", "destRange": "0.0.0.0/0", "nextHopIp": "10.0.0.9"}
        apis.rules.insert(0, on("compute.routers.list", (200, {})))
        assert self.ask(apis, "compute.routes.list", (200, {"items": [route]})) == []

    def test_terms_of_the_marketplace_are_on_one_page(self, apis: GoogleApis) -> None:
        (seen,) = [row for row in cloud_checks.check(exascaler()) if row.id == "marketplace"]
        assert seen.outcome is CloudOutcome.NOT_ASKED
        assert (
            seen.todo
            == "accept the terms: https://console.cloud.google.com/marketplace/browse?q=EXAScaler&project=my-project"
        )

    def test_the_image_of_servers_that_exist_is_not_asked_for(self) -> None:
        """Google retires images. Nothing boots from it again, so that it stops no edit."""
        new, more = ({check.asks for check in checks(AskedStack(config=exascaler(), before=before))}
                     for before in (None, exascaler()))  # fmt: skip
        assert {asks.partition(" ")[0] for asks in new - more if "exascaler" in asks.lower()} == {"image", "terms"}

    @pytest.mark.parametrize(
        ("before", "after", "more", "outcome"),
        [
            # The base of an image that is baked already, and one that is not.
            ({}, {}, 1, CloudOutcome.NOT_ASKED),
            ({}, {"snapshot": "20260901T000000Z"}, 0, CloudOutcome.WRONG),
            # An image that no new machine boots from, and one that a new one does.
            ({"name": "ours"}, {"name": "ours"}, 0, CloudOutcome.NOT_ASKED),
            ({"name": "ours"}, {"name": "ours"}, 1, CloudOutcome.WRONG),
            ({"name": "ours"}, {"name": "other"}, 0, CloudOutcome.WRONG),
        ],
    )
    def test_an_image_that_was_retired_does_not_stop_an_edit_that_needs_nothing_of_it(
        self, apis: GoogleApis, before: dict[str, Any], after: dict[str, Any], more: int, outcome: CloudOutcome
    ) -> None:
        retired = 200, {**IMAGE, "deprecated": {"state": "OBSOLETE"}}
        apis.rules.insert(0, on("compute.images.get", retired))
        running = google(image=before, nodesets={"cpu": {"count": 2}})
        edited = google(image=after, nodesets={"cpu": {"count": 2 + more}})
        assert row(cloud_checks.check(edited, running), "image").outcome is outcome

    def test_a_policy_that_is_newly_in_force_does_not_stop_an_edit_of_other_things(self, apis: GoogleApis) -> None:
        apis.rules.insert(0, on("orgpolicy.projects.policies.getEffectivePolicy", IN_FORCE))
        public = google(login={"public": True}, network={"admin_cidrs": ["203.0.113.7/32"]})
        rows = cloud_checks.check(public, google())
        found = [row.asked.rpartition(" ")[2] for row in rows if row.outcome is CloudOutcome.WRONG]
        assert found == ["compute.vmExternalIpAccess"]

    def test_a_policy_with_a_list_is_for_a_person_to_compare(self, apis: GoogleApis) -> None:
        rule = {"values": {"allowedValues": ["projects/ours"]}}
        answer = 200, {"spec": {"rules": [rule]}}
        (seen,) = self.ask(apis, "orgpolicy.projects.policies.getEffectivePolicy", answer, "trustedImageProjects")
        assert (seen.outcome, seen.seen) == (CloudOutcome.NOT_ASKED, "allows projects/ours")
        assert seen.todo.startswith("compare: allow projects/ubuntu-os-cloud")


class TestAnswers:
    """What Google answers, and the row that this is."""

    def test_services_that_up_enables_are_not_wrong(self, apis: GoogleApis) -> None:
        names = ("compute.googleapis.com", "cloudresourcemanager.googleapis.com")

        def states(first: str, other: str) -> Answer:
            path = "projects/my-project/services/"
            pairs = zip(names, (other, first), strict=True)
            return 200, {"services": [{"name": f"{path}{name}", "state": state} for name, state in pairs]}

        apis.rules.insert(0, on(SERVICES, states("ENABLED", "DISABLED")))
        seen = row(cloud_checks.check(google()), "services")
        assert (seen.outcome, seen.seen) == (CloudOutcome.OK, "1 of 2 enabled; `up` enables compute.googleapis.com")
        apis.rules.insert(0, on(SERVICES, states("DISABLED", "DISABLED")))
        seen = row(cloud_checks.check(google()), "services")
        assert seen.outcome is CloudOutcome.WRONG
        assert seen.todo == "gcloud services enable cloudresourcemanager.googleapis.com --project my-project"

    def test_a_project_without_billing(self, apis: GoogleApis) -> None:
        apis.rules.insert(0, on(BILLING, (200, {"projectId": "my-project"})))
        seen = row(cloud_checks.check(google()), "billing")
        assert (seen.outcome, seen.seen) == (CloudOutcome.WRONG, "no open billing account pays for the project")

    def test_a_project_that_does_not_exist(self, apis: GoogleApis) -> None:
        apis.rules.insert(0, on(BILLING, refusal(404, "not found")))
        seen = row(cloud_checks.check(google()), "billing")
        assert (seen.outcome, seen.seen) == (CloudOutcome.WRONG, "there is no project my-project")

    @pytest.mark.parametrize("role", sorted(PROBES))
    def test_a_permission_that_is_missing_names_its_role(self, apis: GoogleApis, role: str) -> None:
        lost = PROBES[role][-1]

        def without(asked: Asked) -> Answer | None:
            kept = [name for name in asked.body.get("permissions", ()) if name != lost]
            # Google leaves the key out where the caller has none of them.
            return (200, {"permissions": kept} if kept else {}) if asked.id == PERMISSIONS else None

        apis.rules.insert(0, without)
        found = next(config for config in map(stacks.config, GOOGLE_STACKS) if role in roles(config))
        apis.rules.insert(1, project_of(found))
        (seen,) = [row for row in cloud_checks.check(found) if row.seen.startswith("you lack")]
        assert (seen.asked.partition(" ")[0], seen.seen) == (role, f"you lack {lost}")
        # A role on the project's tunnels gives it too.
        assert seen.outcome is (CloudOutcome.NOT_ASKED if role == "roles/iap.tunnelResourceAccessor" else WRONG)
        assert f"--role {role}" in seen.todo

    def test_the_host_project_of_a_shared_vpc_is_asked_too(self, apis: GoogleApis) -> None:
        apis.rules[:0] = [on(PERMISSIONS, (200, {}), "host-project"), healthy_for_everything]
        found = wrong(cloud_checks.check(everything()))
        # A role on the subnetwork is not seen from its project.
        assert [(row.asked, row.outcome, row.seen) for row in found] == [
            ("roles/compute.networkUser in host-project", CloudOutcome.NOT_ASKED, "you lack compute.subnetworks.use"),
            (
                "roles/compute.securityAdmin in host-project",
                WRONG,
                "you lack compute.firewalls.create, compute.networks.updatePolicy",
            ),
        ]
        assert all(row.todo.endswith(f" --role {row.asked.partition(' ')[0]}") for row in found)
        paths = {asked.path for asked in apis.asked if asked.id in ("compute.networks.get", "compute.subnetworks.get")}
        assert {path.split("/")[4] for path in paths} == {"host-project"}

    def test_the_project_of_an_image_is_asked_too(self, apis: GoogleApis) -> None:
        config = google(image={"name": "projects/image-project/global/images/baked"})
        apis.rules.insert(0, on("compute.images.testIamPermissions", (200, {})))
        (seen,) = wrong(cloud_checks.check(config))
        assert (seen.asked, seen.seen) == (
            "roles/compute.imageUser in image-project",
            USE,
        )
        command = "gcloud compute images add-iam-policy-binding baked --project image-project --member user:YOU"
        assert seen.todo == f"{command} --role roles/compute.imageUser"

    def test_a_permission_of_the_controller_that_google_does_not_have(self, apis: GoogleApis) -> None:
        answer = refusal(400, "Permission compute.instances.x is not valid for this resource.")
        rule = on(PERMISSIONS, answer)
        apis.rules.insert(
            0, lambda asked: rule(asked) if "compute.instances.reset" in asked.body.get("permissions", ()) else None
        )
        config = google(nodesets={"cpu": {"count": {"min": 0, "max": 4}}})
        (seen,) = wrong(cloud_checks.check(config))
        assert seen.asked == "custom role of the controller in my-project"
        assert seen.seen.endswith("Permission compute.instances.x is not valid for this resource.")

    @pytest.mark.parametrize("is_up", [False, True])
    def test_the_controller_needs_grants_in_other_projects(self, apis: GoogleApis, is_up: bool) -> None:
        before = elsewhere() if is_up else None
        found = [row for row in cloud_checks.check(elsewhere(), before) if " of cloud-ctl@" in row.asked]
        assert [(row.outcome, row.seen) for row in found] == [(CloudOutcome.OK, "granted")] * 2
        others = [
            {**POLICY["bindings"][1], "condition": {"expression": "true"}},
            {**POLICY["bindings"][1], "role": "roles/compute.viewer"},
        ]
        apis.rules.insert(0, on("compute.subnetworks.getIamPolicy", (200, {})))
        apis.rules.insert(0, on("compute.images.getIamPolicy", (200, {"bindings": others})))
        found = wrong(cloud_checks.check(elsewhere(), before))
        assert [row.asked for row in found] == [
            "roles/compute.networkUser of cloud-ctl@my-project.iam.gserviceaccount.com on nodes of host-project",
            "roles/compute.imageUser of cloud-ctl@my-project.iam.gserviceaccount.com on baked of image-project",
        ]
        assert {row.outcome for row in found} == {CloudOutcome.NOT_ASKED}
        subnetwork = "networks subnets add-iam-policy-binding nodes --region us-central1 --project host-project"
        assert [row.todo.removeprefix("after `up`: ") for row in found] == [
            f"gcloud compute {command} --role roles/compute.{role} --member {CONTROLLER}"
            for role, command in {
                "networkUser": subnetwork,
                "imageUser": "images add-iam-policy-binding baked --project image-project",
            }.items()
        ]
        assert all(row.todo.startswith("after `up`: ") is not is_up for row in found)

    def test_accounts_that_do_not_exist_are_not_tested(self, apis: GoogleApis) -> None:
        elastic = google(nodesets={"cpu": {"count": {"min": 0, "max": 4}}})
        seen = row(cloud_checks.check(elastic), "permissions", "service accounts of ")
        assert seen.outcome is CloudOutcome.NOT_ASKED
        assert seen.asked == "service accounts of controller and builder in my-project"
        asked = [row.asked for row in cloud_checks.check(elastic, elastic)]
        assert not any(question.startswith("service accounts of ") for question in asked)

    def test_the_image_of_servers_is_asked_for_too(self, apis: GoogleApis) -> None:
        apis.rules.insert(0, on("compute.images.testIamPermissions", (200, {})))
        lustre = {**EXASCALER, "image": "projects/image-project/global/images/servers"}
        (seen,) = [row for row in cloud_checks.check(google(storage={"lustre": lustre})) if row.outcome is WRONG]
        assert (seen.asked, seen.seen) == ("roles/compute.imageUser in image-project", USE)

    def test_a_zone_without_the_machine_type(self, apis: GoogleApis) -> None:
        apis.rules.insert(0, on(TYPES, refusal(404, "not found"), "a3-megagpu-8g"))
        config = google(nodesets={"gpu": A3})
        seen = row(cloud_checks.check(config), "machine-type", "a3-megagpu-8g")
        assert (seen.outcome, seen.seen) == (CloudOutcome.WRONG, "us-central1-a has no a3-megagpu-8g")
        assert "gcloud compute machine-types list" in seen.todo

    def test_a_machine_type_of_another_size_than_the_catalog(self, apis: GoogleApis) -> None:
        smaller = {"name": "a3-megagpu-8g", "guestCpus": 208, "memoryMb": 1_900_000, "accelerators": []}
        apis.rules.insert(0, on(TYPES, (200, smaller), "a3-megagpu-8g"))
        seen = row(cloud_checks.check(google(nodesets={"gpu": A3})), "machine-type", "a3-megagpu-8g")
        assert seen.outcome is CloudOutcome.WRONG
        assert seen.seen == ("208 vCPUs, 1,900,000 MiB, 0 GPUs; the catalog has 208 vCPUs, 1,916,928 MiB, 8 GPUs")
        larger = {"name": "n2-standard-4", "guestCpus": 4, "memoryMb": 16_400}
        apis.rules.insert(0, on(TYPES, (200, larger), "n2-standard-4"))
        config = google(controller={"machine_type": "n2-standard-4"})
        assert row(cloud_checks.check(config), "machine-type", "n2-standard-4").outcome is CloudOutcome.NOT_ASKED


def test_every_role_of_a_stack_has_its_permissions() -> None:
    configs = map(stacks.config, GOOGLE_STACKS)
    assert {role for config in configs for role in roles(config)} <= set(PROBES)


def test_assumptions_that_a_check_settles_are_on_their_page() -> None:
    listed = {assumption: shows for assumption, shows, *_ in assumptions()}
    configs = map(stacks.config, GOOGLE_STACKS)
    settled = {text for config in configs for check in checks(AskedStack(config=config)) for text in check.assumptions}
    assert settled
    assert all("`./hpc check cloud STACK`" in listed[text] for text in settled)
    assert {text for text, shows in listed.items() if "`./hpc check cloud STACK`" in shows} == settled
