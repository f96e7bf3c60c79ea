"""The tree of scripts depends on the configuration, and not on the number of nodes."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.catalog.prologs import ACTIONS, NEWEST, RXDM_VERSIONS
from cluster.config import ClusterConfig
from cluster.config.validators import sha256
from cluster.findings import ConfigError
from cluster.slurm.files import render
from cluster.slurm.script_tree import Tree, has_scripts, tree
from tests.cluster.stacks import ROOT, cluster

TEXT = "#!/bin/sh\ntrue\n"
SHA = "0" * 64
PART = {"nodesets": ["cpu"], "default": True}


def lines(config: ClusterConfig) -> list[str]:
    return [line for line in render(config)["slurm.conf"].splitlines() if line.startswith(("Prolog=", "Epilog="))]


def planned(**changes: object) -> Tree:
    return tree(cluster(**changes), ROOT)


class TestSlurmConf:
    def test_a_cluster_without_scripts_has_no_prolog(self):
        assert not has_scripts(cluster())
        assert lines(cluster()) == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"slurm": {"scripts": [{"name": "a", "text": TEXT}]}},
            {"partitions": {"cpu": {**PART, "scripts": [{"name": "a", "text": TEXT}]}}},
            {"nodesets": {"cpu": {"scripts": [{"name": "a", "on": ["epilog"], "text": TEXT}]}}},
            {"slurm": {"rxdm": {"partitions": ["cpu"]}}},
        ],
    )
    def test_any_script_sets_prolog_and_epilog(self, changes):
        assert lines(cluster(**changes)) == [
            "Prolog=/opt/apps/adm/slurm/slurm_prolog",
            "Epilog=/opt/apps/adm/slurm/slurm_epilog",
        ]

    def test_without_scripts_extra_may_set_a_prolog(self):
        assert lines(cluster(slurm={"extra": {"Prolog": "/usr/local/sbin/prolog"}})) == [
            "Prolog=/usr/local/sbin/prolog"
        ]


class TestTree:
    def test_each_place_has_its_folder(self):
        script = {"name": "check", "on": ["prolog", "epilog"], "text": TEXT}
        found = planned(
            slurm={"scripts": [script]},
            partitions={"cpu": {**PART, "scripts": [script]}},
            nodesets={"cpu": {"count": 2, "scripts": [script | {"on": ["epilog"]}]}},
        )
        assert found.scripts == {"check": {"lines": ["#!/bin/sh", "true", ""]}}
        assert found.links == {
            "prolog_slurmd.d/check.prolog_slurmd": "../scripts/check",
            "epilog_slurmd.d/check.epilog_slurmd": "../scripts/check",
            "partition-cpu-prolog_slurmd.d/check.prolog_slurmd": "../scripts/check",
            "partition-cpu-epilog_slurmd.d/check.epilog_slurmd": "../scripts/check",
            "nodeset-cpu-epilog_slurmd.d/check.epilog_slurmd": "../scripts/check",
        }

    def test_rxdm_runs_before_and_after_jobs_of_its_partitions(self):
        found = planned(slurm={"rxdm": {"partitions": ["cpu"]}})
        assert found.scripts == {}
        assert found.rxdm == {"url": NEWEST.url, "sha256": NEWEST.sha256}
        assert found.links == {
            "partition-cpu-prolog_slurmd.d/rxdm.prolog_slurmd": "../scripts/rxdm",
            "partition-cpu-epilog_slurmd.d/rxdm.epilog_slurmd": "../scripts/rxdm",
        }
        assert found.rxdm_links == found.links

    def test_a_url_has_its_hash(self):
        url = "https://example.org/check.sh"
        found = planned(slurm={"scripts": [{"name": "check", "url": url, "sha256": SHA}]})
        assert found.scripts == {"check": {"url": url, "sha256": SHA}}

    @given(st.integers(1, 50))
    def test_the_tree_does_not_depend_on_the_number_of_nodes(self, count):
        scripts = [{"name": "check", "text": TEXT}]
        assert planned(nodesets={"cpu": {"count": count, "scripts": scripts}}) == planned(
            nodesets={"cpu": {"count": count + 1, "scripts": scripts}}
        )


class TestFiles:
    @given(st.text(alphabet="a#! \t\r\u00e9", max_size=20), st.integers(0, 2))
    def test_the_lines_of_a_file_give_the_same_text(self, tmp_path_factory, rest, ends):
        folder = tmp_path_factory.mktemp("project")
        text = "#!/bin/sh\n" + rest + "\n" * ends
        (folder / "check.sh").write_bytes(text.encode())
        found = tree(cluster(slurm={"scripts": [{"name": "check", "file": "check.sh"}]}), folder)
        assert "\n".join(found.scripts["check"]["lines"]) == text

    def test_files_that_are_no_scripts_are_reported_with_their_places(self, tmp_path):
        (tmp_path / "page.sh").write_text("<!DOCTYPE html>\n")
        (tmp_path / "binary.sh").write_bytes(b"#!/\xff\xfe")
        (tmp_path / "large.sh").write_text("#!/bin/sh\n" + "#" * 1_048_576)
        names = ("page", "binary", "large", "gone")
        config = cluster(
            slurm={
                "scripts": [{"name": name, "file": f"{name}.sh"} for name in names],
                "rxdm": {"partitions": ["cpu"], "file": "rxdm.sh"},
            }
        )
        with pytest.raises(ConfigError) as caught:
            tree(config, tmp_path)
        given = {finding.where.removeprefix("hpc:cluster.slurm."): finding.given for finding in caught.value.findings}
        assert "first line is '<!DOCTYPE html>'" in given["scripts[0].file"]
        assert "not text" in given["scripts[1].file"]
        assert "which is larger" in given["scripts[2].file"]
        assert "No such file" in given["scripts[3].file"]
        assert "No such file" in given["rxdm.file"]

    def test_the_hash_of_rxdm_is_that_of_its_file(self, tmp_path):
        (tmp_path / "rxdm.sh").write_text(TEXT)
        found = tree(cluster(slurm={"rxdm": {"partitions": ["cpu"], "file": "rxdm.sh"}}), tmp_path)
        assert found.rxdm is not None
        assert found.rxdm["sha256"] == hashlib.sha256(TEXT.encode()).hexdigest()


class TestCatalog:
    def test_every_version_of_rxdm_has_a_commit_and_a_url(self):
        commits = [version.commit for version in RXDM_VERSIONS.values()]
        assert len(set(commits)) == len(commits) == 17
        for version in RXDM_VERSIONS.values():
            assert re.fullmatch(r"[0-9a-f]{40}", version.commit)
            assert sha256(version.sha256)
            assert version.url.endswith(f"/{version.commit}/tools/prologs-epilogs/receive-data-path-manager-mega")

    def test_versions_of_rxdm_are_sorted_and_the_default_is_the_newest(self):
        dates = [version.date for version in RXDM_VERSIONS.values()]
        assert dates == sorted(dates, reverse=True)
        assert next(iter(RXDM_VERSIONS.values())) is NEWEST

    def test_unusable_versions_of_rxdm_are_refused(self):
        for version in RXDM_VERSIONS.values():
            assert version.usable == (ACTIONS[version.sha256] != "refuse")
        assert sorted(set(ACTIONS.values())) == ["ok", "patch", "refuse"]

    def test_the_guides_version_of_rxdm_is_patched(self):
        """The version that slurm-gcp had when Cluster Toolkit 1.39.0 came out."""
        guides = next(version for version in RXDM_VERSIONS.values() if version.commit.startswith("23d885b2"))
        assert (guides.date, guides.system_check, guides.plugin, guides.rxdm) == (
            "2024-08-29",
            "needs-patch",
            "v1.0.4",
            "v1.0.10",
        )
