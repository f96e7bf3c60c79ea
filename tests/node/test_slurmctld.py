"""What the controller can tell of the files that it runs with."""

import json

import pytest
from accounting import database
from slurm import slurmctld
from system.host import SetupError

from cluster.checks.settings import NOT_EXECUTED
from cluster.slurm.files import digest
from components.slurm.payload import PASSWORD_MARK, slurm_files
from tests.cluster.stacks import cluster


@pytest.fixture
def controller(tmp_path, monkeypatch):
    """The files of a controller, as `configure` leaves them."""
    files = slurm_files(cluster(nodesets={"cpu": {}, "more": {}}), {})
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


@pytest.mark.parametrize("name", ["slurm.conf", "slurmdbd.conf", "gres.conf"])
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


class TestBack:
    """Files with which slurmctld does not come up give way to those before them."""

    @pytest.fixture
    def machine(self, controller, monkeypatch):
        """The controller with a slurmctld that comes up with every slurm.conf but a bad one; what was started."""
        began: list[str] = []

        def answer() -> None:
            if "nonsense" in (slurmctld.ETC / "slurm.conf").read_text():
                raise SetupError("slurmctld ends as soon as it has started")

        monkeypatch.setattr(slurmctld, "answer", answer)
        monkeypatch.setattr(slurmctld, "write", lambda path, text, **_: path.write_text(text))
        monkeypatch.setattr(slurmctld, "service", lambda name, **_: began.append(name))
        monkeypatch.setattr(slurmctld, "forget", lambda name: began.append(f"forget {name}"))
        monkeypatch.setattr(slurmctld, "wait", lambda *_, **__: None)
        monkeypatch.setattr(slurmctld, "run", lambda *_, **__: "")
        return began

    def change(self, files):
        with slurmctld.or_back(files):
            slurmctld.write_files(files)
            slurmctld.answer()

    def test_they_are_put_back_and_it_is_said(self, controller, machine):
        before = {path.name: path.read_text() for path in slurmctld.ETC.iterdir()}
        files = {**slurmctld.applied(), "slurm.conf": "PriorityType=priority/nonsense\n", "gres.conf": "new\n"}
        with pytest.raises(SetupError, match=r"(?s)ends as soon as.*The edit did not take effect"):
            self.change(files)
        assert {path.name: path.read_text() for path in slurmctld.ETC.iterdir()} == before
        assert machine == ["slurmdbd", "forget slurmctld", "slurmctld"]

    def test_files_that_work_stay(self, controller, machine):
        self.change({**slurmctld.applied(), "slurm.conf": "KillWait=31\n"})
        assert (slurmctld.ETC / "slurm.conf").read_text() == "KillWait=31\n"
        assert machine == []

    def test_a_fault_that_no_edit_brought_is_told_as_it_is(self, controller, machine):
        bad = {**slurmctld.applied(), "slurm.conf": "PriorityType=priority/nonsense\n"}
        slurmctld.APPLIED.write_text(json.dumps(bad))
        with pytest.raises(SetupError) as told:
            self.change(bad)
        assert str(told.value) == "slurmctld ends as soon as it has started"
        assert machine == []

    def test_where_the_old_ones_fail_as_well_both_are_told(self, controller, machine):
        old = {**slurmctld.applied(), "slurm.conf": "also=nonsense\n"}
        slurmctld.APPLIED.write_text(json.dumps(old))
        with pytest.raises(SetupError, match=r"(?s)ends as soon as.*before it does not come up either"):
            self.change({**old, "slurm.conf": "PriorityType=priority/nonsense\n"})

    def test_the_first_files_have_none_before_them(self, controller, machine):
        slurmctld.APPLIED.unlink()
        with pytest.raises(SetupError) as told:
            self.change({"slurm.conf": "nonsense\n"})
        assert str(told.value) == "slurmctld ends as soon as it has started"


def test_a_damaged_record_is_what_the_set_up_was_told_last(controller, monkeypatch):
    told = {"files": {"slurm.conf": ["ClusterName=dev"], "slurmdbd.conf": ["DbdHost=x"]}}
    monkeypatch.setattr(slurmctld.phase_state, "last", lambda _: told)
    slurmctld.APPLIED.write_text('{"slurm.conf": "Clus')
    assert slurmctld.applied() == {"slurm.conf": "ClusterName=dev\n"}


def test_a_stack_file_may_name_no_program_that_its_unit_does_not_execute():
    rows = dict(line.split("=", 1) for line in slurmctld.CONFINED.splitlines())
    folders = {one.lstrip("-") for name in ("NoExecPaths", "InaccessiblePaths") for one in rows[name].split()}
    assert rows["ProtectHome"] == "yes"  # systemd.exec(5): these three
    folders |= {"/home", "/root", "/run/user"}
    assert set(NOT_EXECUTED) == folders - {"/etc/slurm/slurmdbd.conf"}
