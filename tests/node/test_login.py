"""What a shell on a login machine starts with."""

import subprocess
from pathlib import Path

import pytest
from system import login


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(("option", "told"), [("-i", "jobid,jobname"), ("-u", "none")])
def test_columns_of_sacct_are_for_people_alone(tmp_path: Path, shell: str, option: str, told: str):
    """Scripts and jobs count columns; a variable would reach them from the shell that starts them."""
    (tmp_path / "hpc.sh").write_text(login.PROFILE)
    (tmp_path / "sacct").write_text('#!/bin/sh\necho "${SACCT_FORMAT:-none}" "$@"\n')
    (tmp_path / "sacct").chmod(0o755)
    script = f". {tmp_path}/hpc.sh; sacct -X; sh -c 'sacct -P'"
    done = subprocess.run(
        [shell, option, "-c", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}, capture_output=True, text=True, check=True,
        start_new_session=True,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first.startswith(told)
    assert first.endswith("-X")
    assert second == "none -P"
