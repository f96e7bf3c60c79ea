"""What the controller can tell of the files that it runs with."""

import json

import database
import pytest
import slurmctld
from system import SetupError

from cluster.slurm import digest
from components.slurm.payload import PASSWORD_MARK, slurm_files
from tests.cluster.stacks import cluster


@pytest.fixture
def controller(tmp_path, monkeypatch):
    """The files of a controller, as `configure` leaves them."""
    files = slurm_files(cluster(), {})
    for name in ("ETC", "APPLIED"):
        monkeypatch.setattr(slurmctld, name, tmp_path / name.lower())
    monkeypatch.setattr(database, "PASSWORD", tmp_path / "password")
    (tmp_path / "password").write_text("s3cret\n")
    slurmctld.ETC.mkdir()
    for name, text in files.items():
        (slurmctld.ETC / name).write_text(text.replace(PASSWORD_MARK, "s3cret"))
    slurmctld.APPLIED.write_text(json.dumps({n: t for n, t in files.items() if n != "slurmdbd.conf"}))
    return files


def test_its_files_have_the_stacks_hash(controller):
    assert slurmctld.digest() == digest(controller)


@pytest.mark.parametrize("name", ["slurm.conf", "slurmdbd.conf", "topology.conf"])
def test_a_changed_file_has_another(controller, name):
    (slurmctld.ETC / name).write_text("# by hand\n")
    assert slurmctld.digest() != digest(controller)


def test_another_clusters_name_is_refused(controller):
    slurmctld.refuse_other_name("dev")
    with pytest.raises(SetupError, match="runs cluster dev, the stack says prod"):
        slurmctld.refuse_other_name("prod")


def test_a_new_controller_may_have_any_name(controller):
    slurmctld.APPLIED.unlink()
    slurmctld.refuse_other_name("prod")
