"""Questions to Nebius before `up`: none hides another, none changes anything, and no answer is not a failure."""

import time
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from cluster.cloud_checks import CloudOutcome, CloudRow
from cluster.config import ClusterConfig
from cluster.platforms.nebius.cloud_checks import checks
from cluster.platforms.nebius.cloud_request import NebiusStack
from components.nebius import chart_sources, cloud_checks
from components.nebius.api import client
from components.nebius.api.client import NebiusError
from tests.cluster.nebius.clusters import FABRIC, H100, gpus, nebius
from tests.docs.test_assumptions import rows as assumptions
from tests.lab.nebius_api.faults import Fault
from tests.lab.nebius_api.server import NebiusServer, Place
from tests.waiting import Meeting

TIB = 1 << 40
READS = {"Get", "List", "ListMemberOf", "ListMembers", "ListControlPlaneVersions", "GetCompatibilityMatrix"}


def advice(fabric: str, platform: str = "gpu-h100-sxm", **available: int) -> dict[str, Any]:
    """A row of ResourceAdvice, of the preset with eight GPUs."""
    ways = {"reserved": 9, "on_demand": 9, "preemptible": 9, **available}
    return {
        "metadata": {"id": f"advice-{fabric}", "parent_id": "tenant-e00abc"},
        "spec": {
            "region": "eu-north1", "fabric": fabric,
            "compute_instance": {"platform": platform, "preset": {"name": "8gpu-128vcpu-1600gb"}},
        },
        "status": {way: {"data_state": "DATA_STATE_FRESH", "available": count} for way, count in ways.items()},
    }  # fmt: skip


def ample() -> Place:
    """A tenant in which everything can be created."""
    counts = (
        "compute.instance.count", "compute.instance.gpu.h100", "compute.instance.non-gpu.vcpu",
        "compute.instance.preemptible.count", "compute.gpucluster.count", "compute.filesystem.count",
        "mk8s.cluster.count",
    )  # fmt: skip
    sizes = ("compute.disk.size.network-ssd", "compute.filesystem.size.network-ssd")
    quotas = {**dict.fromkeys(counts, (5000, 0)), **dict.fromkeys(sizes, (5000 * TIB, 0))}
    unlike = {"spec": {"region": "eu-north1", "compute_instance": {"platform": "cpu-d3", "preset": {"name": ""}}}}
    cpus = []
    for preset in ("8vcpu-32gb", "16vcpu-64gb", "32vcpu-128gb"):
        row = advice("")
        row["spec"] = {**unlike["spec"], "compute_instance": {"platform": "cpu-d3", "preset": {"name": preset}}}
        cpus.append({**row, "metadata": {"id": f"advice-{preset}"}})
    return Place(tenant="tenant-e00abc", quotas=quotas, advice=(advice("fabric-3"), advice("fabric-6"), *cpus))


