"""The releases of each kind of cluster are on disk, where a review sees every value that a change moves."""

from pathlib import Path

import pytest
import yaml

from cluster.platforms.nebius.releases import Release
from tests.cluster.nebius.releases.clusters import CASES, made

GOLDEN = Path(__file__).parents[3] / "golden" / "nebius-releases"


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


_Plain.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)
)


def written(release: Release) -> dict:
    return {
        "release": release.name,
        "chart": f"{release.repo.rstrip('/')}/{release.chart}",
        "version": release.version,
        "namespace": release.namespace,
        "needs": list(release.needs),
        "after": list(release.after),
        "hooks": release.hooks,
        "timeout": release.timeout,
        "values": release.values,
    }


@pytest.mark.parametrize("case", CASES)
def test_every_cluster_has_the_releases_that_were_reviewed(case, update_golden):
    documents = [written(one) for one in made(CASES[case]).values()]
    text = yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=118)
    file = GOLDEN / f"{case}.yaml"
    if update_golden:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert file.is_file(), "write it with `pytest --update-golden` and review it"
    assert text == file.read_text(), "if the change is meant: `pytest --update-golden`, then review the difference"


def test_no_golden_file_outlives_its_cluster():
    assert {one.stem for one in GOLDEN.iterdir()} == set(CASES)
