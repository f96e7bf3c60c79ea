"""A new release takes over, or state and database are restored, also after a kill at any point."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from accounting import backup, database
from slurm import slurmctld, upgrade
from system.host import SetupError

OLD, NEW = "24.11", "26.05"
ALLOWED = {"takes_over": ["25.11", "25.05", OLD], "nodes": ""}


class Killed(BaseException):
    """kill -9: no handler runs."""


class Machine:
    """A controller: what its state folder and its database hold, and which release is installed."""

    def __init__(self, root: Path) -> None:
        self.release, self.state, self.refuses = OLD, root / "slurmctld", ""
        self.tables: dict[str, str] = {}
        self.live = "slurm_acct_db"
        self.countdown, self.answers = -1, False
        self.state.mkdir()

    def operate(self) -> None:
        """One of the operations at which the set-up may be killed."""
        self.countdown -= 1
        if self.countdown == 0:
            raise Killed

    def set_up(self, allowed: object = ALLOWED) -> None:
        """Run phase `configure`: daemons convert files of an older release, and can't read those of a newer one."""
        self.answers = False
        with upgrade.take_over(allowed) as before_slurmdbd:  # type: ignore[arg-type]
            self.operate()
            before_slurmdbd()
            assert self.tables.get(self.live, self.release) <= self.release
            self.tables[self.live] = self.release
            self.operate()
            self._start_slurmctld()
            self.answers = True
            self.operate()

    def _start_slurmctld(self) -> None:
        if self.refuses == "slurmctld":
            (self.state / "job_state").write_text("half converted")
            raise SetupError("slurmctld ends as soon as it has started")
        file = self.state / "job_state"
        assert not file.exists() or file.read_text() <= self.release
        file.write_text(self.release)
        (self.state / "clustername").touch()

    @property
    def is_of(self) -> set[str]:
        """The releases that wrote what is there."""
        return {self.tables[self.live], (self.state / "job_state").read_text()}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    for name in ("FOLDER", "RECORD", "DUMP", "STATE"):
        path = getattr(upgrade, name)
        monkeypatch.setattr(upgrade, name, tmp_path / path.relative_to("/var/lib/hpc/controller"))
    monkeypatch.setattr(slurmctld, "STATE", made.state)
    monkeypatch.setattr(slurmctld, "applied", dict)
    monkeypatch.setattr(upgrade, "installed", lambda: made.release)
    monkeypatch.setattr(upgrade, "folder", lambda path, **_: path.mkdir(parents=True, exist_ok=True))
    monkeypatch.setattr(upgrade, "stop_services", lambda *_: made.operate())
    monkeypatch.setattr(upgrade, "succeeds", lambda *_: made.answers)
    monkeypatch.setattr(database, "prepare", lambda: None)
    monkeypatch.setattr(database, "query", lambda _: made.operate())

    def write(path: Path, text: str, **_: object) -> None:
        made.operate()
        path.write_text(text)

    def run(*command: str, **_: object) -> str:
        made.operate()
        if command[0] == "cp":
            subprocess.run(command, check=True)
            made.operate()
        return ""

    def dump(out) -> None:
        out.write(made.tables[made.live].encode())
        made.operate()

    def load(file: Path, name: str) -> None:
        made.tables[name] = file.read_text()
        made.operate()

    def convert(new: str) -> None:
        made.tables[made.live] = "half converted"
        made.operate()
        if made.refuses == "slurmdbd":
            raise SetupError("slurmdbd ends as soon as it has started")
        made.tables[made.live] = new

    monkeypatch.setattr(upgrade, "write", write)
    monkeypatch.setattr(upgrade, "run", run)
    monkeypatch.setattr(upgrade, "_convert", convert)
    monkeypatch.setattr(backup, "write_backup", dump)
    monkeypatch.setattr(backup, "load", load)
    monkeypatch.setattr(backup, "swap_tables", lambda: made.tables.update({made.live: made.tables.pop(backup.FRESH)}))
    made.set_up()
    made.release = NEW
    return made


def test_a_new_release_takes_over(machine: Machine):
    machine.set_up()
    assert machine.is_of == {NEW}
    machine.set_up()


