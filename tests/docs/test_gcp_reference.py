"""Tables of docs/reference/google-cloud.md that the code produces: rendered again and compared."""

import re
from typing import Any

import yaml

from cluster.config.storage import Lustre
from cluster.platforms.gcp.address_plan import plan, table
from cluster.platforms.gcp.filesystems.exascaler import Exascaler
from cluster.platforms.gcp.filesystems.lustre import Managed
from cluster.platforms.gcp.filesystems.registry import servers
from tests.cluster import stacks

PAGE = (stacks.ROOT / "docs/reference/google-cloud.md").read_text()
HOW_TO = (stacks.ROOT / "docs/guides/google-cloud.md").read_text()


def test_the_address_table_is_that_of_the_stack():
    assert f"```\n{table(plan(stacks.config('a3mega')), builder=True)}```" in PAGE


def test_sizes_are_what_the_catalog_gives():
    rows: list[tuple[dict[str, Any], list[int]]] = [
        (yaml.safe_load(oss), [int(word) for word in figures.split("|")])
        for oss, figures in re.findall(r"^\| `(\{count.*?)` \| (.*) \|$", PAGE, re.MULTILINE)
    ]
    assert len(rows) > 3
    for oss, figures in rows:
        found = Exascaler.expected(Lustre.model_validate({"kind": "exascaler", "oss": oss}))
        assert [found.capacity_gib, found.read_mbps, found.write_mbps] == figures, oss


def test_the_quota_is_what_the_servers_of_the_stack_take():
    found = servers(stacks.config("a3mega"))
    cpus = sum(server.machine_type.cpus for server in found)
    ssd = sum(disk.targets.size_gb for server in found for disk in server.disks if disk.targets.type == "pd-ssd")
    assert f"need {cpus} N2 CPUs, {ssd // 1000} TB of SSD" in HOW_TO


def test_the_managed_stack_is_what_its_sentence_says():
    lustre = stacks.config("a3mega-managed").storage.lustre
    assert lustre
    assert f"{lustre.size_gib} GiB at {lustre.throughput} are {Managed.expected(lustre).read_mbps} MB/s" in PAGE