DIGEST = f"sha256:{'0' * 64}"
PROGRAMS = ("programs", "artifact")
REAL = {what: cloud_checks.ANSWERS[what] for what in PROGRAMS}


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registries with everything, and a machine with all programs: no test asks a registry of others.

    A busy machine does not answer within the product's limit.
    """
    monkeypatch.setattr(cloud_checks, "SECONDS", 60.0)
    for what, found in zip(PROGRAMS, ([], ([], [], DIGEST)), strict=True):
        monkeypatch.setitem(cloud_checks.ANSWERS, what, lambda *_args, found=found: found)


@pytest.fixture
def api() -> Iterator[NebiusServer]:
    """At its end no request has changed anything."""
    with NebiusServer(place=ample()) as server:
        yield server
        client.close()
    assert {call.method.rpartition("/")[2] for call in server.calls} <= READS


def cluster(**changes: Any) -> ClusterConfig:
    return nebius(**{**gpus(), **changes})


def section(**more: Any) -> dict[str, Any]:
    return {"nebius": {"workers": {"worker": FABRIC}, **more}}


def ask(config: ClusterConfig, before: ClusterConfig | None = None, state: str = "") -> list[CloudRow]:
    """The rows that are not ok."""
    return [row for row in cloud_checks.check(config, before, state) if row.outcome is not CloudOutcome.OK]


def test_a_tenant_with_everything_has_no_other_row(api: NebiusServer) -> None:
    rows = cloud_checks.check(cluster())
    assert [row for row in rows if row.outcome is not CloudOutcome.OK] == []
    assert {row.id for row in rows} >= {
        "kubernetes-version", "node-image", "machine-type", "quota", "fabric", "capacity",
    }  # fmt: skip


class TestOffers:
    """What Nebius offers, beside what the stack requests."""

    def test_a_version_that_is_gone(self, api: NebiusServer) -> None:
        rows = ask(cluster(**section(kubernetes={"version": "1.31"})))
        assert {(row.id, row.outcome) for row in rows} == {
            ("kubernetes-version", CloudOutcome.WRONG), ("node-image", CloudOutcome.WRONG),
        }  # fmt: skip
        assert rows[0].seen == "Nebius creates no clusters of it (end of life: 2026-09-01)"
        assert rows[0].todo == "set nebius.kubernetes.version to one of 1.30, 1.32, 1.33, 1.34, 1.35, 1.36"

    @pytest.mark.parametrize("capacity", [{"spot": {}}, {"reservation": "capacityblockgroup-e00abc"}])
    def test_the_quota_of_gpus_is_shown_where_none_is_needed(self, api: NebiusServer, capacity: Any) -> None:
        (quota,) = [row for row in cloud_checks.check(cluster(**gpus(capacity=capacity))) if ".gpu.h100" in row.asked]
        assert (quota.outcome, quota.seen) == (CloudOutcome.OK, "0 more needed, 5000 free of 5000")

    def test_a_quota_that_is_too_small(self, api: NebiusServer) -> None:
        api.place.quotas = {**api.place.quotas, "compute.filesystem.size.network-ssd": (5 * TIB, 4 * TIB)}
        (row,) = ask(cluster())
        assert (row.outcome, row.seen) == (CloudOutcome.WRONG, "2.625 TiB more needed, 1 TiB free of 5 TiB")
        assert row.todo.startswith("ask for more at https://console.nebius.com")

    def test_what_runs_already_is_not_asked_for_again(self, api: NebiusServer) -> None:
        api.place.quotas = dict.fromkeys(api.place.quotas, (0, 0))
        assert ask(cluster(), cluster()) == []
        (gpus_of, *_) = ask(cluster(**{**gpus(count=3), **section()}), cluster())
        assert gpus_of.outcome is CloudOutcome.WRONG

    def test_a_quota_that_is_not_listed_is_not_ok(self, api: NebiusServer) -> None:
        api.place.quotas = {name: row for name, row in api.place.quotas.items() if "gpucluster" not in name}
        (row,) = ask(cluster())
        assert (row.outcome, row.seen) == (
            CloudOutcome.NOT_ASKED,
            "1 more needed; Nebius lists no limit or no usage of it",
        )

    def test_a_usage_that_is_not_known_is_not_0(self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch) -> None:
        plain = Place.answer

        def unknown(place: Place, method: str, given: Any) -> Any:
            answer = plain(place, method, given) or {}
            for row in answer["items"] if method == "QuotaAllowanceService/List" else ():
                row["status"]["usage_state"] = "USAGE_STATE_UNKNOWN"
            return answer or None

        monkeypatch.setattr(Place, "answer", unknown)
        api.place.blocks = {BLOCK: {"usage_state": "USAGE_STATE_UNKNOWN"}}
        rows = ask(cluster(**gpus(capacity={"reservation": BLOCK})))
        assert {(row.id, row.outcome) for row in rows} == {
            ("quota", CloudOutcome.NOT_ASKED), ("capacity-block", CloudOutcome.NOT_ASKED),
        }  # fmt: skip

    def test_capacity_changes_and_so_is_never_wrong(self, api: NebiusServer) -> None:
        api.place.advice = (advice("fabric-3", reserved=0, on_demand=1), *api.place.advice[1:])
        (row,) = ask(cluster())
        assert (row.id, row.outcome) == ("capacity", CloudOutcome.NOT_ASKED)
        assert row.todo == "write a fabric with room: fabric-6"

    def test_a_region_without_the_platform_or_the_preset(self, api: NebiusServer) -> None:
        api.place.platforms = {"cpu-d3": api.place.platforms["cpu-d3"]}
        (row,) = ask(cluster())
        assert (row.id, row.outcome, row.seen) == ("machine-type", CloudOutcome.WRONG, "eu-north1 has no gpu-h100-sxm")
        assert row.todo == "choose one of cpu-d3, or a project in another region"
        api.place.platforms = {**api.place.platforms, "gpu-h100-sxm": ("1gpu-16vcpu-200gb",)}
        (row,) = ask(cluster())
        assert row.seen == "eu-north1 has no 8gpu-128vcpu-1600gb"

    def test_a_platform_without_preemptible_machines(self, api: NebiusServer) -> None:
        api.place.not_preemptible = ("gpu-h100-sxm",)
        (row,) = ask(cluster(**gpus(capacity={"spot": {}})))
        assert row.seen == "128 vCPUs, 1600 GiB, 8 GPUs; it can't be preemptible"

    def test_a_machine_type_that_the_catalog_has_otherwise(
        self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = Place.answer

        def changed(place: Place, method: str, given: Any) -> Any:
            answer = plain(place, method, given)
            for row in (answer or {}).get("items", ()) if method == "PlatformService/List" else ():
                if row["metadata"]["name"] == "gpu-h100-sxm":
                    row["spec"]["gpu_count_quota_type"] = "compute.instance.gpu.hopper"
                    for preset in row["spec"]["presets"]:
                        preset.update(resources={"vcpu_count": 64, "gpu_count": 4}, allow_gpu_clustering=False)
            return answer

        monkeypatch.setattr(Place, "answer", changed)
        (row,) = ask(cluster())
        assert row.seen == (
            "64 vCPUs, 0 GiB, 4 GPUs; the catalog has 128 vCPUs, 1600 GiB, 8 GPUs; its GPUs count against "
            "compute.instance.gpu.hopper; it can't join a GPU cluster"
        )

    def test_a_fabric_that_is_not_in_the_advice(self, api: NebiusServer) -> None:
        workers = {"worker": {"infiniband": {"fabric": "fabric-2"}}}
        rows = ask(cluster(nebius={"workers": workers}))
        assert [(row.id, row.seen) for row in rows] == [
            ("fabric", "Nebius's advice on capacity does not have it"),
            ("capacity", "Nebius gives no advice for it"),
        ]
        assert rows[0].todo == "set infiniband.fabric to one of fabric-3, fabric-6"
        (fabric,) = [row for row in cloud_checks.check(cluster()) if row.id == "fabric"]
        assert fabric.assumptions

    def test_a_fabric_that_is_not_in_the_catalog_is_named(self, api: NebiusServer) -> None:
        api.place.advice = (*api.place.advice, advice("fabric-99"))
        (fabric,) = [row for row in cloud_checks.check(cluster()) if row.id == "fabric"]
        assert fabric.seen == "there is one; not in the catalog: fabric-99"


class TestRegistries:
    """Charts and images: a registry that does not answer is no failure, and a tag that it lacks is."""

    def test_digests_are_shown(self, api: NebiusServer) -> None:
        rows = cloud_checks.check(cluster())
        (jail,) = [row for row in rows if row.asked.startswith("image populate_jail:")]
        assert (jail.asked, jail.seen) == (
            "image populate_jail:4.1.11-slurm25.11.3-cuda13.0.2", f"there is one {DIGEST}",
        )  # fmt: skip
        assert jail.assumptions
        (chart,) = [row for row in rows if row.asked.startswith("chart helm-slurm-cluster ")]
        assert chart.seen == f"there is one {DIGEST}"

    @pytest.mark.parametrize(
        ("place", "outcome", "todo"),
        [
            ("cr.eu-north1.nebius.cloud/soperator", CloudOutcome.WRONG,
             "choose a nebius.soperator.version that exists, or another nebius.soperator.charts"),
            # Registries answer so where a login is missing, which nodes may have.
            ("mirror.example/soperator", CloudOutcome.NOT_ASKED,
             "nothing if the cluster's nodes can pull it; otherwise push it there"),
        ],
        ids=["Nebius's", "a mirror"],
    )  # fmt: skip
    def test_a_tag_that_is_not_there(
        self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch, place: str, outcome: CloudOutcome, todo: str
    ) -> None:
        def without_munge(url: str, *_more: object) -> tuple[bytes, dict[str, str]]:
            if "/munge/" in url:
                raise HTTPError(url, 404, "Not Found", Message(), None)
            return b"", {"Docker-Content-Digest": DIGEST}

        monkeypatch.setattr(chart_sources, "fetch", without_munge)
        monkeypatch.setattr(chart_sources, "_in_repository", lambda *_args: "")
        monkeypatch.setitem(cloud_checks.ANSWERS, "artifact", REAL["artifact"])
        (row,) = ask(cluster(**section(soperator={"charts": f"oci://{place}"})))
        assert (row.id, row.outcome, row.todo) == ("image", outcome, todo)
        assert row.seen == f"munge 4.1.11-slurm25.11.3 is not in {place}. It has: none that it lists without a login"

    def test_charts_that_are_not_there(
        self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(chart_sources, "_in_registry", lambda *_args: DIGEST)
        monkeypatch.setitem(cloud_checks.ANSWERS, "artifact", REAL["artifact"])
        rows = ask(cluster(**section(soperator={"charts": str(tmp_path)})))
        assert {(row.id, row.outcome) for row in rows} == {("chart", CloudOutcome.WRONG)}
        (row,) = [row for row in rows if "helm-slurm-cluster " in row.asked]
        assert row.seen == f"helm-slurm-cluster: there is no chart in the folder {tmp_path}/helm-slurm-cluster"

    def test_a_network_without_registries(self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch) -> None:
        def unreachable(*_args: object) -> None:
            raise OSError(101, "Network is unreachable")

        monkeypatch.setattr(chart_sources, "fetch", unreachable)
        monkeypatch.setitem(cloud_checks.ANSWERS, "artifact", REAL["artifact"])
        rows = ask(cluster())
        assert {(row.id, row.outcome) for row in rows} == {
            ("chart", CloudOutcome.NOT_ASKED), ("image", CloudOutcome.NOT_ASKED),
        }  # fmt: skip
        assert all("does not answer: [Errno 101] Network is unreachable" in row.seen for row in rows)
        assert {row.todo for row in rows} == {"check the network and the proxy, then run again"}

    def test_a_command_without_a_credential(self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(cloud_checks.ANSWERS, "programs", REAL["programs"])
        (row,) = ask(cluster(**section(token_command=["/bin/false"])))
        assert (row.id, row.outcome) == ("program", CloudOutcome.WRONG)
        assert "failed with exit code 1" in row.seen


PROJECT = "project-e00abc"
BLOCK = "capacityblockgroup-e00abc"
STATE = "s3://our-state?region=eu-north1&endpoint=https%3A%2F%2Fstorage.eu-north1.nebius.cloud%3A443"


def seed_state(api: NebiusServer, policy: str = "ENABLED") -> str:
    return api.methods.seed("Bucket", PROJECT, "our-state", {"versioning_policy": policy})


def jail_of(id_: str) -> dict[str, Any]:
    return {"filesystems": {"jail": {"existing": id_, "overwrite_existing": True}}}


class TestPlace:
    """Project, roles, capacity blocks, existing objects, names, the bucket of the state."""

    def one(self, config: ClusterConfig, before: ClusterConfig | None = None, state: str = "") -> tuple[str, ...]:
        """The one row that is not ok: id, outcome and what was seen."""
        (row,) = ask(config, before, state)
        assert row.todo or row.outcome is CloudOutcome.NOT_ASKED
        return row.id, row.outcome.value, row.seen

    def test_a_project_of_another_tenant_or_region_or_none(self, api: NebiusServer) -> None:
        api.place.tenant = "tenant-e00other"
        (row, *_) = ask(cluster(nebius={"backups": {"enabled": False}, "workers": {"worker": FABRIC}}))
        assert (row.id, row.seen) == ("project", "it is in tenant-e00other, not in tenant-e00abc")
        api.place.tenant, api.place.project = "tenant-e00abc", "project-e00other"
        assert self.one(cluster()) == ("project", "wrong", "there is none")

    def test_a_project_in_another_region(self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(
            cloud_checks.ANSWERS,
            "project",
            lambda _id: {"metadata": {"parent_id": "tenant-e00abc"}, "status": {"region": "eu-west1"}},
        )
        assert self.one(cluster()) == ("project", "wrong", "it is in eu-west1")

    @pytest.mark.parametrize(
        ("groups", "backups", "missing"),
        [
            (("editors",), True, ["role admin in project-e00abc"]),
            (("editors",), False, []),
            (("admins",), True, []),
            (("viewers",), False, ["role editor in project-e00abc"]),
            ((), True, ["role editor in project-e00abc", "role admin in project-e00abc"]),
        ],
    )
    def test_roles_are_those_of_the_callers_groups(
        self, api: NebiusServer, groups: tuple[str, ...], backups: bool, missing: list[str]
    ) -> None:
        api.place.groups = groups
        rows = ask(cluster(**section(backups={"enabled": backups})))
        assert [(row.asked, row.outcome) for row in rows] == [(asked, CloudOutcome.WRONG) for asked in missing]

    @pytest.mark.parametrize(("where", "fits"), [(PROJECT, True), ("project-e00other", False)])
    def test_another_group_has_the_roles_of_its_permits(self, api: NebiusServer, where: str, fits: bool) -> None:
        api.place.groups = ("builders",)
        api.methods.seed("AccessPermit", "group-builders", "", {"resource_id": where, "role": "admin"})
        rows = ask(cluster())
        assert {row.id for row in rows} == (set() if fits else {"permissions"})

    def test_narrower_roles_are_for_a_person_to_compare(self, api: NebiusServer) -> None:
        api.place.groups = ("builders",)
        api.methods.seed("AccessPermit", "group-builders", "", {"resource_id": PROJECT, "role": "compute.editor"})
        rows = ask(cluster(**section(backups={"enabled": False})))
        assert [(row.outcome, row.seen) for row in rows] == [(CloudOutcome.NOT_ASKED, "you have compute.editor")]

    @pytest.mark.parametrize(
        ("status", "seen"),
        [
            ({"usage": "56"}, "8 of 64 GPUs are free; 16 more GPUs needed"),
            ({"state": "STATE_INACTIVE", "current_limit": "0", "usage": "0"},
             "0 of 0 GPUs are free; its state is STATE_INACTIVE, not STATE_ACTIVE; 16 more GPUs needed"),
            ({"region": "eu-west1"}, "56 of 64 GPUs are free; its region is eu-west1, not eu-north1"),
            ({"resource_affinity": {"compute_v1": {"platform": "gpu-h200-sxm"}}},
             "56 of 64 GPUs are free; its platform is gpu-h200-sxm, not gpu-h100-sxm"),
        ],
    )  # fmt: skip
    def test_a_capacity_block_that_does_not_fit(self, api: NebiusServer, status: Any, seen: str) -> None:
        api.place.blocks = {BLOCK: status}
        assert self.one(cluster(**gpus(capacity={"reservation": BLOCK}))) == ("capacity-block", "wrong", seen)

    def test_a_capacity_block_that_is_not_there_or_is_used_already(self, api: NebiusServer) -> None:
        config = cluster(**gpus(capacity={"reservation": BLOCK}))
        assert self.one(config) == ("capacity-block", "wrong", "there is none")
        api.place.blocks = {BLOCK: {"usage": "64"}}
        assert ask(config, config) == []

    def test_existing_objects_that_are_gone(self, api: NebiusServer) -> None:
        config = cluster(**section(**jail_of("computefilesystem-e00gone"), subnet="vpcsubnet-e00gone"))
        assert [(row.asked, row.seen, row.todo) for row in ask(config)] == [
            ("Subnet vpcsubnet-e00gone", "there is none", "correct nebius.subnet"),
            ("Filesystem computefilesystem-e00gone", "there is none", "correct nebius.filesystems.jail.existing"),
        ]
        api.methods.seed("Filesystem", PROJECT, "jail", {}, "computefilesystem-e00gone")
        api.methods.seed("Subnet", PROJECT, "ours", {}, "vpcsubnet-e00gone")
        assert ask(config) == []

    def test_a_project_without_a_subnet(self, api: NebiusServer) -> None:
        api.store.seeded.append(PROJECT)
        assert self.one(cluster()) == ("existing", "wrong", "it has none")
        assert ask(cluster(**section(subnet="create"))) == []

    def test_names_that_are_taken(self, api: NebiusServer) -> None:
        id_ = api.methods.seed("Filesystem", PROJECT, "soperator-jail", {})
        assert self.one(cluster()) == ("name", "wrong", "taken: soperator-jail")
        assert ask(cluster(**section(prefix="team-a"))) == []
        # The cluster that is up has them itself.
        assert ask(cluster(), cluster()) == []
        # `up` waits until it is gone.
        api.store.objects[id_]["state"] = "DELETING"
        assert ask(cluster()) == []

    def test_names_that_a_stack_of_this_program_has(self, api: NebiusServer) -> None:
        id_ = api.methods.seed("GpuCluster", PROJECT, "soperator-fabric-3", {})
        api.store.objects[id_]["metadata"]["labels"] = {"hpc-owner": "0123456789abcdef"}
        assert self.one(cluster()) == ("name", "could not ask", "a stack of this program has soperator-fabric-3")
        (row,) = ask(cluster())
        assert row.todo.startswith(
            "nothing if an `up` of this stack stopped, which the next one with its state goes on"
        )
        api.store.objects[id_]["metadata"]["labels"] = {}
        assert self.one(cluster()) == ("name", "wrong", "taken: soperator-fabric-3")

    def test_the_bucket_of_the_state(self, api: NebiusServer) -> None:
        seen = "project-e00abc has none of this name; other projects were not asked"
        assert self.one(cluster(), state=STATE) == ("state", "could not ask", seen)
        id_ = seed_state(api, "DISABLED")
        assert self.one(cluster(), state=STATE) == ("state", "could not ask", "it keeps no old versions of the state")
        api.store.objects[id_]["spec"]["versioning_policy"] = "ENABLED"
        assert ask(cluster(), state=STATE) == []
        assert ask(cluster(), state="s3://elsewhere?endpoint=minio.example") == []
        api.store.objects[id_]["state"] = "SCHEDULED_FOR_DELETION"
        assert self.one(cluster(), state=STATE) == ("state", "wrong", "it was deleted")


QUESTIONS = {
    "Cluster": ("listcontrolplaneversions", {"kubernetes-version"}),
    "NodeGroup": ("getcompatibilitymatrix", {"node-image"}),
    "QuotaAllowanceService": ("list", {"quota"}),
    "PlatformService": ("list", {"machine-type"}),
    "ProjectService": ("get", {"project"}),
    "GroupMembership": ("listmemberof", {"permissions"}),
    "CapacityBlockGroupService": ("get", {"capacity-block"}),
    "Subnet": ("list", {"existing"}),
    "Filesystem": ("*", {"existing", "name"}),
    "GpuCluster": ("list", {"name"}),
    "Allocation": ("list", {"name"}),
    "Bucket": ("list", {"state"}),
    "ResourceAdviceService": ("list", {"capacity", "fabric"}),
}
"""Kind (or service) and method of each question, and the rows that it is for."""


class TestRefusals:
    """A question that is not answered is no failure, names its reason, and hides no other row."""

    @pytest.mark.parametrize("kind", QUESTIONS)
    def test_each_permission_that_a_question_takes(self, api: NebiusServer, kind: str) -> None:
        verb, ids = QUESTIONS[kind]
        api.faults.append(Fault(kind=kind, verb=verb, what="permission_denied", count=None))
        api.place.blocks = {BLOCK: {}}
        seed_state(api)
        jail = api.methods.seed("Filesystem", PROJECT, "jail", {}, "computefilesystem-e00abc")
        both = {
            "worker": {"machine_type": H100, "count": 2, "capacity": {"reservation": BLOCK}},
            "other": {"machine_type": H100, "count": 1},
        }
        workers = {"worker": FABRIC, "other": FABRIC}
        hidden = ask(nebius(nodesets=both, nebius={"workers": workers, **jail_of(jail)}), state=STATE)
        assert {row.id for row in hidden} == ids
        assert {row.outcome for row in hidden} == {CloudOutcome.NOT_ASKED}
        assert all(row.seen.startswith("permission denied") for row in hidden)
        assert all("group `editors`" in row.todo for row in hidden)

    @pytest.mark.parametrize(
        ("what", "seen", "todo"),
        [
            ("internal_error", "internal error of Nebius (request request-1", "run it again; if it stays, report"),
            ("unavailable", "UNAVAILABLE: the service is unavailable", "Nebius's API can't be reached"),
            ("unauthenticated", "UNAUTHENTICATED: the token has expired", "the credential was not accepted or has"),
            ("too_many_requests", "too many requests: 20 requests per second", "run it again in a minute"),
        ],
    )
    def test_reasons_in_words(self, api: NebiusServer, what: str, seen: str, todo: str) -> None:
        api.faults.append(Fault(kind="PlatformService", what=what, count=None))
        hidden = ask(cluster())
        assert {(row.id, row.outcome) for row in hidden} == {("machine-type", CloudOutcome.NOT_ASKED)}
        assert hidden[0].seen.startswith(seen)
        assert hidden[0].todo.startswith(todo)

    def test_an_expired_credential_is_one_error(self, api: NebiusServer) -> None:
        api.faults.append(Fault(kind="ProfileService", what="unauthenticated", count=None))
        with pytest.raises(NebiusError, match=r"could not log in to Nebius:\n.*the token has expired") as raised:
            cloud_checks.check(cluster())
        assert "to do: the credential was not accepted or has expired" in str(raised.value)

    def test_an_answer_of_another_form(self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(cloud_checks.ANSWERS, "platforms", lambda _project: [{}])
        hidden = ask(cluster())
        assert {row.outcome for row in hidden} == {CloudOutcome.NOT_ASKED}
        assert "Nebius's answer has another form than documented (KeyError: 'metadata')" in hidden[0].seen

    def test_an_answer_that_does_not_come_in_time(self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cloud_checks, "SECONDS", 2.0)
        api.after = lambda _number, call: time.sleep(4) if "PlatformService" in call.method else None
        found = ask(cluster())  # on a busy machine others may be late too, but nothing is wrong
        assert {row.outcome for row in found} == {CloudOutcome.NOT_ASKED}
        (hidden, *_) = [row for row in found if row.id == "machine-type"]
        assert hidden.seen.startswith(("no answer within 2 s", "DEADLINE_EXCEEDED", "Nebius did not answer in time"))


def test_questions_are_asked_side_by_side(api: NebiusServer) -> None:
    api.place.advice = (advice("fabric-3", on_demand=256), *api.place.advice[1:])
    meeting = Meeting(4)
    api.after = lambda _number, call: None if "ProfileService" in call.method else meeting.join()
    assert ask(cluster(**{**gpus(count=256), **section()})) == []


def test_the_number_of_questions_does_not_grow_with_the_nodes() -> None:
    few, many = (checks(NebiusStack(config=cluster(**{**gpus(count=count), **section()}))) for count in (1, 256))
    assert len(few) == len(many)


def test_assumptions_that_a_check_settles_are_on_their_page() -> None:
    listed = {assumption for assumption, *_ in assumptions()}
    settled = {text for check in checks(NebiusStack(config=cluster())) for text in check.assumptions}
    assert settled
    assert settled <= listed
