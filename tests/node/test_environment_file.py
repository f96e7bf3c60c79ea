"""env.sh of jobs, as the set-up writes it."""

from pathlib import Path

import pytest
from jobs import prologs
from system import host
from system.host import SetupError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prologs, "ENVIRONMENT", tmp_path / "apps/hpc/env.sh")
    monkeypatch.setattr(host, "SHARED", tmp_path / "apps")
    return prologs.ENVIRONMENT


def test_it_is_written_as_commands_that_use_it_write_it(file: Path):
    prologs.keep_environment(["# one", "export A=1"])
    assert file.read_text() == "# one\nexport A=1\n"
    # scripts/jobs/put.py gives *.sh this mode, and would change the file of another.
    assert file.stat().st_mode & 0o777 == 0o755


def test_what_an_earlier_up_did_not_bring_stays(file: Path):
    prologs.keep_environment(["export A=1"])
    prologs.keep_environment([])
    assert file.read_text() == "export A=1\n"


def test_it_is_not_written_where_others_can_put_another_in_its_place(file: Path):
    file.parent.mkdir(parents=True)
    file.parent.chmod(0o777)
    with pytest.raises(SetupError, match="may be written by others"):
        prologs.keep_environment(["export A=1"])
    assert not file.exists()