@pytest.mark.parametrize("who", ["slurmdbd", "slurmctld"])
def test_a_failed_conversion_is_restored(machine: Machine, who: str):
    machine.refuses = who
    for _ in range(2):
        with pytest.raises(SetupError, match=rf"(?s){who} ends.*are again as Slurm {OLD} left them"):
            machine.set_up()
        assert machine.is_of == {OLD}
    machine.release = OLD
    machine.refuses = ""
    machine.set_up()
    assert machine.is_of == {OLD}


def test_a_kill_at_any_point_is_undone_or_completed_by_the_next_run(machine: Machine):
    for operations in range(1, 60):
        for next_release in (OLD, NEW):
            machine.release, machine.countdown = NEW, operations
            try:
                machine.set_up()
            except Killed:
                done = False
            else:
                done = True
            machine.countdown = -1
            if done:
                assert machine.is_of == {NEW}
                return
            if next_release == OLD and machine.answers:
                continue  # it had taken over, and the old one is refused
            machine.release = next_release
            machine.set_up()
            assert machine.is_of == {next_release}
            if next_release == NEW:
                upgrade.RECORD.write_text(f'{{"release": "{OLD}"}}')
                machine.tables, machine.answers = {machine.live: OLD}, False
                (machine.state / "job_state").write_text(OLD)
    raise AssertionError("the set-up never came to its end")


@pytest.mark.parametrize(("left", "new"), [(NEW, OLD), ("22.05", NEW)])
def test_a_release_that_slurm_does_not_allow_changes_nothing(machine: Machine, left: str, new: str):
    machine.release = new
    upgrade.RECORD.write_text(f'{{"release": "{left}"}}')
    with pytest.raises(SetupError, match=rf"Slurm {new}, which does not take over what Slurm {left} left"):
        machine.set_up()
    assert machine.is_of == {OLD}


def test_a_state_without_a_record_is_copied_too(machine: Machine):
    upgrade.RECORD.unlink()
    machine.refuses = "slurmctld"
    with pytest.raises(SetupError, match="as Slurm of an unknown release left them"):
        machine.set_up()
    assert machine.is_of == {OLD}


NODES = """\
NodeName=n0 State=IDLE Version={}
NodeName=n1 State=DOWN
NodeName=n2 State=IDLE Version=26.05.5
NodeName=n3 State=IDLE+CLOUD+POWERED_DOWN Version=24.11.5
"""


def test_nodes_of_an_older_release_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(upgrade, "listens", lambda _: True)
    monkeypatch.setattr(upgrade, "installed", lambda: "26.05")
    monkeypatch.setattr(slurmctld, "applied", lambda: {"slurm.conf": ""})

    def check(nodes: str) -> None:
        upgrade.check_nodes({"takes_over": [], "nodes": nodes})

    for version, late in (("24.11.5", True), ("26.05.3", False)):
        monkeypatch.setattr(upgrade, "run", lambda *_, version=version: NODES.format(version))
        upgrade.check_nodes(None)
        check("24.11")
        check("26.11")  # an image of another release than its stack file says
        if late:
            with pytest.raises(SetupError, match=r"before 26\.05, which .*: n0 \(24\.11\)\. Nothing was changed"):
                check("26.05")
        else:
            check("26.05")


def test_elastic_nodes_of_an_older_release_are_waited_for(monkeypatch: pytest.MonkeyPatch):
    rows = [f"NodeName=n0 State={state}+CLOUD Version=24.11.5\n" for state in ("ALLOCATED", "IDLE", "POWERED_DOWN")]
    left = list(rows)
    monkeypatch.setattr(upgrade, "run", lambda *_: left.pop(0) if len(left) > 1 else left[0])
    monkeypatch.setattr(upgrade, "installed", lambda: "26.05")
    monkeypatch.setattr(upgrade, "listens", lambda _: True)
    monkeypatch.setattr(slurmctld, "applied", lambda: {"slurm.conf": ""})
    monkeypatch.setattr(upgrade.time, "sleep", lambda _: None)
    upgrade.check_nodes({"takes_over": [], "nodes": "26.05"}, seconds=60)
    assert left == rows[-1:]
    left[:] = rows[:1]
    with pytest.raises(SetupError, match=r"n0 \(24\.11\).*scontrol power down asap"):
        upgrade.check_nodes({"takes_over": [], "nodes": "26.05"}, seconds=-1)
