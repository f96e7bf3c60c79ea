"""A script that is lost or changed is told before a job finds out."""

import hashlib
from typing import Any

from cluster.observe.drift import Difference, Wanted, script_differences
from cluster.observe.observation import ClusterObservation, MachineObservation
from cluster.slurm.script_tree import expected
from tests.cluster.stacks import cluster

TEXT = "#!/bin/sh\ntrue\n"
CONFIG = cluster(
    slurm={
        "scripts": [{"name": "check", "text": TEXT}, {"name": "mine", "file": "mine.sh"}],
        "rxdm": {"partitions": ["cpu"]},
    }
)
THERE = {
    "slurm_mux": "0" * 64,
    "etc/slurm_mux.conf": "1" * 64,
    "slurm_prolog": "-> slurm_mux",
    "slurm_epilog": "-> slurm_mux",
    "scripts/check": hashlib.sha256(TEXT.encode()).hexdigest(),
    "scripts/mine": "2" * 64,
    "scripts/rxdm": "3" * 64,
    "prolog_slurmd.d/check.prolog_slurmd": "-> ../scripts/check",
    "prolog_slurmd.d/mine.prolog_slurmd": "-> ../scripts/mine",
    "partition-cpu-prolog_slurmd.d/rxdm.prolog_slurmd": "-> ../scripts/rxdm",
    "partition-cpu-epilog_slurmd.d/rxdm.epilog_slurmd": "-> ../scripts/rxdm",
    "prolog_slurmd.d/theirs.prolog_slurmd": "4" * 64,
}


def found(there: Any) -> list[Difference]:
    wanted = Wanted(
        files={}, users=[], groups=[], accounting={}, nodes=[], setup="", setup_of_stack=None, scripts=expected(CONFIG)
    )
    controller = MachineObservation(
        name="dev-controller", roles=("controller",), reached=True, facts={"scripts": there}
    )
    return list(script_differences(wanted, ClusterObservation(stack="dev", machines=(controller,))))


def test_all_of_it_and_files_of_others_are_fine():
    assert set(expected(CONFIG)) == set(THERE) - {"prolog_slurmd.d/theirs.prolog_slurmd"}
    assert found(THERE) == []


def test_a_lost_tree_is_every_file_of_it():
    assert {(one.id, one.what.removeprefix("/opt/apps/adm/slurm/")) for one in found({})} == {
        ("script-missing", path) for path in expected(CONFIG)
    }


def test_another_text_is_told_with_both_hashes():
    (one,) = found(THERE | {"scripts/check": "5" * 64})
    assert (one.id, one.stack, one.there) == (
        "script-changed",
        f"hash {THERE['scripts/check'][:16]}",
        "hash 5555555555555555",
    )


def test_a_link_that_leads_elsewhere_is_told():
    (one,) = found(THERE | {"slurm_prolog": "-> /bin/true"})
    assert (one.stack, one.there) == ("-> slurm_mux", "-> /bin/true")


def test_rxdm_that_was_changed_since_it_was_patched_is_told():
    (one,) = found(THERE | {"scripts/rxdm": "changed"})
    assert (one.id, one.stack, one.there) == ("script-changed", "as it was staged", "changed")


def test_what_could_not_be_read_is_no_difference():
    assert found({"error": "no answer within 4 s"}) == []


def test_a_cluster_without_scripts_expects_none():
    assert expected(cluster()) == {}


def test_a_script_that_the_dispatcher_would_skip_is_told():
    (one,) = found(THERE | {"scripts/mine": "not executable"})
    assert (one.id, one.stack, one.there) == ("script-changed", "as it was staged", "not executable")
