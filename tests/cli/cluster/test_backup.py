"""A backup is read only when it is whole; every other file is refused in words."""

import gzip
import hashlib
import json
from pathlib import Path

import accounting.backup
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.cluster.backup import FIRST, LAST, BackupError, can_read, read_backup

NOTE = {"cluster": "dev", "slurm": "22.05.8", "date": "2026-11-21T05:30:00+0000", "jobs": 3, "managed": None}


def backup(first: bytes = FIRST, note: object = NOTE, body: bytes = b"SELECT 1;\n", last: bytes | None = None) -> bytes:
    text = first + b"-- " + json.dumps(note).encode() + b"\n" + body
    end = LAST + hashlib.sha256(text).hexdigest().encode() + b"\n" if last is None else last
    return gzip.compress(text + end, mtime=0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.sql.gz"


def test_a_complete_backup_has_the_properties_of_its_header(file: Path):
    file.write_bytes(backup())
    found = read_backup(file)
    assert (found.cluster, found.slurm, found.date, found.jobs) == ("dev", "22.05.8", NOTE["date"], 3)
    assert found.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_backup_of_the_controllers_program_can_be_read():
    assert (accounting.backup.FIRST_LINE.encode(), accounting.backup.LAST_LINE.encode()) == (FIRST, LAST)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6))
def test_a_truncated_backup_is_refused(file: Path, where: int):
    whole = backup()
    file.write_bytes(whole[: where % len(whole)])
    with pytest.raises(BackupError):
        read_backup(file)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_backup_is_refused_or_reads_the_same(file: Path, where: int, change: int):
    whole = bytearray(backup())
    # Behind gzip's own header, of which the time and the system mean nothing.
    whole[10 + where % (len(whole) - 10)] ^= change
    file.write_bytes(bytes(whole))
    with pytest.raises(BackupError):
        read_backup(file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no backup of ours|cut off"),
        (b"hello", "no backup of ours"),
        (gzip.compress(b"-- MariaDB dump\n", mtime=0), "its first line is another one"),
        (backup(last=b""), "did not come to its end"),
        (backup(last=LAST + b"0" * 64 + b"\n"), "was changed since"),
        (backup(note=[1]), "another version"),
        (backup(note={**NOTE, "jobs": "many"}), "another version"),
    ],
)
def test_the_error_names_what_is_wrong_with_the_file(file: Path, content: bytes, words: str):
    file.write_bytes(content)
    with pytest.raises(BackupError, match=words):
        read_backup(file)


@pytest.mark.parametrize(
    ("made", "release", "result"),
    [
        ("22.05.8", "22.05.2", True),
        ("23.11.4", "22.05.8", False),
        ("22.05.8", "23.11.1", True),
        ("22.05.8", "24.11.5", False),
        ("24.11", "25.05", True),
    ],
)
def test_only_releases_that_take_over_from_the_backups_can_read_it(made: str, release: str, result: bool):
    assert can_read(release, made) is result
